package filestore

import (
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// index holds all data in memory: for each namespace a map for lookups and a tree for order. It does no locking.
type index struct {
	namespaces btree.Map[string, *namespace]
	unlisted   btree.Map[string, *peopleTable] // what was said in namespaces that do not exist
	hides      bool                            // a user has been hidden since Open
	live       int64                           // about how many bytes all data takes in a new data file
	users      int64                           // in all namespaces
	feeds      feeds
}

func namespaceBytes(name string) int64 { return int64(len(name)) + 2 }

// load adds what was read of a namespace from the data file.
func (x *index) load(name string, u *users) {
	switch {
	case !u.unlisted:
		x.put(name, newNamespace(u))
	case !u.people.empty():
		x.unlisted.Set(strings.Clone(name), u.people)
	default:
		return
	}
	x.live += u.people.size()
	x.hides = x.hides || u.people != nil && u.people.hidden.Len() > 0
}

// put adds a namespace that does not exist yet.
func (x *index) put(name string, n *namespace) {
	x.namespaces.Set(strings.Clone(name), n)
	x.live += namespaceBytes(name) + n.users.bytes
	x.users += int64(n.users.len())
	n.feed = x.feeds.byName[name]
}

// namespace holds the users of one namespace. The map and the tree hold the same users.
type namespace struct {
	users *users
	order *btree.BTreeG[entry]
	feed  *feed // nil if its changes are not recorded; it may have expired
}

// score is a known state as a number that orders it: the time of a user who is present, the negated time of a user who
// left.
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

// newNamespace returns a namespace of the given users. It is faster than setting them one by one.
func newNamespace(u *users) *namespace {
	entries := u.all()
	slices.SortFunc(entries, func(a, b entry) int {
		if u.before(a, b) {
			return -1
		}
		return +1
	})
	n := &namespace{users: u, order: btree.NewBTreeGOptions(u.before, btree.Options{NoLocks: true})}
	for _, e := range entries {
		n.order.Load(e)
	}
	return n
}

// get returns a user's state, zero if unknown.
func (x *index) get(namespace, user string) lastseen.State {
	if n, ok := x.namespaces.Get(namespace); ok {
		return n.get(user)
	}
	return lastseen.State{}
}

func (n *namespace) get(user string) lastseen.State {
	e, _ := n.users.get(user)
	return e.score.state()
}

// setIn stores a user's state; the zero state removes the user. It returns the state before.
func (x *index) setIn(n *namespace, user string, s lastseen.State) (old lastseen.State) {
	bytes, users := n.users.bytes, n.users.len()
	old = n.set(user, s)
	x.live += n.users.bytes - bytes
	x.users += int64(n.users.len() - users)
	return old
}

func (n *namespace) set(user string, s lastseen.State) lastseen.State {
	if !s.Known() {
		old, known := n.users.remove(user)
		if known {
			n.order.Delete(old)
			n.shrink()
		}
		return old.score.state()
	}
	now, old, known := n.users.set(user, scoreOf(s))
	if known {
		n.order.Delete(old)
	}
	n.order.Set(now)
	return old.score.state()
}

// shrink frees the memory of a namespace that was large, once it is empty.
func (n *namespace) shrink() {
	if n.users.len() == 0 && n.users.large() {
		feed, people, contacts, bytes := n.feed, n.users.people, n.users.contacts, n.users.bytes
		*n = *newNamespace(newUsers())
		n.feed, n.users.people, n.users.contacts, n.users.bytes = feed, people, contacts, bytes
	}
}

// devicesOf returns the devices of a user, and the meta of each record.
func (x *index) devicesOf(namespace, user string) (lastseen.Devices, []string) {
	if n, ok := x.namespaces.Get(namespace); ok {
		return n.users.devicesOf(user)
	}
	return lastseen.Devices{}, nil
}

// setDevices stores the devices of a user who is known; see users.setDevices.
func (x *index) setDevices(namespace, user string, d lastseen.Devices, meta map[string]string) {
	if n, ok := x.namespaces.Get(namespace); ok {
		bytes := n.users.bytes
		n.users.setDevices(user, d, meta)
		x.live += n.users.bytes - bytes
	}
}

// add returns a namespace, which it creates if necessary.
func (x *index) add(name string) *namespace {
	n, ok := x.namespaces.Get(name)
	if !ok {
		n = newNamespace(newUsers())
		n.users.people, _ = x.unlisted.Delete(name)
		x.put(name, n)
	}
	return n
}

// drop removes a namespace and what was said in it, and ends its feed.
func (x *index) drop(name string) {
	x.unlist(name)
	if p, ok := x.unlisted.Delete(name); ok {
		x.live -= p.bytes
	}
}

// unlist removes a namespace, and ends its feed. What was said in it stays.
func (x *index) unlist(name string) {
	x.endFeed(name)
	n, ok := x.namespaces.Delete(name)
	if !ok {
		return
	}
	x.live -= namespaceBytes(name) + n.users.bytes
	x.users -= int64(n.users.len())
	if people := n.users.unlist().people; !people.empty() {
		x.unlisted.Set(strings.Clone(name), people)
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

func bounds(r lastseen.Range) (low, high score) {
	if r.Left {
		return score(-r.To), score(-r.From)
	}
	return score(r.From), score(r.To)
}

// cursor walks one range of the tree in either direction. It implements [store.Source].
type cursor struct {
	users     *users
	iter      btree.IterG[entry]
	low, high score
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
func (c *cursor) seek(n *namespace, s score, user string) bool {
	if user == "" {
		return c.iter.Seek(entry{s, noName})
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
	return store.Record{User: c.users.name(e), State: e.score.state()}, true, nil
}

func (n *namespace) count(r lastseen.Range) int64 {
	low, high := bounds(r)
	return int64(n.rank(high+1, "") - n.rank(low, ""))
}

// rank returns how many entries have a lower score, or the same one and a lower ID.
func (n *namespace) rank(c score, user string) int {
	return sort.Search(n.order.Len(), func(i int) bool {
		e, _ := n.order.GetAt(i)
		return e.score > c || e.score == c && string(n.users.names.at(e.name)) >= user
	})
}

// newest returns the newest time in a namespace; 0 if it is empty.
func (n *namespace) newest() lastseen.Instant {
	first, _ := n.order.Min() // the last user who left, if any did
	last, _ := n.order.Max()
	return max(first.score.state().At, last.score.state().At)
}

// before returns at most limit users last seen before the cutoff.
func (n *namespace) before(cutoff lastseen.Instant, limit int) (stale []string) {
	n.order.Ascend(entry{score(1 - cutoff), noName}, func(e entry) bool {
		if e.score >= score(cutoff) || len(stale) == limit {
			return false
		}
		stale = append(stale, n.users.name(e))
		return true
	})
	return stale
}

type frozen struct {
	name    string
	names   *names
	order   *btree.BTreeG[entry] // nil for a namespace that does not exist
	devices *deviceTable         // nil for none
	people  frozenPeople

	contacts *contactTable // nil for none
}

// freeze returns all namespaces as they are now, to be read without a lock until the next freeze.
func (x *index) freeze() []frozen {
	all := make([]frozen, 0, x.namespaces.Len()+x.unlisted.Len())
	x.namespaces.Scan(func(name string, n *namespace) bool {
		all = append(all, frozen{
			name, n.users.names.freeze(), n.order.Copy(), n.users.devices.freeze(), n.users.people.freeze(),
			n.users.contacts.freeze(),
		})
		return true
	})
	x.unlisted.Scan(func(name string, p *peopleTable) bool {
		all = append(all, frozen{name: name, people: p.freeze()})
		return true
	})
	return all
}
