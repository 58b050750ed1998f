package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// janitorTest is a janitor whose pauses take no time but by the clocks, which they set forward.
type janitorTest struct {
	*janitor
	elapsed  atomic.Int64 // monotonic time; the store goes by it, too
	wrong    atomic.Int64 // how far the machine's clock is off
	paused   []time.Duration
	log      bytes.Buffer
	cancel   context.CancelFunc
	ctx      context.Context
	stopAt   time.Duration // of all pauses together
	meantime func()        // called in every pause
}

func newJanitorTest(t *testing.T, stopAt time.Duration) *janitorTest {
	j := &janitorTest{stopAt: stopAt, meantime: func() {}}
	j.ctx, j.cancel = context.WithCancel(t.Context())
	j.janitor = &janitor{
		retention:  func(string) time.Duration { return time.Hour },
		configured: func(string) bool { return true },
		logger:     slog.New(slog.NewTextHandler(&j.log, nil)),
		pause:      j.pass,
		monotonic:  func() time.Duration { return time.Duration(j.elapsed.Load()) },
	}
	return j
}

// wall is what the machine's clock shows.
func (j *janitorTest) wall() time.Time {
	return time.UnixMilli(1_700_000_000_000).Add(time.Duration(j.elapsed.Load() + j.wrong.Load()))
}

func (j *janitorTest) pass(_ context.Context, d time.Duration) {
	j.paused = append(j.paused, d)
	j.elapsed.Add(int64(d))
	j.meantime()
	if j.stopAt -= d; j.stopAt <= 0 {
		j.cancel()
	}
}

// openFile gives the janitor a store in a file, on its clock.
func (j *janitorTest) openFile(t *testing.T) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: time.Hour, Now: j.wall, Monotonic: j.monotonic,
		Logger: j.logger,
	})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	j.store = s
	return s
}

// ping records users in a namespace as seen so long before the clock's first time.
func ping(t *testing.T, s store.Store, namespace string, ages map[string]time.Duration) {
	t.Helper()
	var batch []store.Sighting
	for user, age := range ages {
		batch = append(batch, store.Sighting{User: user, At: lastseen.Instant(1_700_000_000_000).Add(-age)})
	}
	_, err := s.Ping(context.Background(), namespace, batch)
	require.NoError(t, err)
}

// requireUsers requires that just these users are in a namespace.
func requireUsers(t *testing.T, s store.Store, namespace string, want ...string) {
	t.Helper()
	q := store.ListQuery{Limit: 10, Ranges: []lastseen.Range{{From: 1, To: lastseen.MaxInstant}}}
	records, err := s.List(context.Background(), namespace, q)
	require.NoError(t, err)
	users := []string{}
	for _, r := range records {
		users = append(users, r.User)
	}
	require.ElementsMatch(t, want, users, namespace)
}

// TestJanitor deletes whoever is past their namespace's retention, and nobody else.
func TestJanitor(t *testing.T) {
	j := newJanitorTest(t, 2*sweepEvery)
	s := j.openFile(t)
	ages := map[string]time.Duration{"young": 30 * time.Minute, "old": 2 * time.Hour, "older": 4 * time.Hour}
	rooms := []string{"forever", "long"}
	for n := range sweepPage + 2 { // more than are read at once
		rooms = append(rooms, fmt.Sprintf("room-%04d", n))
	}
	for _, room := range rooms {
		ping(t, s, room, ages)
	}
	j.retention = func(namespace string) time.Duration {
		switch namespace {
		case "forever":
			return 0
		case "long":
			return 3 * time.Hour
		default:
			return time.Hour
		}
	}
	j.run(j.ctx)
	requireUsers(t, s, "forever", "young", "old", "older")
	requireUsers(t, s, "long", "young", "old")
	for _, room := range rooms[2:] {
		requireUsers(t, s, room, "young")
	}
	require.Equal(t, len(rooms)-1, strings.Count(j.log.String(), "deleted users"), "a line for each namespace that somebody was deleted from")
}

// TestJanitorKeepsTheEdge: someone last seen exactly the retention ago stays.
func TestJanitorKeepsTheEdge(t *testing.T) {
	j := newJanitorTest(t, time.Hour)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"edge": time.Hour, "beyond": time.Hour + time.Millisecond})
	n, err := j.trim(j.ctx, "chat")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	requireUsers(t, s, "chat", "edge")
}

// watched is a store that notes what a janitor does, and when by its clock.
type watched struct {
	store.Store
	clock  func() time.Duration
	mu     sync.Mutex
	trims  map[string][]time.Duration // by namespace
	leases []time.Duration
	lease  func() (bool, error)

	released int
	fail     map[string]error // what trimming a namespace fails with
	ready    error
	during   func() // called in every Trim
}

