package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// hours are thresholds that no test outlasts: only the times of pings decide who turns yellow or grey, and when.
var hours = lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour}

// feed is the feed of the namespace stores.Chat, with access to what Redis keeps of it.
type feed struct {
	*testing.T
	s      *redisstore.Store
	client redis.UniversalClient
	keys   []string         // of the shards
	w      lastseen.Instant // the watermark of all shards at the start
}

// startFeed begins to record the changes of a namespace that exists.
func startFeed(t *testing.T, s *redisstore.Store, client redis.UniversalClient, shards int) *feed {
	t.Helper()
	f := &feed{T: t, s: s, client: client, keys: []string{"presence:chat"}}
	if shards > 1 {
		f.keys = nil
		for k := range shards {
			f.keys = append(f.keys, "presence:chat:"+strconv.Itoa(k))
		}
	}
	require.NoError(t, stores.Ping(s, "chat", "somebody"))
	f.record()
	f.moveWatermark(f.clock())
	return f
}

// newFeed is startFeed on a new Redis.
func newFeed(t *testing.T, shards int) *feed {
	t.Helper()
	url := redistest.Start(t)
	return startFeed(t, stores.New(t, redisstore.Options{URL: url, Shards: shards}), stores.NewClient(t, url), shards)
}

// feedKey and streamKey are the side keys of a shard's key.
func feedKey(key string) string   { return stores.SideKey("feed", key) }
func streamKey(key string) string { return stores.SideKey("changes", key) }

func (f *feed) record() {
	f.Helper()
	require.NoError(f, f.s.Register(context.Background(), []string{"chat"}))
	require.NoError(f, f.s.RecordChanges(context.Background(), "chat", hours))
}

// moveWatermark sets the watermark of each shard, as if the advances had ended there. Tests that need a watermark far
// from the clock would otherwise have to wait, or to move the clock of Redis.
func (f *feed) moveWatermark(to lastseen.Instant) {
	f.Helper()
	f.each(func(key string) error {
		return f.client.HSet(context.Background(), feedKey(key), "w", int64(to)).Err()
	})
	f.w = to
}

func (f *feed) each(do func(key string) error) {
	f.Helper()
	for _, key := range f.keys {
		require.NoError(f, do(key))
	}
}

// clock reads the clock of Redis.
func (f *feed) clock() lastseen.Instant {
	f.Helper()
	now, err := f.client.Time(context.Background()).Result()
	require.NoError(f, err)
	return lastseen.InstantOf(now)
}

// passMillisecond waits until the clock of Redis shows another millisecond.
func (f *feed) passMillisecond() {
	f.Helper()
	begun := f.clock()
	require.Eventually(f, func() bool { return f.clock() > begun }, stores.LongTimeout, 100*time.Microsecond)
}

// quickly repeats an attempt until one took less than a time: the machine may be busy. Only what that one found counts.
func (f *feed) quickly(within time.Duration, attempt func()) {
	f.Helper()
	for range 100 {
		begun := f.clock()
		if attempt(); f.clock() < begun.Add(within) {
			return
		}
	}
	f.Fatalf("no attempt took less than %v", within)
}

func (f *feed) ping(at lastseen.Instant, users ...string) { f.Helper(); f.write(f.s.Ping, at, users) }

func (f *feed) leave(at lastseen.Instant, users ...string) { f.Helper(); f.write(f.s.Leave, at, users) }

func (f *feed) write(write kit.Write, at lastseen.Instant, users []string) {
	f.Helper()
	_, err := write(context.Background(), "chat", kit.Events(at, users...))
	require.NoError(f, err)
}

// advance moves the watermark to an instant, in as many steps as it takes. Transitions counts those of all steps.
func (f *feed) advance(to lastseen.Instant) store.ChangesAdvance {
	f.Helper()
	return advance(f.T, f.s, hours, to)
}

func advance(t *testing.T, s store.Store, by lastseen.Thresholds, to lastseen.Instant) store.ChangesAdvance {
	t.Helper()
	all := store.ChangesAdvance{More: true}
	for all.More {
		step := &store.ChangesAdvance{Namespace: "chat", Thresholds: by, Now: to}
		s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{step})
		require.NoError(t, step.Err)
		step.Transitions, step.Begun = step.Transitions+all.Transitions, step.Begun || all.Begun
		all = *step
	}
	return all
}

