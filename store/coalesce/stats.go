package coalesce

import (
	"log/slog"
	"sync/atomic"
)

// Stats describes the queues and the batches sent so far.
type Stats struct {
	Pings, Lookups CallStats
}

// Stats returns the statistics since New.
func (s *Store) Stats() Stats {
	return Stats{Pings: s.pings.stats(), Lookups: s.lookups.stats()}
}

// CallStats describes the queues and batches of one kind of call.
type CallStats struct {
	Queued  int64 // members in queues now
	Batches int64 // sent so far
	Members int64 // of these batches; divided by Batches it is their mean size
	Largest int64 // members of the largest batch
	Refused int64 // members refused because a queue was full
}

// LogValue implements [slog.LogValuer].
func (s CallStats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("queued", s.Queued), slog.Int64("batches", s.Batches), slog.Int64("members", s.Members),
		slog.Int64("largest", s.Largest), slog.Int64("refused", s.Refused),
	)
}

// counters count for [CallStats].
type counters struct {
	batches, members, largest, refused atomic.Int64
}

// countBatch counts a batch that was sent. Several nodes send at the same time, hence the loop.
func (c *counters) countBatch(members int) {
	n := int64(members)
	c.batches.Add(1)
	c.members.Add(n)
	for largest := c.largest.Load(); n > largest && !c.largest.CompareAndSwap(largest, n); {
		largest = c.largest.Load()
	}
}

// stats returns the counters and the lengths of the queues.
func (c *coalescer[T]) stats() CallStats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	stats := CallStats{
		Batches: c.batches.Load(), Members: c.members.Load(), Largest: c.largest.Load(), Refused: c.refused.Load(),
	}
	for _, n := range c.nodes {
		stats.Queued += n.queued.Load()
	}
	return stats
}
