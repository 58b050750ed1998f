package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Watch begins to watch. The caller closes the watcher. Errors are store.ErrNoFeed, also if the mode is Off,
// ErrTooManyWatches, and those of the store.
func (h *Hub) Watch(ctx context.Context, namespace string, q Query) (*Watcher, error) {
	if h.o.Settings(namespace).Mode == Off {
		return nil, store.ErrNoFeed
	}
	w := &Watcher{
		hub: h, everyone: q.Everyone, wake: q.Wake, cost: 1, reserved: q.Reserved, owners: set{},
	}
	var more bool
	w.positions, w.scan.position, more = splitScan(q.After)
	w.needsReset = q.After != nil && len(w.positions) == 0
	if w.everyone {
		w.scan.more, w.scan.statuses, w.scan.noSnapshot = more, q.Statuses, q.NoSnapshot
	} else {
		w.users = store.Without(q.Users, nil)
		w.cost = len(w.users)
	}
	if err := w.charge(w.cost, w.cost); err != nil {
		return nil, err
	}
	var ended *follower
	tooMany := fmt.Errorf("%w: in too many namespaces", ErrTooManyWatches)
	if w.f, ended = h.follow(namespace); w.f == nil {
		_ = w.charge(0, -w.cost)
		return nil, tooMany
	}
	if ended != nil {
		ended.end(tooMany)
	}
	var err error
	if w.restarts, err = w.f.wait(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// follow returns the follower of a namespace, and counts a watcher of it. It also returns one that had to make room. It
// returns nil if too many namespaces are followed.
func (h *Hub) follow(namespace string) (f, ended *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f = h.followers[namespace]; f == nil {
		var room bool
		if ended, room = h.makeRoom(); !room {
			return nil, nil
		}
		f = newFollower(h, namespace)
		h.followers[namespace] = f
		h.recordSoon.Wake()
	}
	f.watchers++
	h.watchers++
	return f, ended
}

// makeRoom reports whether one more namespace can be followed. If necessary, it removes one without watchers, or else
// one that does not exist: anyone can make up names, so those must not take the room of the others.
func (h *Hub) makeRoom() (ended *follower, room bool) {
	if len(h.followers) < h.bounds.followed {
		return nil, true
	}
	for _, f := range h.followers {
		if f.watchers == 0 {
			ended = f
			break
		}
		if ended == nil && f.isMissing() {
			ended = f
		}
	}
	if ended != nil {
		h.remove(ended)
	}
	return ended, ended != nil
}

// wait waits until the follower has begun, and returns how often it has forgotten entries.
func (f *follower) wait(ctx context.Context) (restarts int, err error) {
	select {
	case <-f.ready:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.restarts, f.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-f.hub.ended:
		return 0, store.ErrClosed
	}
}

// Watcher watches some users of a namespace, or everyone. One goroutine uses it at a time.
type Watcher struct {
	hub      *Hub
	f        *follower
	users    []string
	everyone bool
	cost     int         // against MaxWatches
	wake     func()      // see [Query.Wake]
	delays   atomic.Bool // Next is to be called after a time in any case
	closed   bool
	reserved bool
	isPage   bool // of a snapshot: it begins where the store is, also without users

	scan      scan          // of everyone, for a snapshot
	started   bool          // there was a batch, or that there is none: a reset waits for its turn
	delayed   bool          // notBefore is when to reset
	notBefore time.Duration // when Next continues

	// The rest is guarded by the follower's lock.

	positions  []store.Position // up to which everything was sent; nil before the first batch
	attached   bool             // the positions are in memory
	needsReset bool             // changes after the positions are unknown
	upTo       []int64          // while attached: for each shard, the entry at the position
	watches    []*watch         // while attached, of each user
	dirty      []*watch         // those with something unsent
	owners     set              // users on whose contacts it depends
	changed    set              // those of them whose contacts changed
	restarts   int              // of the follower, when changed was complete
}

// watch is a user of a watcher that is attached.
type watch struct {
	w      *Watcher
	user   *user
	unsent *unsent // nil if there is nothing
	index  int32   // in the user's watches
}

// unsent is what a watcher was not sent about a user.
type unsent struct {
	first  int64 // the first entry
	was    view  // before that entry, as the watcher was sent
	forced bool  // the user was forgotten, so an update is due in any case
}

// begin returns a snapshot.
func (w *Watcher) begin(ctx context.Context, reset bool) (Batch, error) {
	b := Batch{Snapshot: !reset, Reset: reset}
	reads := len(w.users) > 0 || w.isPage
	if reads {
		s, err := w.snapshot(ctx, w.users)
		if err != nil {
			return Batch{}, err
		}
		b.AsOf, b.Positions, b.Users = s.Watermark, s.Positions, make([]Update, len(w.users))
		for k, user := range w.users {
			b.Users[k] = Update{User: user, Published: s.Users[k]}
		}
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.f.err != nil {
		return Batch{}, w.f.err
	}
	w.detach()
	if reset || w.restarts != w.f.restarts {
		w.noticeAll()
	}
	if !reads {
		b.AsOf, b.Positions = w.f.asOf, w.f.m.positions
	}
	w.positions, w.needsReset = b.Positions, false
	if !reads {
		w.attach(b.Positions)
	}
	if w.everyone {
		w.scan.position, w.scan.more = "", !w.scan.noSnapshot && !w.f.missing()
	}
	if reset {
		w.hub.resets.Add(1)
	}
	return b, nil
}

// snapshot reads what is published of users. In a namespace that does not exist, all are grey.
func (w *Watcher) snapshot(ctx context.Context, users []string) (s store.Snapshot, err error) {
	exists := true
	err = w.hub.withReadSlot(ctx, func() error {
		if !w.f.isMissing() {
			s, err = w.hub.o.Store.SnapshotChanges(ctx, w.f.namespace, users)
			if !errors.Is(err, store.ErrNotRecorded) {
				return err
			}
		}
		if exists, err = w.f.recordChanges(ctx); exists { // it may have begun a moment ago
			s, err = w.hub.o.Store.SnapshotChanges(ctx, w.f.namespace, users)
		}
		return err
	})
	if err == nil && !exists {
		w.f.mu.Lock()
		defer w.f.mu.Unlock()
		s = store.Snapshot{
			Users:     slices.Repeat([]store.Published{{Status: lastseen.Grey}}, len(users)),
			Positions: nowhere(), Watermark: w.f.asOf,
		}
	}
	return s, err
}

// withReadSlot calls read when not too many watchers read at the same time.
func (h *Hub) withReadSlot(ctx context.Context, read func() error) error {
	select {
	case h.readSlots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ended:
		return store.ErrClosed
	}
	defer func() { <-h.readSlots }()
	return read()
}

// Tick returns a batch without users, whose AsOf is the time up to which the watcher was sent everything. It returns
// false while that is unknown: Next has more changes to return, or the feed was not read lately, since the store does
// not respond or no server moves the watermark.
func (w *Watcher) Tick() (Batch, bool) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := w.unread() || len(w.changed) > 0 || w.scan.more
	if f.err != nil || !w.attached || pending || !f.upToDate(w.hub.monotonic()) {
		return Batch{}, false
	}
	w.move(f.m.last())
	return Batch{AsOf: f.asOf, Positions: w.positions}, true
}

// Close ends the watcher.
func (w *Watcher) Close() {
	if w.closed {
		return
	}
	w.closed = true
	_ = w.charge(0, -w.cost)
	w.detachAll()
	w.hub.mu.Lock()
	w.hub.watchers--
	w.f.watchers--
	w.f.idleSince = w.hub.monotonic()
	w.hub.mu.Unlock()
	if w.f.isMissing() {
		w.hub.endIdle(w.f, 0)
	}
}
