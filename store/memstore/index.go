package memstore

import (
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// index holds all data in memory: for each namespace a map for lookups and a tree for order. It does no locking.
type index struct {
	namespaces btree.Map[string, *namespace]
	unlisted   btree.Map[string, *users] // the availability in namespaces that do not exist
	none       *users                    // of other namespaces
	hides      bool                      // a user has been hidden since the tables were made
	live       int64                     // about how many bytes all data takes in a new data file
	users      int64                     // in all namespaces
	feeds      feeds
}

func namespaceBytes(name string) int64 { return int64(len(name)) + 2 }

// namespace holds the users of one namespace. The map and the tree hold the same users.
type namespace struct {
	users *users
	order *btree.BTreeG[entry] // nil while it is loaded
	feed  *feed                // its changes feed, if it has one; it may have expired
}

func newNamespace(u *users) *namespace {
	n := &namespace{users: u}
	n.sort()
	return n
}

// sort makes the tree of all users. It is faster than setting them one by one.
func (n *namespace) sort() {
	entries := n.users.all()
	slices.SortFunc(entries, func(a, b entry) int {
		if n.users.before(a, b) {
			return -1
		}
		return +1
	})
	n.order = btree.NewBTreeGOptions(n.users.before, btree.Options{NoLocks: true})
	for _, e := range entries {
		n.order.Load(e)
	}
}

func (n *namespace) get(user string) lastseen.State {
	e, _ := n.users.get(user)
	return e.score.State()
}

// setIn stores a user's state; the zero state removes the user.
func (x *index) setIn(n *namespace, user string, s lastseen.State) {
	bytes, users := n.users.bytes, n.users.len()
	var now, old entry
	var known bool
	if s.Known() {
		now, old, known = n.users.set(user, packed.ScoreOf(s))
	} else {
		old, known = n.users.remove(user)
	}
	if known && n.order != nil {
		n.order.Delete(old)
	}
	if s.Known() && n.order != nil {
		n.order.Set(now)
	}
	x.live += n.users.bytes - bytes
	x.users += int64(n.users.len() - users)
	n.shrink()
}

// shrink frees the memory of a namespace that was large, once it is empty.
func (n *namespace) shrink() {
	if n.order != nil && n.users.len() == 0 && n.users.large() {
		feed, availability, contacts, bytes := n.feed, n.users.availability, n.users.contacts, n.users.bytes
		*n = *newNamespace(newUsers())
		n.feed, n.users.availability, n.users.contacts, n.users.bytes = feed, availability, contacts, bytes
	}
}

// usersOf returns the users of a namespace, or the availability in one that does not exist. It must not be changed.
func (x *index) usersOf(name string) *users {
	if n, ok := x.namespaces.Get(name); ok {
		return n.users
	}
	if u, ok := x.unlisted.Get(name); ok {
		return u
	}
	return x.none
}

// change makes a change to what usersOf returns, but to the states.
func (x *index) change(name string, change func(*users)) {
	u := x.usersOf(name)
	if u == x.none {
		return
	}
	bytes := u.bytes + u.availability.size()
	change(u)
	x.live += u.bytes + u.availability.size() - bytes
	if u.unlisted && u.availability.empty() {
		x.unlisted.Delete(name)
	}
}

// add returns a namespace, which it creates if necessary.
func (x *index) add(name string) *namespace {
	n, ok := x.namespaces.Get(name)
	if !ok {
		users, kept := x.unlisted.Delete(name)
		if !kept {
			users = newUsers()
		}
		users.unlisted = false
		n = newNamespace(users)
		x.namespaces.Set(strings.Clone(name), n)
		x.live += namespaceBytes(name)
	}
	return n
}

// drop removes a namespace, its feed, and the availability in it.
func (x *index) drop(name string) {
	x.unlist(name)
	if u, ok := x.unlisted.Delete(name); ok {
		x.live -= u.availability.size()
	}
}

// unlist removes a namespace, and its feed. The availability in it stays.
func (x *index) unlist(name string) {
	n, ok := x.namespaces.Delete(name)
	if !ok {
		return
	}
	x.live -= namespaceBytes(name) + n.users.bytes
	x.users -= int64(n.users.len())
	if u := n.users.unlist(); !u.availability.empty() {
		x.unlisted.Set(strings.Clone(name), u)
	}
}

func (n *namespace) list(q store.ListQuery) ([]store.Record, error) {
	var sources []store.Source
	for _, r := range q.Ranges {
		if rest, tied, ok := q.Resume(r); ok {
			sources = append(sources, n.cursor(q, rest, tied))
		}
	}
	return store.Merge(q.Order, q.Limit, sources...)
}

func bounds(r lastseen.Range) (low, high packed.Score) {
	if r.Left {
		return packed.Score(-r.To), packed.Score(-r.From)
	}
	return packed.Score(r.From), packed.Score(r.To)
}

// cursor walks one range of the tree in either direction. It implements [store.Source].
type cursor struct {
	users     *users
	iter      btree.IterG[entry]
	low, high packed.Score
	advance   func() bool // moves the iterator to the next entry, if there is one
	more      bool        // the iterator is at an entry
}

// cursor returns a cursor at the first entry of a range; tied is defined by [store.ListQuery.Resume].
func (n *namespace) cursor(q store.ListQuery, rest lastseen.Range, tied bool) *cursor {
	c := &cursor{users: n.users, iter: n.order.Iter()}
	c.low, c.high = bounds(rest)
	after, past := "", c.high+1
	if tied {
		after, past = q.After.User, c.high
	}
	if ascending := (q.Order == store.Newest) == rest.Left; ascending {
		c.advance = c.iter.Next
		c.more = c.seek(n, c.low, after)
		if e := c.iter.Item(); c.more && tied && e.score == c.low && n.users.name(e) == after {
			c.more = c.advance()
		}
		return c
	}
	c.advance = c.iter.Prev
	if c.seek(n, past, after) {
		c.more = c.advance()
	} else {
		c.more = c.iter.Last()
	}
	return c
}

// seek moves to the first entry at or after a score and, within it, an ID; false if there is none.
func (c *cursor) seek(n *namespace, s packed.Score, user string) bool {
	if user == "" {
		return c.iter.Seek(entry{s, packed.NoName})
	}
	first, known := n.users.get(user)
	if !known || first.score != s { // the user has moved since the last page
		first, known = n.order.GetAt(n.rank(s, user))
	}
	return known && c.iter.Seek(first)
}

// Next implements [store.Source].
func (c *cursor) Next() (store.Record, bool, error) {
	e := c.iter.Item()
	if !c.more || e.score < c.low || e.score > c.high {
		return store.Record{}, false, nil
	}
	c.more = c.advance()
	return store.Record{User: c.users.name(e), State: e.score.State()}, true, nil
}

func (n *namespace) count(r lastseen.Range) int64 {
	low, high := bounds(r)
	return int64(n.rank(high+1, "") - n.rank(low, ""))
}

// rank returns how many entries have a lower score, or the same one and a lower ID.
func (n *namespace) rank(c packed.Score, user string) int {
	return sort.Search(n.order.Len(), func(i int) bool {
		e, _ := n.order.GetAt(i)
		return e.score > c || e.score == c && string(n.users.names.At(e.name)) >= user
	})
}

// newest returns the newest time in a namespace; 0 if it is empty.
func (n *namespace) newest() lastseen.Instant {
	first, _ := n.order.Min() // the last user who left, if any did
	last, _ := n.order.Max()
	return max(first.score.State().At, last.score.State().At)
}

// before returns at most limit users last seen before the cutoff.
func (n *namespace) before(cutoff lastseen.Instant, limit int) (stale []string) {
	n.order.Ascend(entry{packed.Score(1 - cutoff), packed.NoName}, func(e entry) bool {
		if e.score >= packed.Score(cutoff) || len(stale) == limit {
			return false
		}
		stale = append(stale, n.users.name(e))
		return true
	})
	return stale
}
