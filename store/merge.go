package store

// Source returns records in order: one half of one shard of a namespace.
type Source interface {
	// Next returns the next record, or false after the last one.
	Next() (Record, bool, error)
}

// Merge returns the first limit records of all sources together, in the order that every source keeps by itself. When
// sources were read at different moments, a user who moved between two of them could be in both; only the first of
// these records is returned.
func Merge(order Order, limit int, sources ...Source) ([]Record, error) {
	heads := make([]head, len(sources))
	for i, source := range sources {
		heads[i].source = source
	}
	page := make([]Record, 0, min(limit, 64)) // it grows when needed
	listed := make(map[string]struct{}, cap(page))
	for len(page) < limit { // reading on may cost a round trip, for nothing
		first, err := firstOf(order, heads)
		if err != nil {
			return nil, err
		}
		if first == nil {
			break
		}
		first.read = false
		if _, twice := listed[first.record.User]; !twice {
			listed[first.record.User] = struct{}{}
			page = append(page, first.record)
		}
	}
	return page, nil
}

// head is a source and its next record.
type head struct {
	source Source
	read   bool // record and ok are those that source returned
	record Record
	ok     bool
}

// firstOf returns the head whose record comes first, or nil when all sources have ended.
func firstOf(order Order, heads []head) (first *head, err error) {
	for i := range heads {
		h := &heads[i]
		if !h.read {
			if h.record, h.ok, err = h.source.Next(); err != nil {
				return nil, err
			}
			h.read = true
		}
		if h.ok && (first == nil || order.Compare(h.record, first.record) < 0) {
			first = h
		}
	}
	return first, nil
}
