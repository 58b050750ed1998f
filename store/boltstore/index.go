package boltstore

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// index is everything known, in memory: a map for lookups and a tree for order, a namespace. It
// knows nothing of files, and does no locking.
type index struct {
	namespaces btree.Map[string, *namespace]
}

// namespace holds the users of one namespace; the map and the tree hold the same ones.
type namespace struct {
	users map[string]score
	order *btree.BTreeG[entry]
}

// score is a known state as one number that orders it: the time of someone present, and that time
// mirrored at zero for someone who left.
type score int64

func scoreOf(s lastseen.State) score {
	if s.Left {
		return score(-s.At)
	}
	return score(s.At)
}

func (c score) state() lastseen.State {
	if c < 0 {
		return lastseen.State{At: lastseen.Instant(-c), Left: true}
	}
	return lastseen.State{At: lastseen.Instant(c)}
}

// entry is a user in the tree, which is ordered by score and then by ID, bytewise. Going down it
// among people present, and up it among people who left, is newest first.
type entry struct {
	score score
	user  string
}

func (e entry) before(other entry) bool {
	if e.score != other.score {
		return e.score < other.score
	}
	return e.user < other.user
}

// newNamespace makes a namespace out of its users, faster than setting them one by one.
func newNamespace(users map[string]score) *namespace {
	entries := make([]entry, 0, len(users))
	for user, c := range users {
		entries = append(entries, entry{c, user})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.before(b) {
			return -1
		}
		return +1
	})
	n := &namespace{users: users, order: btree.NewBTreeGOptions(entry.before, btree.Options{NoLocks: true})}
	for _, e := range entries {
		n.order.Load(e)
	}
	return n
}

// get returns a user's state, zero if unknown.
func (x *index) get(namespace, user string) lastseen.State {
	n, ok := x.namespaces.Get(namespace)
	if !ok {
		return lastseen.State{}
	}
	return n.users[user].state()
}

// set stores a user's state; the zero state removes the user. The namespace exists from then on.
func (x *index) set(name, user string, s lastseen.State) {
	n := x.add(name)
	if old, known := n.users[user]; known {
		removed, _ := n.order.Delete(entry{old, user})
		user = removed.user // the copy of the ID that is already held
	} else {
		user = strings.Clone(user) // what came in may be part of a larger buffer
	}
	if !s.Known() {
		delete(n.users, user)
		return
	}
	n.users[user] = scoreOf(s)
	n.order.Set(entry{scoreOf(s), user})
}

// add returns a namespace, which exists from then on.
func (x *index) add(name string) *namespace {
	n, ok := x.namespaces.Get(name)
	if !ok {
		n = newNamespace(map[string]score{})
		x.namespaces.Set(strings.Clone(name), n)
	}
	return n
}

// drop removes a namespace and everyone in it.
func (x *index) drop(namespace string) { x.namespaces.Delete(namespace) }

// list returns the records that a query asks for.
func (x *index) list(namespace string, q store.ListQuery) ([]store.Record, error) {
	n, ok := x.namespaces.Get(namespace)
	if !ok {
		return nil, nil
	}
	var sources []store.Source
	for _, r := range q.Ranges {
		if rest, tied, ok := q.Resume(r); ok {
			sources = append(sources, n.cursor(q, rest, tied))
		}
	}
	return store.Merge(q.Order, q.Limit, sources...)
}

// bounds returns the lowest and the highest score of a range, both included.
func bounds(r lastseen.Range) (low, high score) {
	if r.Left {
		return score(-r.To), score(-r.From)
	}
	return score(r.From), score(r.To)
}

// cursor walks one range of the tree, up or down; it implements [store.Source].
type cursor struct {
	iter      btree.IterG[entry]
	low, high score
	up        bool
	more      bool // the iterator stands at an entry
}

// cursor returns one that stands at the first entry of a range; tied as [store.ListQuery.Resume]
// defines it.
func (n *namespace) cursor(q store.ListQuery, rest lastseen.Range, tied bool) *cursor {
	c := &cursor{iter: n.order.Iter(), up: (q.Order == store.Newest) == rest.Left}
	c.low, c.high = bounds(rest)
	switch {
	case c.up && tied:
		c.more = c.iter.Seek(entry{c.low, q.After.User + "\x00"}) // the ID next to the place's
	case c.up:
		c.more = c.iter.Seek(entry{c.low, ""})
	case tied:
		c.seekBelow(entry{c.high, q.After.User})
	default:
		c.seekBelow(entry{c.high + 1, ""})
	}
	return c
}

// seekBelow moves to the last entry before the given one.
func (c *cursor) seekBelow(e entry) {
	if c.iter.Seek(e) {
		c.more = c.iter.Prev()
	} else {
		c.more = c.iter.Last()
	}
}

// Next implements [store.Source].
func (c *cursor) Next() (store.Record, bool, error) {
	if !c.more {
		return store.Record{}, false, nil
	}
	e := c.iter.Item()
	if e.score < c.low || e.score > c.high {
		return store.Record{}, false, nil
	}
	if c.up {
		c.more = c.iter.Next()
	} else {
		c.more = c.iter.Prev()
	}
	return store.Record{User: e.user, State: e.score.state()}, true, nil
}

// count returns how many users are in a range.
func (x *index) count(namespace string, r lastseen.Range) int64 {
	n, ok := x.namespaces.Get(namespace)
	if !ok {
		return 0
	}
	low, high := bounds(r)
	return int64(n.rank(high+1) - n.rank(low))
}

// rank returns how many entries have a lower score.
func (n *namespace) rank(c score) int {
	low, high := 0, n.order.Len()
	for low < high {
		middle := int(uint(low+high) >> 1)
		if e, _ := n.order.GetAt(middle); e.score < c {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// newest returns the newest time in a namespace; 0 if nobody is in it.
func (n *namespace) newest() lastseen.Instant {
	first, _ := n.order.Min() // whoever left last, if anyone did
	last, _ := n.order.Max()
	return max(first.score.state().At, last.score.state().At)
}

// before returns at most limit users last seen before the cutoff.
func (x *index) before(namespace string, cutoff lastseen.Instant, limit int) []string {
	n, ok := x.namespaces.Get(namespace)
	if !ok {
		return nil
	}
	var users []string
	n.order.Ascend(entry{score: score(1 - cutoff)}, func(e entry) bool {
		if e.score >= score(cutoff) || len(users) == limit {
			return false
		}
		users = append(users, e.user)
		return true
	})
	return users
}
