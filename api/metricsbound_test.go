package api_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// hostileRequest returns a request in which everything can be random.
func hostileRequest(random *rand.Rand, paths []string) *http.Request {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	word := func() string { return pick("chat", "other", fmt.Sprintf("x%d", random.Uint32()), "%00", "a%2Fb", "") }
	path := paths[random.IntN(len(paths))]
	if random.IntN(8) == 0 {
		path = "/" + word() + "/" + word() + path
	}
	path = strings.NewReplacer(":namespace", word(), ":user", word(), ":id", word()).Replace(path)
	method := pick("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "TRACE", fmt.Sprintf("M%d", random.Uint32()))
	body := pick("", "{}", "{", `{"pings":[{"user":"`+word()+`"}]}`, `{"leaves":[{"user":"a"}]}`, `{"users":["a"]}`)
	r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
	r.Host = pick("localhost", "localhost", fmt.Sprintf("h%d.example.com", random.Uint32()))
	query := pick("", "", "limit=1", fmt.Sprintf("q%d=1", random.Uint32()))
	r.URL = &url.URL{Path: path, RawPath: path, RawQuery: query}
	r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", random.IntN(5))
	r.Header.Set(echo.HeaderContentType,
		pick("application/json", "application/x-ndjson", fmt.Sprintf("a/x%d", random.Uint32())))
	r.Header.Set(echo.HeaderOrigin, pick("http://localhost", fmt.Sprintf("http://o%d.example", random.Uint32())))
	r.Header.Set("User-Agent", fmt.Sprint(random.Uint64()))
	for i := range random.IntN(2) * random.IntN(200) {
		r.Header.Set(fmt.Sprintf("X-%d", i), "y")
	}
	return r
}

// TestLabelsAreBounded checks that clients cannot make more than a fixed number of time series, whatever they send.
func TestLabelsAreBounded(t *testing.T) {
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	random := rand.New(rand.NewPCG(1, 2))
	failures := []error{
		store.ErrUnavailable, store.ErrFull, store.ErrOverloaded, store.ErrMismatch, store.ErrWrongType,
		context.Canceled, errors.New("a defect"),
	}
	mood := func(context.Context, string) error { // the store fails at times, for some reason
		if random.IntN(3) > 0 {
			return nil
		}
		return failures[random.IntN(len(failures))]
	}
	registry, now := prometheus.NewRegistry(), time.Unix(0, 0)
	handler := api.New(api.Config{
		Store: kit.HookedFileStore(t, mood), Metrics: registry, Limits: limit.Limits{Caller: 20},
		Now:        func() time.Time { now = now.Add(10 * time.Millisecond); return now },
		Namespaces: map[string]api.Settings{"chat": {}},
	})
	var paths []string
	for _, r := range api.Routes() {
		paths = append(paths, r.Path)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for range 20_000 {
		handler.ServeHTTP(httptest.NewRecorder(), hostileRequest(random, paths))
	}
	templates, methods, outcomes := len(paths)+1, 6, 5
	for name, most := range map[string]int{
		"lastseen_http_requests_total":           methods * templates * outcomes,
		"lastseen_http_request_duration_seconds": methods * templates,
		"lastseen_http_errors_total":             len(problem.Types()),
		"lastseen_rate_limited_total":            4,
		"lastseen_pings_total":                   3,
		"lastseen_leaves_total":                  3,
		"lastseen_departures_total":              2, // of one namespace
	} {
		found, err := testutil.GatherAndCount(registry, name)
		require.NoError(t, err)
		require.NotZero(t, found, name)
		require.LessOrEqual(t, found, most, name)
	}
	for series := range kit.Samples(t, registry, "lastseen_") {
		require.NotRegexp(t, `\d{3}|%|example`, series, "a label that a client sent")
	}
}

// These benchmarks call the handler on the embedded store, without a network, so that what the code
// between them costs is seen.

const benchUsers = 100_000

// benchUser returns one of the user IDs, of 16 bytes.
func benchUser(n int) string { return fmt.Sprintf("%016x", uint64(n%benchUsers)*0x9E3779B97F4A7C15) }

// bench is the handler with a store that holds the users.
type bench struct {
	b       testing.TB
	handler http.Handler
}

func newBench(b testing.TB) *bench {
	b.Helper()
	s := kit.OpenFileStore(b, filestore.Options{})
	now, err := s.Now(context.Background())
	require.NoError(b, err)
	batch := make([]store.PresenceEvent, benchUsers)
	for n := range batch {
		batch[n] = store.PresenceEvent{User: benchUser(n), At: now - lastseen.Instant(n%300_000)}
	}
	_, err = s.Ping(context.Background(), "chat", batch)
	require.NoError(b, err)
	return &bench{b: b, handler: api.New(api.Config{Store: s, Settings: apitest.Settings()})}
}

// requests returns prepared requests, so that making them is not part of what is measured.
func (b *bench) requests(make func(n int) *http.Request) func() {
	requests := []*http.Request{}
	for i := range 1000 {
		requests = append(requests, make(i))
	}
	w := &kit.Sink{Headers: http.Header{}}
	next := 0
	return func() {
		clear(w.Headers)
		b.handler.ServeHTTP(w, requests[next%len(requests)])
		require.Less(b.b, w.Status, 300)
		next++
	}
}

func benchRequest(method, path string) *http.Request {
	r, err := http.NewRequest(method, "/v1/namespaces/"+path, http.NoBody)
	if err != nil {
		panic(err)
	}
	return r
}

func pingOf(n int) *http.Request {
	return benchRequest("POST", "chat/users/"+benchUser(n*7919)+"/ping")
}

func minimalPing(n int) *http.Request {
	r := pingOf(n)
	r.Header.Set("Prefer", "return=minimal")
	return r
}

func BenchmarkHandler(b *testing.B) {
	h := newBench(b)
	for _, c := range []struct {
		name string
		make func(int) *http.Request
	}{
		{"no-op", func(n int) *http.Request { return benchRequest("GET", benchUser(n*7919)) }},
		{"ping/minimal", minimalPing},
		{"ping", pingOf},
		{"get", func(n int) *http.Request { return benchRequest("GET", "chat/users/"+benchUser(n*7919)) }},
		{"lookup of 100", func(n int) *http.Request {
			users := make([]string, 100)
			for i := range users {
				users[i] = "user=" + benchUser(n*100+i*7919)
			}
			return benchRequest("GET", "chat/lookup?"+strings.Join(users, "&"))
		}},
		{"page of 50", func(int) *http.Request { return benchRequest("GET", "chat/users") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			serve := h.requests(c.make)
			b.ReportAllocs()
			for b.Loop() {
				serve()
			}
		})
	}
}

// TestPingAllocations checks that a ping allocates no more than row 13 of bench/RESULTS.md allows. What few requests
// need must cost the others nothing.
func TestPingAllocations(t *testing.T) {
	testenv.SkipWithRace(t, "pools drop what is put back at random")
	serve := newBench(t).requests(minimalPing)
	require.LessOrEqual(t, testing.AllocsPerRun(10_000, serve), 14.0)
}

// BenchmarkPingAllocations counts the allocations of a ping, from the router to the store. It is row 13 of
// bench/RESULTS.md.
func BenchmarkPingAllocations(b *testing.B) {
	h := newBench(b)
	for b.Loop() {
		b.ReportMetric(testing.AllocsPerRun(10_000, h.requests(minimalPing)), "ping-allocs/op")
	}
}
