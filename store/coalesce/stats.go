package coalesce

import (
	"log/slog"
	"sync/atomic"
)

// LaneStats tells what has gone through the lanes of one kind of call.
type LaneStats struct {
	Queued  int64 // members that wait just now
	Batches int64 // sent so far
	Members int64 // of these batches; divided by Batches it is their mean size
	Largest int64 // members of the largest batch
	Refused int64 // members refused because the queue was full
}

// LogValue implements [slog.LogValuer].
func (s LaneStats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("queued", s.Queued), slog.Int64("batches", s.Batches), slog.Int64("members", s.Members),
		slog.Int64("largest", s.Largest), slog.Int64("refused", s.Refused),
	)
}

// counters are what LaneStats are read from, together with the lanes' queues.
type counters struct {
	batches, members, largest, refused atomic.Int64
}

// sent counts a batch. Lanes send side by side, so the largest is kept by comparing.
func (c *counters) sent(members int) {
	n := int64(members)
	c.batches.Add(1)
	c.members.Add(n)
	for {
		largest := c.largest.Load()
		if n <= largest || c.largest.CompareAndSwap(largest, n) {
			return
		}
	}
}

func (c *counters) read() LaneStats {
	return LaneStats{
		Batches: c.batches.Load(), Members: c.members.Load(),
		Largest: c.largest.Load(), Refused: c.refused.Load(),
	}
}