func (j *janitorTest) watch(s store.Store) *watched {
	w := &watched{
		Store: s, clock: j.monotonic, trims: map[string][]time.Duration{}, fail: map[string]error{},
		lease: func() (bool, error) { return true, nil }, during: func() {},
	}
	j.store = w
	return w
}

func (w *watched) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	w.during()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trims[namespace] = append(w.trims[namespace], w.clock())
	if err := w.fail[namespace]; err != nil {
		return store.TrimResult{}, err
	}
	return w.Store.Trim(ctx, namespace, q)
}

func (w *watched) Lease(_ context.Context, name string, ttl time.Duration) (bool, error) {
	if name == leaseName && ttl == time.Millisecond {
		w.released++
		return true, nil
	}
	if name != leaseName || ttl != leaseTime {
		return false, fmt.Errorf("lease %s for %s", name, ttl)
	}
	w.leases = append(w.leases, w.clock())
	return w.lease()
}

func (w *watched) Ready(context.Context) error { return w.ready }

func TestJanitorSpreadsNamespaces(t *testing.T) {
	j := newJanitorTest(t, 2*sweepEvery)
	s := j.openFile(t)
	for _, room := range []string{"a", "b", "c", "d"} {
		ping(t, s, room, map[string]time.Duration{"young": 0})
	}
	w := j.watch(s)
	j.run(j.ctx)
	require.Equal(t, map[string][]time.Duration{
		"a": {0, time.Minute}, "b": {15 * time.Second, 75 * time.Second},
		"c": {30 * time.Second, 90 * time.Second}, "d": {45 * time.Second, 105 * time.Second},
	}, w.trims)
	require.Equal(t, 1, w.released, "when it stops, it gives up its lease")
}

func TestJanitorErasesInSmallCalls(t *testing.T) {
	j := newJanitorTest(t, sweepEvery)
	s := j.openFile(t)
	ages := map[string]time.Duration{"young": 0}
	for n := range 2*store.MaxTrim + 1 {
		ages[fmt.Sprint(n)] = 2 * time.Hour
	}
	ping(t, s, "chat", ages)
	w := j.watch(s)
	j.run(j.ctx)
	requireUsers(t, s, "chat", "young")
	require.Equal(t, []time.Duration{0, trimPause, 2 * trimPause}, w.trims["chat"])
	require.Equal(t, 1, strings.Count(j.log.String(), "deleted users"))
	require.Contains(t, j.log.String(), "namespace=chat users=2001")
}

// TestJanitorRenewsItsLease while a long erasing goes on, and stops when somebody else has it.
func TestJanitorRenewsItsLease(t *testing.T) {
	j := newJanitorTest(t, time.Hour)
	s := j.openFile(t)
	w := j.watch(s)
	ages := map[string]time.Duration{"young": 0}
	for n := range store.MaxTrim {
		ages[fmt.Sprint(n)] = 2 * time.Hour
	}
	j.meantime = func() { ping(t, s, "chat", ages) } // so that it never ends
	j.meantime()
	w.lease = func() (bool, error) { return len(w.leases) < 4, nil }
	j.pause = func(ctx context.Context, d time.Duration) {
		if d != trimPause {
			j.cancel()
		}
		j.pass(ctx, d)
	}
	j.run(j.ctx)
	require.Equal(t, []time.Duration{0, leaseRenew, 2 * leaseRenew, 3 * leaseRenew}, w.leases[:4])
	require.Zero(t, w.released, "there was none to give up")
	require.Equal(t, 3*leaseRenew-trimPause, w.trims["chat"][len(w.trims["chat"])-1], "nothing after it was lost")
}

// TestJanitorPassesOverABrokenNamespace: those after it are swept all the same, unless nothing can be reached.
func TestJanitorPassesOverABrokenNamespace(t *testing.T) {
	for _, c := range []struct {
		err, ready error
		back       bool // soon
		reached    bool
	}{
		{err: store.ErrWrongType, reached: true},
		{err: store.ErrUnavailable, reached: true},
		{err: store.ErrUnavailable, ready: store.ErrUnavailable, reached: false},
		{err: store.ErrUnavailable, ready: store.ErrUnavailable, back: true, reached: true},
	} {
		j := newJanitorTest(t, sweepEvery)
		s := j.openFile(t)
		for _, room := range []string{"a", "b"} {
			ping(t, s, room, map[string]time.Duration{"young": 0})
		}
		w := j.watch(s)
		w.fail["a"], w.ready = c.err, c.ready
		j.meantime = func() {
			if c.back {
				w.ready = nil
			}
		}
		j.run(j.ctx)
		require.Equal(t, c.reached, len(w.trims["b"]) > 0)
		require.Contains(t, j.log.String(), "namespace=a error=\""+c.err.Error())
	}
}