// entries returns the number of entries that are kept.
func (f *feed) entries() (n int64) {
	f.Helper()
	f.each(func(key string) error {
		length, err := f.client.XLen(context.Background(), streamKey(key)).Result()
		n += length
		return err
	})
	return n
}

// reader follows a feed as a client does: from a snapshot on, and from another one after each reset. An entry that does
// not continue what came before fails the test: one was left out, or came twice.
type reader struct {
	*testing.T
	s         store.Store
	users     []string
	limit     int
	told      map[string]store.Published
	positions []store.Position // nil to begin with a snapshot
	watermark lastseen.Instant
	changes   []store.Change // all
	resets    int
}

func newReader(t *testing.T, s store.Store, users ...string) *reader {
	t.Helper()
	r := &reader{T: t, s: s, users: users, limit: 2}
	r.poll()
	return r
}

// poll reads to the end of the feed.
func (r *reader) poll() {
	r.Helper()
	require.NoError(r, r.tryPoll())
}

// tryPoll is poll during an outage: it returns the error.
func (r *reader) tryPoll() error {
	for more := true; more; {
		if r.positions == nil {
			return r.begin()
		}
		read := r.read()
		switch {
		case read.Err != nil:
			return read.Err
		case read.Reset:
			r.resets++
			r.positions = nil
			continue
		case read.Watermark < r.watermark:
			r.Errorf("the watermark went back by %d ms", r.watermark-read.Watermark)
		}
		for _, change := range read.Changes {
			r.apply(change)
		}
		r.positions, r.watermark, more = read.Positions, read.Watermark, read.More
	}
	return nil
}

func (r *reader) read() *store.ChangesRead {
	read := &store.ChangesRead{Namespace: "chat", After: r.positions, Limit: r.limit}
	r.s.ReadChanges(context.Background(), []*store.ChangesRead{read})
	return read
}

func (r *reader) begin() error {
	snapshot, err := r.s.SnapshotChanges(context.Background(), "chat", r.users)
	if err != nil {
		return err
	}
	r.told = map[string]store.Published{}
	for i, user := range r.users {
		r.told[user] = snapshot.Users[i]
	}
	r.positions, r.watermark = snapshot.Positions, snapshot.Watermark
	return nil
}

func (r *reader) apply(c store.Change) {
	r.changes = append(r.changes, c)
	told, watched := r.told[c.User]
	if !watched {
		return
	}
	before := store.Published{State: lastseen.State{Left: c.WasLeft}, Status: c.WasStatus, Details: c.Was}
	if !told.Same(before) {
		r.Errorf("%s was told as %v, but the next entry is %+v", c.User, told, c)
	}
	if c.Same(before) && !c.Forgotten() {
		r.Errorf("an entry that changes nothing: %+v", c)
	}
	r.told[c.User] = c.Published
}

// of returns the changes of a user.
func (r *reader) of(user string) (all []lastseen.Status) {
	for _, c := range r.changes {
		if c.User == user {
			all = append(all, c.Status)
		}
	}
	return all
}

// requireTruth reads to the end, and compares what was told with what is stored.
func (r *reader) requireTruth() {
	r.Helper()
	stores.UntilSuccess(r.T, r.tryPoll)
	var states []lastseen.State
	var details map[string]store.Details
	stores.UntilSuccess(r.T, func() (err error) {
		states, details, err = r.s.Describe(context.Background(), "chat", r.users)
		return err
	})
	for i, user := range r.users {
		want, told := store.Publish(hours, states[i], details[user], r.watermark), r.told[user]
		leftUnseen := !told.Known() && want.Status == lastseen.Grey && told.Details == want.Details
		if !want.Same(told) && !leftUnseen {
			r.Errorf("%s was told as %v, but is %v", user, r.told[user], want)
		}
	}
}

// requireNotRecorded requires that the feed is gone.
func (r *reader) requireNotRecorded() {
	r.Helper()
	require.ErrorIs(r, r.read().Err, store.ErrNotRecorded)
	_, err := r.s.SnapshotChanges(context.Background(), "chat", r.users)
	require.ErrorIs(r, err, store.ErrNotRecorded)
}

// isOutage reports whether an error is one that calls may have while servers change.
func isOutage(err error) bool { return errors.Is(err, store.ErrUnavailable) }
