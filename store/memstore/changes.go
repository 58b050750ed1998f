package memstore

import (
	"cmp"
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// feeds is what the changes feeds of namespaces share. Feeds are in memory only and guarded as the index is, so a
// restart ends them.
type feeds struct {
	clock     func() lastseen.Instant
	monotonic func() time.Duration // feeds expire by it: a clock that is set neither ends nor keeps them
	expiry    *time.Timer          // removes expired feeds; nil if there are no feeds
	begun     map[string]struct{}  // the namespaces that have a feed, or had one since the last look for expired ones
}

func newFeeds(clock func() lastseen.Instant, monotonic func() time.Duration) feeds {
	return feeds{clock: clock, monotonic: monotonic, begun: map[string]struct{}{}}
}

// expireEvery is the time between two looks for expired feeds, whose memory is freed then.
const expireEvery = time.Minute

// feed returns the feed of a namespace; nil if there is none, or if it expired.
func (x *index) feed(name string) *feed {
	n, ok := x.namespaces.Get(name)
	if !ok || n.feed == nil || x.feeds.expired(n.feed) {
		return nil
	}
	return n.feed
}

func (fs *feeds) expired(f *feed) bool { return fs.monotonic() >= f.until }

// change runs f on the index for a change of feeds, or of calls. Nothing in the journal changes.
func (s *Store) change(ctx context.Context, f func(*index) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	if s.tables.closed {
		return store.ErrClosed
	}
	return f(&s.tables.index)
}

// RecordChanges implements [store.Store].
func (s *Store) RecordChanges(ctx context.Context, namespace string, t lastseen.Thresholds) error {
	return s.change(ctx, func(x *index) error {
		n, exists := x.namespaces.Get(namespace)
		if !exists {
			return store.ErrNotRecorded
		}
		if x.feed(namespace) == nil {
			n.feed = &feed{}
			x.feeds.begun[namespace] = struct{}{}
			n.feed.begin(t, x.feeds.clock())
		}
		n.feed.until = x.feeds.monotonic() + store.ChangesKept
		if x.feeds.expiry == nil {
			x.feeds.expiry = time.AfterFunc(expireEvery, s.expireFeeds)
		}
		return nil
	})
}

// expireFeeds ends expired feeds, and looks again later if others are left; once the store is closed, it ends all.
func (s *Store) expireFeeds() {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	x := &s.tables.index
	if x.feeds.expiry != nil {
		x.feeds.expiry.Stop()
		x.feeds.expiry = nil
	}
	for name := range x.feeds.begun { // not all namespaces: writes wait
		n, exists := x.namespaces.Get(name)
		switch {
		case !exists || n.feed == nil:
			delete(x.feeds.begun, name)
		case s.tables.closed || x.feeds.expired(n.feed):
			n.feed = nil
			delete(x.feeds.begun, name)
		case x.feeds.expiry == nil:
			x.feeds.expiry = time.AfterFunc(expireEvery, s.expireFeeds)
		}
	}
}

// ReadChanges implements [store.Store].
func (s *Store) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	for _, r := range reads {
		*r = store.ChangesRead{Namespace: r.Namespace, After: r.After, Limit: r.Limit}
		missing := store.ErrNotRecorded
		err := s.read(ctx, func(x *index) {
			if f := x.feed(r.Namespace); f != nil {
				missing = nil
				f.read(r)
			}
		})
		r.Err = cmp.Or(err, missing)
	}
}

// SnapshotChanges implements [store.Store].
func (s *Store) SnapshotChanges(
	ctx context.Context, namespace string, users []string,
) (snapshot store.Snapshot, err error) {
	missing := store.ErrNotRecorded
	err = s.read(ctx, func(x *index) {
		f := x.feed(namespace)
		if f == nil {
			return
		}
		missing = nil
		snapshot = store.Snapshot{
			Users:     make([]store.Published, len(users)),
			Positions: []store.Position{f.position(f.next)}, Watermark: f.watermark,
		}
		n, _ := x.namespaces.Get(namespace)
		for i, user := range users {
			snapshot.Users[i] = f.published(n.seen(user))
		}
	})
	return snapshot, cmp.Or(err, missing)
}

// feedCutoff returns the cutoff of a trim: with a feed, only users are deleted who are published as grey by their age.
func (t *transaction) feedCutoff(namespace string, cutoff lastseen.Instant) lastseen.Instant {
	if f := t.index.feed(namespace); f != nil {
		return min(cutoff, f.watermark.Add(-f.thresholds.Yellow))
	}
	return cutoff
}
