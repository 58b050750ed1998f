package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
)

// Watch begins to watch. The caller closes the watcher. Errors are store.ErrNoFeed, also if the mode is Off,
// ErrTooManyWatches, and those of the store.
func (h *Hub) Watch(ctx context.Context, namespace string, q Query) (*Watcher, error) {
	if h.o.Settings(namespace).Mode == Off {
		return nil, store.ErrNoFeed
	}
	w := &Watcher{hub: h, everyone: q.Everyone, places: slices.Clone(q.After), wake: make(chan struct{}, 1), cost: 1}
	w.lost = q.After != nil && len(q.After) == 0
	if !q.Everyone {
		w.users = unique(q.Users)
		w.cost = len(w.users)
	}
	if w.cost > store.MaxWatched {
		return nil, fmt.Errorf("%w: %d at once, and %d are allowed", ErrTooManyWatches, w.cost, store.MaxWatched)
	}
	if h.watches.Add(int64(w.cost)) > int64(h.o.MaxWatches) {
		h.watches.Add(-int64(w.cost))
		return nil, ErrTooManyWatches
	}
	if w.f = h.follow(namespace); w.f == nil {
		h.watches.Add(-int64(w.cost))
		return nil, fmt.Errorf("%w: in too many namespaces", ErrTooManyWatches)
	}
	if err := w.f.wait(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func unique(users []string) []string {
	seen := make(map[string]struct{}, len(users))
	once := make([]string, 0, len(users))
	for _, u := range users {
		if _, ok := seen[u]; !ok {
			seen[u] = struct{}{}
			once = append(once, u)
		}
	}
	return once
}

// follow returns the follower of a namespace, and counts a watcher of it. It returns nil if too many namespaces are
// followed, or began to be lately.
func (h *Hub) follow(namespace string) *follower {
	f, idle := h.join(namespace)
	if idle != nil {
		idle.end(store.ErrNotRecorded) // nobody gets that
	}
	return f
}

// join is follow. It also returns a follower that had to make room.
func (h *Hub) join(namespace string) (f, idle *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f = h.followers[namespace]; f == nil {
		var room bool
		if idle, room = h.makeRoom(); !room || !h.begins.Allow() {
			return nil, idle
		}
		f = newFollower(h, namespace)
		h.followers[namespace] = f
		wake(h.recordSoon)
	}
	f.watchers++
	h.watchers++
	return f, idle
}

// makeRoom reports whether one more namespace can be followed. If need be, it removes one that nobody watches.
func (h *Hub) makeRoom() (idle *follower, room bool) {
	if len(h.followers) < h.bounds.followed {
		return nil, true
	}
	for _, f := range h.followers {
		if f.watchers == 0 {
			h.remove(f)
			return f, true
		}
	}
	return nil, false
}

// wait waits until the follower has begun.
func (f *follower) wait(ctx context.Context) error {
	select {
	case <-f.ready:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	case <-f.hub.ended:
		return store.ErrClosed
	}
}

// Watcher watches some users of a namespace, or everyone. One goroutine uses it at a time.
type Watcher struct {
	hub      *Hub
	f        *follower
	users    []string
	everyone bool
	cost     int // against MaxWatches
	wake     chan struct{}
	closed   bool

	told      bool          // there was a batch, or that there is none: a reset waits for its turn
	delayed   bool          // notBefore is when to reset
	notBefore time.Duration // when Next looks again

	// The rest is guarded by the follower's lock.

	places   []store.Place // up to which everything was told; nil before the first batch
	attached bool          // the places are in memory
	lost     bool          // what follows the places is not known
	upTo     []int64       // while attached: for each shard, the entry at the place
	watches  []watch       // while attached, of each user
	dirty    []*watch
}

// watch is a user of a watcher that is attached.
type watch struct {
	w      *Watcher
	user   *user
	first  int64 // if dirty: the first entry that the watcher was not told
	index  int32 // in the user's watches
	was    shown // if dirty: before that entry, as the watcher was told
	dirty  bool
	forced bool // if dirty: the user was forgotten, so tell the watcher whatever is shown
}

// Next returns the next batch, of at most limit users unless it is a snapshot or a reset. It waits until there is one
// or the context ends. The first change is returned at once; after that, at most four batches a second are, so that
// changes of one user merge, unless the batch before had More. A reset of a watcher that waits comes after up to ten
// seconds, at random, so that not all watchers ask at once. After the first batch, errors of the store are no errors
// of Next: it tries again.
func (w *Watcher) Next(ctx context.Context, limit int) (Batch, error) {
	for {
		if err := w.pause(ctx); err != nil {
			return Batch{}, err
		}
		b, ok, err := w.step(ctx, limit)
		switch {
		case err != nil && w.retries(ctx, err):
			w.delayed, w.notBefore = true, w.hub.monotonic()+resetRetry+w.random(resetRetry)
		case err != nil:
			return Batch{}, err
		case ok:
			return b, nil
		case b.Places != nil:
			if err := w.wait(ctx, time.Hour, w.wake); err != nil {
				return Batch{}, err
			}
		}
	}
}

// Poll is Next without waiting: if nothing changed, the batch has no users. It may have to read from the store.
func (w *Watcher) Poll(ctx context.Context, limit int) (Batch, error) {
	for {
		b, ok, err := w.step(ctx, limit)
		if ok || err != nil || b.Places != nil {
			return b, err
		}
	}
}

// pause waits until Next may look again. A watcher whose feed began again gets its turn at random.
func (w *Watcher) pause(ctx context.Context) error {
	for ctx.Err() == nil {
		if w.told && !w.delayed && w.isLost() {
			w.delayed, w.notBefore = true, w.hub.monotonic()+w.random(resetSpread)
		}
		rest := w.notBefore - w.hub.monotonic()
		if rest <= 0 {
			return nil
		}
		if err := w.wait(ctx, rest, nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (w *Watcher) isLost() bool {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.lost && w.f.err == nil
}

func (w *Watcher) random(most time.Duration) time.Duration {
	return time.Duration(w.hub.o.Random() * float64(most))
}

// retries reports whether a watcher that waits lives through the error.
func (w *Watcher) retries(ctx context.Context, err error) bool {
	return w.told && ctx.Err() == nil && !errors.Is(err, store.ErrNoFeed) && !errors.Is(err, store.ErrClosed)
}

// wait returns after a time, or when the channel is ready. Otherwise it returns why the watcher ends.
func (w *Watcher) wait(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.hub.ended:
		return store.ErrClosed
	}
	return nil
}

// step returns what there is for the watcher now, and whether that is anything. If not, the batch has the places at
// which it waits, or none if there is more to do at once.
func (w *Watcher) step(ctx context.Context, limit int) (b Batch, ok bool, err error) {
	limit = max(limit, 1)
	w.f.mu.Lock()
	err, places, attached, lost := w.f.err, w.places, w.attached, w.lost
	w.f.mu.Unlock()
	switch {
	case err != nil:
		return Batch{}, false, err
	case lost:
		b, err = w.begin(ctx, true)
		ok = err == nil
	case places == nil:
		b, err = w.begin(ctx, false)
		ok = err == nil
	case !attached:
		b, ok, err = w.catchUp(ctx, limit)
	}
	if !ok && err == nil {
		b, ok, err = w.fromMemory(ctx, limit)
	}
	w.told = w.told || ok || b.Places != nil
	if ok {
		w.delayed, w.notBefore = false, 0
		if !b.More && !b.Snapshot && !b.Reset {
			w.notBefore = w.hub.monotonic() + batchEvery
		}
	}
	return b, ok, err
}

// begin returns a snapshot.
func (w *Watcher) begin(ctx context.Context, reset bool) (Batch, error) {
	b := Batch{Snapshot: !reset, Reset: reset}
	if len(w.users) > 0 {
		s, err := w.snapshot(ctx)
		if err != nil {
			return Batch{}, err
		}
		b.AsOf, b.Places, b.Users = s.Watermark, s.Places, make([]Update, len(w.users))
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
	if len(w.users) == 0 {
		b.AsOf, b.Places = w.f.asOf, w.f.m.places
	}
	w.places, w.lost = b.Places, false
	if len(w.users) == 0 {
		w.attach(b.Places)
	}
	if reset {
		w.hub.o.Observe.Reset()
	}
	return b, nil
}

func (w *Watcher) snapshot(ctx context.Context) (s store.Snapshot, err error) {
	err = w.hub.own(ctx, func() error {
		s, err = w.hub.o.Store.SnapshotChanges(ctx, w.f.namespace, w.users)
		if !errors.Is(err, store.ErrNotRecorded) {
			return err
		}
		err = w.hub.o.Store.RecordChanges(ctx, w.f.namespace, w.hub.thresholds(w.f.namespace))
		if err == nil {
			s, err = w.hub.o.Store.SnapshotChanges(ctx, w.f.namespace, w.users)
		}
		return err
	})
	return s, err
}

// own calls read when not too many watchers read at the same time.
func (h *Hub) own(ctx context.Context, read func() error) error {
	select {
	case h.ownReads <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ended:
		return store.ErrClosed
	}
	defer func() { <-h.ownReads }()
	return read()
}

// Tick returns a batch without users that says how far the watcher has been told everything. It returns false while
// that is unknown: changes are there that Next has not returned, or the feed was not read lately, since the store does
// not respond or nobody moves the watermark.
func (w *Watcher) Tick() (Batch, bool) {
	f := w.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || !w.attached || w.unread() || !f.fresh(w.hub.monotonic()) {
		return Batch{}, false
	}
	w.move(f.m.last())
	return Batch{AsOf: f.asOf, Places: w.places}, true
}

// Close ends the watcher.
func (w *Watcher) Close() {
	if w.closed {
		return
	}
	w.closed = true
	w.hub.watches.Add(-int64(w.cost))
	w.f.mu.Lock()
	w.detach()
	w.f.mu.Unlock()
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.hub.watchers--
	w.f.watchers--
	w.f.idleSince = w.hub.monotonic()
}
