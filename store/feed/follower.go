package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// follower follows the feed of one namespace.
type follower struct {
	hub       *Hub
	namespace string
	ready     chan struct{} // closed when the follower begins, or when it cannot

	watchers  int           // guarded by the hub's lock
	idleSince time.Duration // guarded by the hub's lock: when the last watcher left

	mu       sync.Mutex
	m        memory
	begun    bool
	err      error // the follower ended
	attached map[*Watcher]struct{}
	everyone map[*Watcher]struct{}            // those of the attached that watch everyone
	owners   map[string]map[*Watcher]struct{} // the watchers that depend on the contacts of a user
	restarts int                              // how often entries were forgotten

	asOf      lastseen.Instant // the feed is in memory up to here
	movedAt   time.Duration    // when asOf last grew
	readAt    time.Duration    // when a read last succeeded
	changedAt time.Duration    // when there were changes last
	failing   bool             // the last read failed
	due       time.Duration    // when to read next
	settled   time.Duration    // from when on a feed that begins again may have lost data

	recordAt    time.Duration // when to record next
	recordBegan time.Duration // when that was last tried
	recording   bool

	waiting []chan struct{} // closed when a read that begins from now on has reached the end
	reading []chan struct{} // the same for the read in progress
}

func newFollower(h *Hub, namespace string) *follower {
	return &follower{
		hub: h, namespace: namespace, ready: make(chan struct{}),
		attached: map[*Watcher]struct{}{}, everyone: map[*Watcher]struct{}{},
		owners: map[string]map[*Watcher]struct{}{},
	}
}

// beginRecord reports whether it is time to record, and to call record.
func (f *follower) beginRecord() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.hub.monotonic()
	if f.err != nil || f.recording || f.begun && now < f.recordAt {
		return false
	}
	f.recording, f.recordBegan = true, now
	return true
}

// record has the store record the changes for a while. The first time, the follower begins.
func (f *follower) record(ctx context.Context) {
	exists, err := f.recordChanges(ctx)
	if ctx.Err() != nil {
		return
	}
	f.hub.warn(f.namespace, err)
	f.mu.Lock()
	f.recording = false
	switch now := f.hub.monotonic(); {
	case err != nil:
		f.recordAt = now + recordRetry
	case exists:
		f.recordAt = now + recordEvery
	default:
		f.recordAt = never
	}
	begun := f.begun
	f.mu.Unlock()
	if err != nil && (!begun || errors.Is(err, store.ErrNoFeed)) {
		f.end(err)
	}
}

// recordChanges has the store record the changes, begins the follower, and reports whether the namespace exists. It
// marks one that does not as missing.
func (f *follower) recordChanges(ctx context.Context) (exists bool, err error) {
	at, err := f.hub.o.Store.Now(ctx) // before the call: nothing was written until then
	if err == nil {
		err = f.hub.o.Store.RecordChanges(ctx, f.namespace, f.hub.o.Settings(f.namespace).Thresholds)
	}
	switch {
	case errors.Is(err, store.ErrNotRecorded):
		f.markMissing(at)
		return false, nil
	case err != nil:
		return false, err
	case ctx.Err() == nil:
		f.hub.o.Recorded(f.namespace)
	}
	err = f.begin(ctx)
	return err == nil, err
}

