package coalesce

import "log/slog"

// Stats describes the queues and the batches sent so far.
type Stats struct {
	Pings, Lookups, Devices CallStats
}

// Stats returns the statistics since New.
func (s *Store) Stats() Stats {
	return Stats{Pings: s.pings.stats(), Lookups: s.lookups.stats(), Devices: s.devices.stats()}
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

func (c *coalescer[T]) count(more CallStats) {
	c.counting.Lock()
	defer c.counting.Unlock()
	c.counted.Batches += more.Batches
	c.counted.Members += more.Members
	c.counted.Largest = max(c.counted.Largest, more.Largest)
	c.counted.Refused += more.Refused
}

func (c *coalescer[T]) stats() CallStats {
	c.counting.Lock()
	stats := c.counted
	c.counting.Unlock()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, n := range c.nodes {
		stats.Queued += n.queued.Load()
	}
	return stats
}