// TestJanitorGoesByTheSettingsOfTheMoment: a reload takes effect at once, also while it erases.
func TestJanitorGoesByTheSettingsOfTheMoment(t *testing.T) {
	j := newJanitorTest(t, sweepEvery)
	s := j.openFile(t)
	w := j.watch(s)
	keep := time.Hour
	j.retention = func(string) time.Duration { return keep }
	ages := map[string]time.Duration{"young": 0}
	for n := range 2 * store.MaxTrim {
		ages[fmt.Sprint(n)] = 2 * time.Hour
	}
	ping(t, s, "chat", ages)
	j.meantime = func() { keep = 0 }
	j.run(j.ctx)
	require.Len(t, w.trims["chat"], 1)
}

// slowClock is a store during whose answer about the time something happens.
type slowClock struct {
	store.Store
	meantime func()
}

func (s slowClock) Now(ctx context.Context) (lastseen.Instant, error) {
	s.meantime()
	return s.Store.Now(ctx)
}

// TestJanitorErasesByNoOldRetention: a reload may come while the janitor waits for the store's clock.
func TestJanitorErasesByNoOldRetention(t *testing.T) {
	j := newJanitorTest(t, time.Hour)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
	keep := time.Hour
	j.retention = func(string) time.Duration { return keep }
	j.store = slowClock{s, func() { keep = 0 }}
	n, err := j.trim(j.ctx, "chat")
	require.NoError(t, err)
	require.Zero(t, n)
	requireUsers(t, s, "chat", "young", "old")
}

// TestTwoJanitorsTakeTurns on one Redis: only the holder of the lease deletes; when it has stopped, the other one
// does. That a lease ends by itself is Redis' own doing.
func TestTwoJanitorsTakeTurns(t *testing.T) {
	url := redistest.Start(t)
	var janitors []*janitor
	for range 2 {
		s, err := redisstore.Open(redisstore.Options{URL: url, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second})
		require.NoError(t, err)
		defer s.Close()
		janitors = append(janitors, &janitor{
			store: s, retention: func(string) time.Duration { return time.Hour }, configured: func(string) bool { return true },
			logger: slog.New(slog.DiscardHandler), monotonic: func() time.Duration { return 0 },
			pause: func(context.Context, time.Duration) {},
		})
	}
	first, second := janitors[0], janitors[1]
	once := func(j *janitor) {
		if j.holds(t.Context()) {
			j.round(t.Context(), 0)
		}
	}
	old := map[string]time.Duration{"old": 0} // in 2023
	_, err := first.store.Ping(t.Context(), "chat", []store.Sighting{{User: "young", At: lastseen.InstantOf(time.Now())}})
	require.NoError(t, err)
	ping(t, first.store, "chat", old)
	once(first)
	requireUsers(t, first.store, "chat", "young")

	ping(t, first.store, "chat", old)
	once(second)
	requireUsers(t, first.store, "chat", "young", "old")
	once(first)
	requireUsers(t, first.store, "chat", "young")

	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	left, err := client.PTTL(context.Background(), "presence::lease:"+leaseName).Result()
	require.NoError(t, err)
	require.Greater(t, left, time.Duration(0))
	require.LessOrEqual(t, left, leaseTime)

	ping(t, first.store, "chat", old)
	first.release(t.Context()) // as when it stops
	require.Eventually(t, func() bool { return second.holds(t.Context()) }, time.Minute, time.Millisecond)
	once(second)
	requireUsers(t, first.store, "chat", "young")
	first.release(t.Context())
	require.False(t, first.holds(t.Context()), "what it does not hold it does not give up")
}

// TestRetentionOfNamespaces: of two namespaces one has a retention. A server that was just started deletes nobody yet.
func TestRetentionOfNamespaces(t *testing.T) {
	config := writeConfig(t, "namespaces:\n  chat: {retention: 1h}\n")
	eachStore(t, func(t *testing.T, args []string) {
		s := start(t, args...)
		require.Nil(t, s.get(t, "/v1/namespaces/chat")["retention_ms"])
		s.post(t, "/v1/namespaces/chat/pings", `{"pings":[{"user":"alice","at":100123},{"user":"bob"}]}`)
		s.post(t, "/v1/namespaces/game/pings", `{"pings":[{"user":"alice","at":100123}]}`)
		require.Zero(t, s.terminate(t))

		s = start(t, append(args, "--config", config)...)
		require.EqualValues(t, 3_600_000, s.get(t, "/v1/namespaces/chat")["retention_ms"])
		require.Nil(t, s.get(t, "/v1/namespaces/game")["retention_ms"])
		require.NotNil(t, s.get(t, alice)["last_seen"])
	})
}
