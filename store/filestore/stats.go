package filestore

import "time"

// Stats describes the data file and what is not in it yet.
type Stats struct {
	Users       int64     // in the store
	Dirty       int64     // users whose change is not on disk yet, at most: one who changed twice counts twice
	LastFlush   time.Time // when the last flush succeeded; at first when the store was opened
	Failures    int64     // flushes that failed since the store was opened
	Size        int64     // bytes of the data file
	Live        int64     // about how many bytes a compacted file would have
	Compactions int64     // that finished since the store was opened
}

// Stats returns the current statistics. It does not wait for the disk.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	w := s.writer
	return Stats{
		Users: s.index.users, Dirty: int64(w.pending.users + w.flushing), LastFlush: w.flushed, Failures: w.failures,
		Size: w.log.size.Load(), Live: s.index.live, Compactions: w.log.compacted.Load(),
	}
}
