package memstore

import (
	"context"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// feeds holds the changes feed of each namespace that has one, also of namespaces without users. They are in memory
// only and guarded like the index, so a restart ends them.
type feeds struct {
	byName    map[string]*feed
	clock     func() lastseen.Instant
	monotonic func() time.Duration // feeds expire by it: a clock that is set neither ends nor keeps them
	expiry    *time.Timer          // removes expired feeds; nil if there are no feeds
}

// expireEvery is the time between two looks for expired feeds, whose memory is freed then.
const expireEvery = time.Minute

// feed returns the feed of a namespace; nil if there is none, or if it expired.
func (x *index) feed(name string) *feed {
	f := x.feeds.byName[name]
	if f == nil || x.feeds.expired(f) {
		return nil
	}
	return f
}

func (fs *feeds) expired(f *feed) bool { return fs.monotonic() >= f.until }

// beginFeed begins a feed in a namespace, which need not exist.
func (x *index) beginFeed(name string, t lastseen.Thresholds) *feed {
	f := &feed{}
	f.begin(t, x.feeds.clock())
	if x.feeds.byName == nil {
		x.feeds.byName = map[string]*feed{}
	}
	x.feeds.byName[strings.Clone(name)] = f
	if n, ok := x.namespaces.Get(name); ok {
		n.feed = f
	}
	return f
}

// endFeed ends the feed of a namespace, if it has one.
func (x *index) endFeed(name string) {
	delete(x.feeds.byName, name)
	if n, ok := x.namespaces.Get(name); ok {
		n.feed = nil
	}
}

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
		if _, exists := x.namespaces.Get(namespace); !exists {
			return store.ErrNotRecorded
		}
		f := x.feed(namespace)
		if f == nil {
			f = x.beginFeed(namespace, t)
		}
		f.until = x.feeds.monotonic() + store.ChangesKept
		if x.feeds.expiry == nil {
			x.feeds.expiry = time.AfterFunc(expireEvery, s.expireFeeds)
		}
		return nil
	})
}

// expireFeeds ends expired feeds, and looks again later if others are left.
func (s *Store) expireFeeds() {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	x := &s.tables.index
	for name, f := range x.feeds.byName {
		if x.feeds.expired(f) {
			x.endFeed(name)
		}
	}
	if s.tables.closed || len(x.feeds.byName) == 0 {
		x.feeds.expiry = nil
		return
	}
	x.feeds.expiry = time.AfterFunc(expireEvery, s.expireFeeds)
}

// endFeeds ends all feeds.
func (x *index) endFeeds() {
	if x.feeds.expiry != nil {
		x.feeds.expiry.Stop()
	}
	for name := range x.feeds.byName {
		x.endFeed(name)
	}
}

// ReadChanges implements [store.Store].
func (s *Store) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	for _, r := range reads {
		*r = store.ChangesRead{Namespace: r.Namespace, After: r.After, Limit: r.Limit}
		err := s.read(ctx, func(x *index) {
			if f := x.feed(r.Namespace); f != nil {
				f.read(r)
			} else {
				r.Err = store.ErrNotRecorded
			}
		})
		if err != nil {
			r.Err = err
		}
	}
}

// SnapshotChanges implements [store.Store].
func (s *Store) SnapshotChanges(
	ctx context.Context, namespace string, users []string,
) (snapshot store.Snapshot, err error) {
	missing := false
	err = s.read(ctx, func(x *index) {
		f := x.feed(namespace)
		if missing = f == nil; missing {
			return
		}
		snapshot = store.Snapshot{
			Users:     make([]store.Published, len(users)),
			Positions: []store.Position{f.position(f.next)}, Watermark: f.watermark,
		}
		n, _ := x.namespaces.Get(namespace)
		for i, user := range users {
			snapshot.Users[i] = f.published(n.seen(user))
		}
	})
	if err == nil && missing {
		err = store.ErrNotRecorded
	}
	return snapshot, err
}

// feedCutoff returns the cutoff of a trim: with a feed, only users are deleted who are published as grey by their age.
func (t *transaction) feedCutoff(namespace string, cutoff lastseen.Instant) lastseen.Instant {
	if f := t.index.feed(namespace); f != nil {
		return min(cutoff, f.watermark.Add(-f.thresholds.Yellow))
	}
	return cutoff
}
