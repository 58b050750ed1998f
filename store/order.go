package store

import (
	"cmp"

	"github.com/lastseen/lastseen"
)

// Order is the order of a list.
type Order int

const (
	// Newest orders by time, newest first. Within one millisecond, users who left come first, by ID ascending, then
	// users present, by ID descending; IDs compare bytewise.
	Newest Order = iota
	// Oldest is the exact reverse of Newest.
	Oldest
)

// Compare returns -1, 0 or +1 as a comes before, at or after b in this order.
func (o Order) Compare(a, b Record) int {
	newest := b.Compare(a.State)
	switch {
	case newest != 0:
	case a.Left:
		newest = cmp.Compare(a.User, b.User)
	default:
		newest = cmp.Compare(b.User, a.User)
	}
	if o == Oldest {
		return -newest
	}
	return newest
}

// Resume narrows a range of the query to the part that can hold users strictly after the query's place. It returns
// false if that part is empty. tied means that the range ends in the place's own millisecond and half, where the caller
// skips users up to the place by ID.
func (q ListQuery) Resume(r lastseen.Range) (rest lastseen.Range, tied, ok bool) {
	if q.After == nil {
		return r, false, true
	}
	at, same := q.After.At, r.Left == q.After.Left
	// Within the place's millisecond the other half is listed wholly before or wholly after it.
	passed := !same && q.After.Left == (q.Order == Oldest)
	if q.Order == Newest {
		if passed {
			at--
		}
		r.To = min(r.To, at)
		return r, same && r.To == at, r.From <= r.To
	}
	if passed {
		at++
	}
	r.From = max(r.From, at)
	return r, same && r.From == at, r.From <= r.To
}
