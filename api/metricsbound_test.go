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
	path = strings.NewReplacer(":namespace", word(), ":user", word(), ":id", word(), ":webhook", word()).Replace(path)
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

// servePings returns a function that has the handler serve the next of some pings, on the embedded store and without a
// network, so that what the code between them costs is seen. Making the requests is not part of what is measured.
func servePings(t testing.TB) func() {
	t.Helper()
	handler := api.New(api.Config{Store: kit.OpenFileStore(t, filestore.Options{}), Settings: apitest.Settings()})
	requests := make([]*http.Request, 1000)
	w := &kit.Sink{Headers: http.Header{}}
	for i := range requests {
		r, err := http.NewRequest("POST", fmt.Sprintf("/v1/namespaces/chat/users/%016x/ping", i), http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Prefer", "return=minimal")
		handler.ServeHTTP(w, r) // no user is new when it is measured
		requests[i] = r
	}
	next := 0
	return func() {
		clear(w.Headers)
		handler.ServeHTTP(w, requests[next%len(requests)])
		require.Less(t, w.Status, 300)
		next++
	}
}

// TestPingAllocations checks that a ping allocates no more than row 13 of bench/RESULTS.md allows. What few requests
// need must cost the others nothing.
func TestPingAllocations(t *testing.T) {
	testenv.SkipWithRace(t, "pools drop what is put back at random")
	require.LessOrEqual(t, testing.AllocsPerRun(10_000, servePings(t)), 14.0)
}

// BenchmarkPingAllocations counts the allocations of a ping, from the router to the store. It is row 13 of
// bench/RESULTS.md.
func BenchmarkPingAllocations(b *testing.B) {
	serve := servePings(b)
	for b.Loop() {
		b.ReportMetric(testing.AllocsPerRun(10_000, serve), "ping-allocs/op")
	}
}