// begin begins the follower at the end of the feed, unless it has begun.
func (f *follower) begin(ctx context.Context) error {
	f.mu.Lock()
	reads := f.active()
	f.mu.Unlock()
	if reads {
		return nil
	}
	r := &store.ChangesRead{Namespace: f.namespace, Limit: 1}
	f.hub.o.Store.ReadChanges(ctx, []*store.ChangesRead{r})
	if r.Err != nil {
		return r.Err
	}
	if len(r.Positions) == 0 {
		return fmt.Errorf("%w: the feed has no positions", store.ErrUnavailable)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && !f.active() {
		f.beginAt(r.Positions, r.Watermark)
	}
	return f.err
}

// beginAt begins the follower at positions, for the first time or again. The caller holds the lock.
func (f *follower) beginAt(positions []store.Position, asOf lastseen.Instant) {
	f.forgetEntries(positions)
	f.closeAll(&f.waiting)
	if !f.begun {
		close(f.ready)
	}
	now := f.hub.monotonic()
	f.begun, f.asOf, f.movedAt, f.readAt, f.changedAt, f.due = true, asOf, now, now, now, now
	f.settled = now + settlesWithin
	f.hub.readSoon.Wake()
}

// end ends the follower and its watchers with an error.
func (f *follower) end(err error) {
	f.hub.mu.Lock()
	f.hub.remove(f)
	f.hub.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	f.err = err
	if !f.begun {
		close(f.ready)
	}
	f.forgetEntries(nil)
	f.closeAll(&f.waiting)
	f.closeAll(&f.reading)
}

// forgetEntries forgets all entries. The watchers get a reset or the error of the follower, unless they were sent
// nothing yet.
func (f *follower) forgetEntries(positions []store.Position) {
	f.hub.entries.Add(-int64(f.m.len()))
	f.m = newMemory(positions)
	for w := range f.attached {
		w.attached, w.needsReset, w.dirty = false, !slices.Equal(w.positions, nowhere()), nil
		w.watches = nil
		w.notifyNow()
	}
	clear(f.attached)
	clear(f.everyone)
	f.restarts++
}

// readDue returns when to read next; false before the follower begins, after it ended, and if there is nothing to read.
func (f *follower) readDue() (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.due, f.err == nil && f.active()
}

func (f *follower) beginRead() *store.ChangesRead {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading, f.waiting = append(f.reading, f.waiting...), nil
	return &store.ChangesRead{Namespace: f.namespace, After: f.m.positions, Limit: f.hub.bounds.page}
}

// endRead handles the result of a read.
func (f *follower) endRead(r *store.ChangesRead) {
	if errors.Is(r.Err, store.ErrNoFeed) {
		f.end(r.Err)
		return
	}
	if !errors.Is(r.Err, store.ErrNotRecorded) {
		f.hub.warn(f.namespace, r.Err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	if !slices.Equal(r.After, f.m.positions) { // the follower began again meanwhile
		f.closeAll(&f.reading)
		return
	}
	now := f.hub.monotonic()
	f.due, f.failing = now+readQuiet, r.Err != nil
	switch {
	case errors.Is(r.Err, store.ErrNotRecorded): // the feed is lost
		f.settled = now
		f.recordAt = min(f.recordAt, f.recordBegan+recordRetry)
		f.hub.recordSoon.Wake()
	case r.Err != nil:
	case r.Reset || len(r.Positions) != len(f.m.positions):
		f.forgetEntries(r.Positions)
		f.asOf, f.movedAt = r.Watermark, now
		if now >= f.settled {
			f.settled = now + settlesWithin
			f.hub.o.Restarted(f.namespace)
		}
	default:
		f.addEntries(r, now)
	}
	if r.More && r.Err == nil {
		f.due = now
		return
	}
	if r.Err == nil {
		f.readAt = now
	}
	f.closeAll(&f.reading)
	if len(f.waiting) > 0 {
		f.due = now
	}
}

// addEntries adds the entries of a read to the memory.
func (f *follower) addEntries(r *store.ChangesRead, now time.Duration) {
	for k := range r.Changes {
		c := &r.Changes[k]
		if c.Contacts {
			f.m.skip(c)
			f.contactsChanged(c.User)
			continue
		}
		n := f.m.add(c)
		f.markDirty(n)
		if f.m.flaps(n) {
			f.hub.flaps.Add(1)
		}
	}
	f.m.positions = r.Positions
	if len(r.Changes) > 0 {
		f.m.readMarks = append(f.m.readMarks, readMark{f.m.last(), now})
		f.changedAt = now
		for w := range f.everyone {
			w.notify()
		}
	}
	excess := f.hub.entries.Add(int64(len(r.Changes))) - int64(f.hub.bounds.allEntries)
	keep := min(f.hub.bounds.entries, f.m.len()-int(max(0, excess)))
	f.hub.entries.Add(-int64(f.m.evict(keep, now-keptTime)))
	if !r.More {
		if r.Watermark > f.asOf {
			f.movedAt = now
		}
		f.asOf = r.Watermark
	}
	if now-f.changedAt < quietAfter {
		f.due = now + readEvery
	}
}

// upToDate reports whether the memory is up to date.
func (f *follower) upToDate(now time.Duration) bool {
	return !f.failing && now-f.readAt < freshFor && now-f.movedAt < watermarkMove
}

// closeAll closes channels.
func (f *follower) closeAll(channels *[]chan struct{}) {
	for _, c := range *channels {
		close(c)
	}
	*channels = nil
}

// waitForRead waits until the follower has read everything that is in the feed now, or failed to.
func (f *follower) waitForRead(ctx context.Context) error {
	done := make(chan struct{})
	f.mu.Lock()
	if f.err != nil || f.missing() {
		defer f.mu.Unlock()
		return f.err
	}
	f.waiting = append(f.waiting, done)
	f.due = f.hub.monotonic()
	f.mu.Unlock()
	f.hub.readSoon.Wake()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-f.hub.ended:
		return store.ErrClosed
	}
}
