package feed

import (
	"context"
	"math"
	"slices"

	"github.com/lastseen/lastseen/store"
)

// Change lists users to watch as well, and users to stop watching.
type Change struct {
	Add    []string         // duplicates count once; users who are watched already are added again
	Remove []string         // users who are not watched are ignored, and those in Add are watched
	After  []store.Position // users in Add continue from there; nil to begin with a snapshot of them
}

// Change changes which users are watched. If it adds any, the batch has them first, in the order of Add, and then all
// other users with changes to return: its positions fit all users, and a query after them continues. With After, the
// batch has only those of the added users who changed since, or all of them if that is not known. The batch has Reset
// if the other users get a reset: it has all of them then. It also has all of them if the watcher has not returned a
// batch yet.
//
// If Change only removes users, the batch has no users. Its positions are those up to which everything was returned; it
// has none before the first batch. No later batch has users who are not watched any more.
//
// Change reads from the store at once to add users, without the random delay of a reset. If it returns an error, the
// watcher watches the same users as before. Errors are ErrTooManyWatches, ErrTooManyUsers, ErrEveryone and those of the
// store.
func (w *Watcher) Change(ctx context.Context, c Change) (Batch, error) {
	if w.everyone {
		return Batch{}, ErrEveryone
	}
	add, removed := store.Without(c.Add, nil), setOf(c.Remove, c.Add)
	cost := len(w.users) + len(add)
	for _, user := range w.users {
		if removed.has(user) {
			cost--
		}
	}
	if err := w.charge(cost, cost-w.cost); err != nil {
		return Batch{}, err
	}
	b, err := w.change(ctx, add, removed, c.After)
	if err != nil {
		_ = w.charge(0, w.cost-cost)
		return Batch{}, err
	}
	w.cost = cost
	return b, nil
}

// Len returns the number of users who are watched; 1 for everyone.
func (w *Watcher) Len() int { return w.cost }

// charge counts more or fewer watches for a watcher that then has so many.
func (w *Watcher) charge(cost, more int) error {
	switch {
	case cost > store.MaxWatched:
		return ErrTooManyUsers
	case w.reserved:
		return nil
	}
	return w.hub.Reserve(more)
}

// Reserve counts more users as watched, or fewer, which is no error. It is for the callers of watchers
// that are Reserved.
func (h *Hub) Reserve(more int) error {
	if h.watches.Add(int64(more)) > int64(h.o.MaxWatches) && more > 0 {
		h.watches.Add(-int64(more))
		return ErrTooManyWatches
	}
	return nil
}

func (w *Watcher) change(ctx context.Context, add []string, removed set, after []store.Position) (Batch, error) {
	if len(add) == 0 {
		return w.remove(removed)
	}
	// A watcher of the added users alone begins, or continues, as any other. When both were sent everything, its users
	// are transferred.
	added := &Watcher{hub: w.hub, f: w.f, users: add, positions: slices.Clone(after)}
	added.needsReset = after != nil && len(after) == 0
	defer added.detachAll()
	var forAdded, forOthers mergedBatch
	b, err := w.drainBoth(ctx, added, &forAdded, &forOthers, func(b *Batch) {
		w.drop(removed)
		w.transferFrom(added)
		b.Users = append(forAdded.updates(nil), forOthers.updates(removed)...)
	})
	if err != nil {
		w.reset(&forOthers)
		return Batch{}, err
	}
	return b, nil
}

// drainBoth merges the changes for the watcher and for one with added users, up to the same position. It calls finish
// for the batch of both, with the follower's lock.
func (w *Watcher) drainBoth(
	ctx context.Context, added *Watcher, forAdded, forOthers *mergedBatch, finish func(*Batch),
) (b Batch, err error) {
	for done := false; !done && err == nil; {
		if err = added.drain(ctx, forAdded); err == nil {
			err = w.drain(ctx, forOthers)
		}
		if err == nil {
			done, err = w.merge(added, forAdded, forOthers, &b, finish)
		}
	}
	return b, err
}

// drain merges the changes for a watcher until it is attached. It returns errBehind for a watcher of everyone that is
// not attached: its first batches are pages.
func (w *Watcher) drain(ctx context.Context, g *mergedBatch) error {
	for {
		w.f.mu.Lock()
		attached := w.attached
		w.f.mu.Unlock()
		err := w.endErr(ctx)
		switch {
		case attached || err != nil:
			return err
		case w.everyone:
			return errBehind
		}
		b, ok, err := w.step(ctx, math.MaxInt)
		if err != nil {
			return err
		}
		if ok {
			g.add(b)
		}
	}
}

