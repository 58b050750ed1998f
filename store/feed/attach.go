package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/lastseen/lastseen/store"
)

// attach has the watcher continue from positions, if they are in memory. The caller holds the follower's lock, as for
// all methods here but fromMemory.
func (w *Watcher) attach(positions []store.Position) bool {
	upTo, ok := w.f.m.find(positions)
	if !ok {
		return false
	}
	w.attached, w.positions, w.upTo = true, positions, upTo
	w.f.attached[w] = struct{}{}
	if w.everyone {
		w.f.everyone[w] = struct{}{}
		return true
	}
	watches := make([]watch, len(w.users))
	w.watches = make([]*watch, len(w.users))
	m := &w.f.m
	for k, name := range w.users {
		u, t := m.user(name), &watches[k]
		w.watches[k] = t
		*t = watch{w: w, user: u, index: int32(len(u.watches))}
		u.watches = append(u.watches, t)
		if m.holds(u.newest) && w.mark(t, upTo[m.at(u.newest).shard]) {
			w.dirty = append(w.dirty, t)
		}
	}
	return true
}

// mark makes a user dirty if there are entries after the one with this number.
func (w *Watcher) mark(t *watch, after int64) bool {
	m := &w.f.m
	t.unsent = nil
	if oldest, _, forgotten := m.between(t.user, after, m.last()); oldest > 0 {
		t.unsent = &unsent{first: oldest, was: m.at(oldest).was, forced: forgotten}
	}
	return t.unsent != nil
}

// detach undoes attach.
func (w *Watcher) detach() {
	if !w.attached {
		return
	}
	for _, t := range w.watches {
		w.f.m.unwatch(t)
	}
	w.attached, w.watches, w.dirty = false, nil, nil
	delete(w.f.attached, w)
	delete(w.f.everyone, w)
}

// unwatch undoes the watch of one user.
func (m *memory) unwatch(t *watch) {
	watches := t.user.watches
	last := watches[len(watches)-1]
	watches[t.index], watches[len(watches)-1] = last, nil
	last.index = t.index
	t.user.watches = watches[:len(watches)-1]
	m.release(t.user)
}

// markDirty makes the user of a new entry dirty for its watchers.
func (f *follower) markDirty(n int64) {
	e := f.m.at(n)
	for _, t := range e.user.watches {
		if t.unsent == nil {
			t.unsent = &unsent{first: n, was: e.was}
			t.w.dirty = append(t.w.dirty, t)
			t.w.notify()
		}
		t.unsent.forced = t.unsent.forced || e.forgotten()
	}
}

// unread reports whether there are entries that the watcher may have to be sent.
func (w *Watcher) unread() bool {
	if w.everyone {
		return lowest(w.upTo) < w.f.m.last()
	}
	return len(w.dirty) > 0
}

// move moves the positions to an entry: the watcher was sent everything up to it.
func (w *Watcher) move(n int64) {
	w.positions = w.f.m.positionsAt(n, w.upTo, w.positions)
	for shard := range w.upTo {
		w.upTo[shard] = max(w.upTo[shard], n)
	}
}

var errBehind = errors.New("the watcher is too slow")

// fromMemory returns the changes in memory for the watcher, and whether there are any.
func (w *Watcher) fromMemory(ctx context.Context, limit int) (Batch, bool, error) {
	b, ok, err := w.take(limit)
	if errors.Is(err, errBehind) && w.everyone {
		w.hub.behind.Add(1)
		b, err = w.begin(ctx, true)
		return b, err == nil, err
	}
	return b, ok, err
}

func (w *Watcher) take(limit int) (b Batch, ok bool, err error) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || !w.attached {
		return Batch{}, false, f.err
	}
	for w.unread() && len(b.Users) == 0 && err == nil {
		b.Users, err = w.takeNext(limit)
	}
	if errors.Is(err, errBehind) && !w.everyone {
		w.detach() // to read entries from the store that are not in memory any more
		return Batch{}, false, nil
	}
	if err == nil && !w.unread() {
		w.move(f.m.last())
	}
	b.More, b.AsOf, b.Positions = w.unread(), f.asOf, w.positions
	return b, len(b.Users) > 0 || len(w.changed) > 0, err
}

// takeNext returns the next users who changed, up to a limit.
func (w *Watcher) takeNext(limit int) ([]Update, error) {
	if w.everyone {
		return w.takeEveryone(limit)
	}
	return w.takeUsers(limit)
}

// takeUsers returns the users who changed. If they are too many, it moves only to the entry at which one more user
// changed first, and returns the users as they were there, so that the positions fit.
func (w *Watcher) takeUsers(limit int) (users []Update, err error) {
	m := &w.f.m
	batch, rest, upTo := w.dirty, []*watch{}, m.last()
	if len(batch) > limit {
		slices.SortFunc(batch, func(a, b *watch) int { return cmp.Compare(a.unsent.first, b.unsent.first) })
		if batch[0].unsent.first < m.first {
			return nil, errBehind
		}
		upTo = batch[limit].unsent.first - 1
		batch, rest = batch[:limit], batch[limit:]
	}
	w.dirty = nil
	for _, t := range batch {
		now, known, forced := t.user.presence, true, t.unsent.forced
		if upTo < m.last() {
			var newest int64
			_, newest, forced = m.between(t.user, t.unsent.first-1, upTo)
			if known = newest > 0; known { // unless forgotten later
				now = m.at(newest).presence
			}
		}
		if known && (forced || !now.now.same(t.unsent.was)) {
			users = append(users, now.update(t.user.name))
		}
		if w.mark(t, upTo) {
			w.dirty = append(w.dirty, t)
		}
	}
	w.dirty = append(w.dirty, rest...)
	w.move(upTo)
	return users, nil
}

// takeEveryone returns the next users who changed.
func (w *Watcher) takeEveryone(limit int) ([]Update, error) {
	m := &w.f.m
	n := lowest(w.upTo) + 1
	if n < m.first {
		return nil, errBehind
	}
	c := collector{limit: limit, index: map[string]int{}, all: w.scan.lists()}
	for ; n <= m.last(); n++ {
		e := m.at(n)
		if n > w.upTo[e.shard] && !e.blank && !c.add(e.user.name, e.was, e.presence) {
			break
		}
	}
	w.move(n - 1)
	return c.updates(), nil
}

func lowest(numbers []int64) int64 {
	if len(numbers) == 0 {
		return 0
	}
	return slices.Min(numbers)
}

// collector merges the changes of users, in the order of their first changes.
type collector struct {
	limit int // of users
	index map[string]int
	users []collected
	all   bool // also who is as before: a list made meanwhile may lack them
}

type collected struct {
	presence
	name   string
	was    view
	forced bool
}

// add records a change. It returns false if there is no room for another user.
func (c *collector) add(name string, was view, t presence) bool {
	k, ok := c.index[name]
	if !ok {
		if len(c.users) == c.limit {
			return false
		}
		k = len(c.users)
		c.index[name] = k
		c.users = append(c.users, collected{name: name, was: was})
	}
	c.users[k].presence = t
	c.users[k].forced = c.users[k].forced || t.forgotten()
	return true
}

// updates returns the users whose views changed, or all.
func (c *collector) updates() (users []Update) {
	for k := range c.users {
		if u := &c.users[k]; c.all || u.forced || !u.now.same(u.was) {
			update := u.update(u.name)
			update.Was = u.was.published()
			users = append(users, update)
		}
	}
	return users
}
