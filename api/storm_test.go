package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
)

// TestSaturatedStore has more pings than a store can take, by a queue of calls and real time: pings succeed, lists are
// refused, and then all is served again. While the store is down, nothing counts as load.
func TestSaturatedStore(t *testing.T) {
	s := &slowBatcher{delay: 100 * time.Millisecond}
	batched := coalesce.New(s, coalesce.Options{Timeout: 250 * time.Millisecond, BatchSize: 10})
	underLoad(t, batched, func(l *loadTest) {
		var stopped, failed atomic.Bool
		var pinging sync.WaitGroup
		for i := range 31 { // of which 10 are served in 100 ms: a ping waits for 0.2 to 0.3 s, of 0.375
			pinging.Go(func() {
				for !stopped.Load() {
					if l.send(fmt.Sprintf("POST /chat/users/u%d/ping", i), "").Code != http.StatusOK {
						failed.Store(true)
					}
				}
			})
		}
		require.Equal(l, http.StatusOK, l.send("GET /chat/counts", "").Code)
		wait(10 * time.Second)
		require.Equal(l, http.StatusServiceUnavailable, l.send("GET /chat/counts", "").Code)
		require.Equal(l, http.StatusServiceUnavailable, l.send("GET /chat/users", "").Code)
		require.False(l, failed.Load(), "no ping is refused")

		s.down.Store(true)
		wait(10 * time.Second)
		require.False(l, l.shared.load.Refuses(guard.DeepList), "a store that is down is not loaded")
		s.down.Store(false)
		wait(10 * time.Second)
		require.True(l, l.shared.load.Refuses(guard.DeepList), "but pings that come after it are")

		stopped.Store(true)
		pinging.Wait()
		wait(20 * time.Second)
		require.Equal(l, http.StatusOK, l.send("GET /chat/counts", "").Code)
		require.Contains(l, l.log.Take(), "no longer overloaded")
	})
}

// loadedStore is a store whose load a test sets. It is a fake because its clock is that of a synctest bubble.
type loadedStore struct {
	store.Store
	load atomic.Uint64 // the bits of a float64
}

func (s *loadedStore) Load() float64 { return math.Float64frombits(s.load.Load()) }

func (s *loadedStore) setLoad(to float64) { s.load.Store(math.Float64bits(to)) }

func (*loadedStore) Ready(context.Context) error { return nil }

func (*loadedStore) Now(context.Context) (lastseen.Instant, error) { return kit.Now, nil }

func (*loadedStore) Newest(context.Context, string) (lastseen.Instant, error) { return kit.Now, nil }

func (*loadedStore) Ping(_ context.Context, _ string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	return make([]lastseen.State, len(batch)), nil
}

func (*loadedStore) Leave(_ context.Context, _ string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	return make([]lastseen.State, len(batch)), nil
}

func (*loadedStore) Describe(
	_ context.Context, _ string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	return make([]lastseen.State, len(users)), nil, nil
}

func (*loadedStore) ReadDetails(context.Context, string, []store.Record) (map[string]store.Details, error) {
	return nil, nil
}

func (*loadedStore) Count(_ context.Context, _ string, ranges []lastseen.Range) ([]int64, error) {
	return make([]int64, len(ranges)), nil
}

func (*loadedStore) List(context.Context, string, store.ListQuery) ([]store.Record, error) {
	return nil, nil
}

func (*loadedStore) Namespaces(context.Context, string, int) ([]store.NamespaceInfo, error) {
	return nil, nil
}

func (*loadedStore) CloseConnections(context.Context, string, string) error { return nil }

func (*loadedStore) Signal(context.Context, store.Signal) error { return nil }

func (*loadedStore) ReadCalls(_ context.Context, _ string, _, users []string) ([]lastseen.Call, error) {
	return make([]lastseen.Call, len(users)), nil
}

func (*loadedStore) Forget(context.Context, string, string) error { return nil }

func (*loadedStore) DeleteNamespace(context.Context, string) error { return nil }

// slowBatcher is a store that serves one batch at a time, each in the same time, as a Redis at its limit does. It is a
// fake because its clock is that of a synctest bubble.
type slowBatcher struct {
	loadedStore
	delay time.Duration
	down  atomic.Bool
}

func (*slowBatcher) NodeOf(string) (of func(user string) string) {
	return func(string) string { return "" }
}

func (s *slowBatcher) PingBatches(_ context.Context, batches []*store.Batch[store.PresenceEvent]) {
	serveSlowly(s, batches)
}

func (s *slowBatcher) LookupBatches(_ context.Context, batches []*store.Batch[string]) {
	serveSlowly(s, batches)
}

func serveSlowly[T any](s *slowBatcher, batches []*store.Batch[T]) {
	time.Sleep(s.delay)
	for _, b := range batches {
		b.States = make([]lastseen.State, len(b.Items))
		if s.down.Load() {
			b.Err = store.ErrUnavailable
		}
	}
}

func (*slowBatcher) Close() error { return nil }

// loadTest is the handler without a network, in a bubble.
type loadTest struct {
	*testing.T
	api    http.Handler
	shared *Shared
	log    *kit.Log
}

// underLoad runs a test of a handler on a store in a synctest bubble.
func underLoad(t *testing.T, s store.Store, test func(*loadTest), changes ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &kit.Log{}
		c := Config{
			Store: s,
			Settings: Settings{
				Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour},
				PingInterval: 10 * time.Second,
			},
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		}
		for _, change := range changes {
			change(&c)
		}
		c.Shared = NewShared(c)
		test(&loadTest{T: t, api: New(c), shared: c.Shared, log: log})
		wait(time.Minute) // until the load is no longer read
	})
}

// send sends a request, such as "GET /chat/counts", below /v1/namespaces.
func (l *loadTest) send(request, body string) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(request, " ")
	return kit.Serve(l.api, method, "/v1/namespaces"+path, body)
}

var errBodyRead = errors.New("the body was read")

// unread is a body that must not be read.
type unread struct{ read bool }

func (u *unread) Read([]byte) (int, error) {
	u.read = true
	return 0, errBodyRead
}

// quietShared returns a state that logs nothing.
func quietShared() *Shared { return NewShared(Config{Logger: slog.New(slog.DiscardHandler)}) }
