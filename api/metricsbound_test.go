package api

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
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// moodyStore is a store that sometimes fails, each time for another reason.
type moodyStore struct {
	store.Store
	random *rand.Rand
}

func (m moodyStore) mood() error {
	if m.random.IntN(3) > 0 {
		return nil
	}
	failures := []error{
		store.ErrUnavailable, store.ErrFull, store.ErrOverloaded, store.ErrMismatch, store.ErrWrongType,
		context.Canceled, errors.New("a defect"),
	}
	return failures[m.random.IntN(len(failures))]
}

func (m moodyStore) Ping(ctx context.Context, n string, batch []store.Sighting) ([]lastseen.State, error) {
	if err := m.mood(); err != nil {
		return nil, err
	}
	return m.Store.Ping(ctx, n, batch)
}

func (m moodyStore) Leave(ctx context.Context, n string, batch []store.Sighting) ([]lastseen.State, error) {
	if err := m.mood(); err != nil {
		return nil, err
	}
	return m.Store.Leave(ctx, n, batch)
}

func (m moodyStore) Describe(
	ctx context.Context, n string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	if err := m.mood(); err != nil {
		return nil, nil, err
	}
	return m.Store.Describe(ctx, n, users)
}

// hostileRequest returns a request in which everything can be random.
func hostileRequest(random *rand.Rand, paths []string) *http.Request {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	word := func() string { return pick("chat", "other", fmt.Sprintf("x%d", random.Uint32()), "%00", "a%2Fb", "") }
	path := paths[random.IntN(len(paths))]
	if random.IntN(8) == 0 {
		path = "/" + word() + "/" + word() + path
	}
	path = strings.NewReplacer(":namespace", word(), ":user", word(), ":id", word()).Replace(path)
	method := pick(http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions,
		http.MethodPut, http.MethodTrace, fmt.Sprintf("M%d", random.Uint32()))
	body := pick("", "{}", "{", `{"pings":[{"user":"`+word()+`"}]}`, `{"leaves":[{"user":"a"}]}`, `{"users":["a"]}`)
	r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
	r.Host = pick("localhost", "localhost", fmt.Sprintf("h%d.example.com", random.Uint32()))
	query := pick("", "", "limit=1", fmt.Sprintf("q%d=1", random.Uint32()))
	r.URL = &url.URL{Path: path, RawPath: path, RawQuery: query}
	r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", random.IntN(5))
	r.Header.Set(echo.HeaderContentType, pick(mediaJSON, mediaNDJSON, fmt.Sprintf("a/x%d", random.Uint32())))
	r.Header.Set(echo.HeaderOrigin, pick("http://localhost", fmt.Sprintf("http://o%d.example", random.Uint32())))
	r.Header.Set("User-Agent", fmt.Sprint(random.Uint64()))
	for i := range random.IntN(2) * random.IntN(200) {
		r.Header.Set(fmt.Sprintf("X-%d", i), "y")
	}
	return r
}

// TestLabelsAreBounded checks that clients cannot make more than a fixed number of time series, whatever they send.
func TestLabelsAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	registry, now := prometheus.NewRegistry(), time.Unix(0, 0)
	handler := New(Config{
		Store: moodyStore{fileStore(t), random}, Metrics: registry, Limits: limit.Limits{Caller: 20},
		Now:        func() time.Time { now = now.Add(10 * time.Millisecond); return now },
		Namespaces: map[string]Settings{"chat": {}},
	})
	var paths []string
	for _, r := range (&server{}).routes() {
		paths = append(paths, r.path)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for range 20_000 {
		handler.ServeHTTP(httptest.NewRecorder(), hostileRequest(random, paths))
	}
	templates, methods := len(paths)+1, len(methodLabels())
	for name, most := range map[string]int{
		"lastseen_http_requests_total":           methods * templates * outcomes,
		"lastseen_http_request_duration_seconds": methods * templates,
		"lastseen_http_errors_total":             len(ErrorCodes()),
		"lastseen_rate_limited_total":            3,
		"lastseen_pings_total":                   3,
		"lastseen_leaves_total":                  3,
		"lastseen_departures_total":              2, // of one namespace
	} {
		found, err := testutil.GatherAndCount(registry, name)
		require.NoError(t, err)
		require.NotZero(t, found, name)
		require.LessOrEqual(t, found, most, name)
	}
	for series := range samples(t, registry, "lastseen_") {
		require.NotRegexp(t, `\d{3}|%|example`, series, "a label that a client sent")
	}
}

// TestMetricsDoNotAllocate checks that counting a request allocates nothing once its time series exist.
func TestMetricsDoNotAllocate(t *testing.T) {
	m := NewShared(Config{Metrics: prometheus.NewRegistry()}).metrics
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	c := echo.New().NewContext(r, httptest.NewRecorder())
	c.SetPath("/v1/namespaces/:namespace/users/:user/ping")
	batch, states := []store.Sighting{{User: "a", At: 1}}, []lastseen.State{{At: 1}}
	handle := func(c echo.Context) error {
		m.recorded(eventPing, "chat", states, func(i int) lastseen.Instant { return batch[i].At })
		return c.Request().Context().Err()
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { m.requests.measure(c, handle) }))
}
