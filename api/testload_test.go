package api

import (
	"context"
	"errors"
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

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// loadedStore is a store whose load a test sets. It is a fake because its clock is that of a synctest bubble.
type loadedStore struct {
	store.Store
	load atomic.Uint64 // the bits of a float64
}

func (s *loadedStore) Load() float64             { return math.Float64frombits(s.load.Load()) }
func (s *loadedStore) setLoad(to float64)        { s.load.Store(math.Float64bits(to)) }
func (*loadedStore) Ready(context.Context) error { return nil }

func (*loadedStore) Now(context.Context) (lastseen.Instant, error) { return testNow, nil }

func (*loadedStore) Newest(context.Context, string) (lastseen.Instant, error) { return testNow, nil }

func (*loadedStore) Ping(_ context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	return make([]lastseen.State, len(batch)), nil
}

func (*loadedStore) Leave(_ context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
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

func (*loadedStore) ReadCalls(_ context.Context, _ string, users []string) ([]lastseen.Call, error) {
	return make([]lastseen.Call, len(users)), nil
}

func (*loadedStore) Forget(context.Context, string, string) error { return nil }

func (*loadedStore) DeleteNamespace(context.Context, string) error { return nil }

// slowBatcher is a store that serves one batch at a time, each in the same time, as a Redis at its limit does. It is a
// fake because its clock is that of a synctest bubble.
type slowBatcher struct {
	loadedStore
	delay time.Duration

	mu       sync.Mutex
	recorded map[string]int // pings by user
	down     bool
}

func (*slowBatcher) NodeOf(string) (of func(user string) string) {
	return func(string) string { return "" }
}

func (s *slowBatcher) PingBatches(_ context.Context, batches []*store.Batch[store.Sighting]) {
	err := s.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range batches {
		b.Err, b.States = err, make([]lastseen.State, len(b.Items))
		for _, sighting := range b.Items {
			if err == nil {
				s.recorded[sighting.User]++
			}
		}
	}
}

func (s *slowBatcher) LookupBatches(_ context.Context, batches []*store.Batch[string]) {
	err := s.wait()
	for _, b := range batches {
		b.Err, b.States = err, make([]lastseen.State, len(b.Items))
	}
}

func (s *slowBatcher) wait() error {
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return store.ErrUnavailable
	}
	return nil
}

func (s *slowBatcher) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (*slowBatcher) Close() error { return nil }

// loadTest is the handler without a network, in a bubble.
type loadTest struct {
	*testing.T
	api    http.Handler
	shared *Shared
	log    *logBuffer
}

// underLoad runs a test of a handler on a store in a synctest bubble.
func underLoad(t *testing.T, s store.Store, test func(*loadTest), changes ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
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
	w := httptest.NewRecorder()
	l.api.ServeHTTP(w, httptest.NewRequest(method, "http://localhost/v1/namespaces"+path, strings.NewReader(body)))
	return w
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
