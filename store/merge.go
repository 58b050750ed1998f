package store

// Source yields records in one order. It is one half of one shard of a namespace.
type Source interface {
	// Next returns the next record, or false when there are no more.
	Next() (Record, bool, error)
}

// Merge returns the first limit records of all sources together, in the order that every source
// keeps by itself. When sources were read at different moments, a user who moved between two of them
// could stand in both; only the first of them in the order is returned.
func Merge(order Order, limit int, sources ...Source) ([]Record, error) {
	heads, err := firstHeads(sources)
	if err != nil {
		return nil, err
	}
	page := make([]Record, 0, min(limit, pageHint))
	listed := make(map[string]struct{}, cap(page))
	for len(heads) > 0 {
		first := 0
		for i := range heads {
			if order.Compare(heads[i].record, heads[first].record) < 0 {
				first = i
			}
		}
		record := heads[first].record
		if _, twice := listed[record.User]; !twice {
			listed[record.User] = struct{}{}
			page = append(page, record)
		}
		if len(page) == limit {
			break // reading on may cost a round trip, for nothing
		}
		if heads, err = advance(heads, first); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// pageHint is the page size that is made room for at once.
const pageHint = 64

// head is a source and the record it stands at.
type head struct {
	record Record
	source Source
}

func firstHeads(sources []Source) ([]head, error) {
	heads := make([]head, 0, len(sources))
	for _, source := range sources {
		record, ok, err := source.Next()
		if err != nil {
			return nil, err
		}
		if ok {
			heads = append(heads, head{record, source})
		}
	}
	return heads, nil
}

// advance moves the i-th head on, and drops it when its source has ended.
func advance(heads []head, i int) ([]head, error) {
	record, ok, err := heads[i].source.Next()
	if err != nil {
		return nil, err
	}
	if !ok {
		heads[i] = heads[len(heads)-1]
		return heads[:len(heads)-1], nil
	}
	heads[i].record = record
	return heads, nil
}