// merge merges the remaining changes for both watchers into one batch. It returns false if one of them has to be
// drained again.
func (w *Watcher) merge(
	added *Watcher, forAdded, forOthers *mergedBatch, b *Batch, finish func(*Batch),
) (done bool, err error) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || !w.attached || !added.attached {
		return false, f.err
	}
	if err = added.takeRest(forAdded); err == nil {
		err = w.takeRest(forOthers)
	}
	if err != nil {
		return false, err
	}
	snapshot := forOthers.snapshot && !forOthers.reset
	*b = Batch{Reset: forOthers.reset, Snapshot: snapshot, AsOf: f.asOf, Positions: w.positions}
	finish(b)
	return true, nil
}

// takeRest merges all changes in memory. The caller holds the follower's lock, as for drop and transferFrom.
func (w *Watcher) takeRest(g *mergedBatch) error {
	users, err := w.takeNext(math.MaxInt)
	g.add(Batch{Users: users})
	return err
}

// remove is change without users to add.
func (w *Watcher) remove(removed set) (Batch, error) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.f.err != nil {
		return Batch{}, w.f.err
	}
	w.drop(removed)
	return Batch{AsOf: w.f.asOf, Positions: w.positions}, nil
}

// drop removes users, and most of the memory that they used.
func (w *Watcher) drop(removed set) {
	kept := 0
	for k, user := range w.users {
		if removed.has(user) {
			if w.attached {
				w.f.m.unwatch(w.watches[k])
				w.watches[k].w = nil
			}
			continue
		}
		w.users[kept] = user
		if w.attached {
			w.watches[kept] = w.watches[k]
		}
		kept++
	}
	w.users = shorten(w.users, kept)
	if w.attached {
		w.watches = shorten(w.watches, kept)
		w.dirty = slices.DeleteFunc(w.dirty, func(t *watch) bool { return t.w == nil })
	}
}

// shorten returns the first elements of a list, in less memory if most of it is not used any longer.
func shorten[T any](list []T, kept int) []T {
	clear(list[kept:])
	if list = list[:kept]; cap(list) > 2*kept {
		return slices.Clone(list)
	}
	return list
}

// transferFrom moves the users of another watcher to this one. Both are attached and were sent everything.
func (w *Watcher) transferFrom(other *Watcher) {
	for _, t := range other.watches {
		moved := *t // those of the other are in one piece of memory
		moved.w = w
		t.user.watches[t.index] = &moved
		w.watches = append(w.watches, &moved)
	}
	w.users = append(w.users, other.users...)
	other.watches = nil
}

// reset has a watcher begin again if changes were merged that Change did not return.
func (w *Watcher) reset(g *mergedBatch) {
	if !g.any {
		return
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.detach()
	w.noticeAll()
	if w.needsReset = !g.snapshot; !w.needsReset {
		w.positions, w.started = nil, false
	}
	w.notifyNow()
}

func (w *Watcher) detachAll() {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.detach()
	for owner := range w.owners {
		w.ignore(owner)
	}
}

type set map[string]struct{}

func (s set) has(name string) bool {
	_, found := s[name]
	return found
}

func setOf(lists ...[]string) set {
	s := set{}
	for _, list := range lists {
		for _, name := range list {
			s[name] = struct{}{}
		}
	}
	return s
}

// mergedBatch merges several batches.
type mergedBatch struct {
	users           map[string]Update
	names           []string // in the order of their first updates
	any             bool     // there was a batch
	snapshot, reset bool
}

func (g *mergedBatch) add(b Batch) {
	if b.Snapshot || b.Reset || g.users == nil {
		g.users, g.names = map[string]Update{}, nil
	}
	g.snapshot, g.reset = g.snapshot || b.Snapshot, g.reset || b.Reset
	for _, u := range b.Users {
		if _, ok := g.users[u.User]; !ok {
			g.names = append(g.names, u.User)
		}
		g.users[u.User] = u
	}
	g.any = g.any || len(b.Users) > 0 || b.Snapshot || b.Reset
}

// updates returns the newest update of each user, except of some.
func (g *mergedBatch) updates(except set) (updates []Update) {
	for _, name := range g.names {
		if !except.has(name) {
			updates = append(updates, g.users[name])
		}
	}
	return updates
}
