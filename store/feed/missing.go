package feed

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// A caller with the permission to read can watch namespaces that do not exist. The store records nothing about them,
// and the hub forgets them when the last watcher closes.

// nowhere returns the positions in the feed of a namespace that does not exist: nothing was sent. Stores have no such
// position.
func nowhere() []store.Position { return []store.Position{"-"} }

// isMissing reports whether the namespace does not exist, as far as is known.
func (f *follower) isMissing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missing()
}

// missing is isMissing for a caller that holds the lock.
func (f *follower) missing() bool { return f.begun && slices.Equal(f.m.positions, nowhere()) }

// active reports whether the follower has begun, in a namespace that exists. The caller holds the lock.
func (f *follower) active() bool { return f.begun && !f.missing() }

// markMissing records that the namespace did not exist at a time. Watchers that were sent its users get a reset.
func (f *follower) markMissing(at lastseen.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && !f.missing() {
		if f.begun { // the store may have lost it
			f.hub.o.Restarted(f.namespace)
		}
		f.beginAt(nowhere(), at)
	}
	now := f.hub.monotonic()
	f.asOf, f.movedAt, f.readAt, f.failing = at, now, now, false
}

// checkMissing asks the store, in one call, which of the missing namespaces exist now, to record their changes.
func (h *Hub) checkMissing(ctx context.Context, all []*follower) {
	var missing []*follower
	var names []string
	for _, f := range all {
		if f.isMissing() {
			missing, names = append(missing, f), append(names, f.namespace)
		}
	}
	if len(missing) == 0 {
		return
	}
	at, err := h.o.Store.Now(ctx) // before the check: nothing was written until then
	var exist []bool
	if err == nil {
		exist, err = h.o.Store.Exist(ctx, names)
	}
	if err != nil && ctx.Err() == nil {
		h.warn(names[0], err)
	}
	for k, f := range missing {
		switch {
		case err != nil:
		case exist[k]:
			f.mu.Lock()
			f.recordAt = h.monotonic()
			f.mu.Unlock()
		default:
			f.markMissing(at)
		}
	}
}

// created reports whether the namespace did not exist at the watcher's last batch, and does now. The caller holds the
// lock.
func (w *Watcher) created() bool { return !w.f.missing() && slices.Equal(w.positions, nowhere()) }

// beginCreated returns the users of a namespace that did not exist at the watcher's last batch, except those without a
// visible difference. A watcher of everyone gets a snapshot, also if it asked for none before.
func (w *Watcher) beginCreated(ctx context.Context) (Batch, bool, error) {
	b, err := w.begin(ctx, false)
	b.Snapshot = false
	b.Users = slices.DeleteFunc(b.Users, func(u Update) bool {
		return u.Same(store.Published{Status: lastseen.Grey})
	})
	w.scan.more = w.everyone
	return b, len(b.Users) > 0, err
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)
