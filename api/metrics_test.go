package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// samples returns the time series whose name begins with a prefix, such as name{GET,/v1/namespaces,2xx}: the value of a
// counter or gauge, the number of observations of a histogram. Zeros are omitted.
func samples(t *testing.T, registry *prometheus.Registry, prefix string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			name, ok := strings.CutPrefix(family.GetName(), prefix)
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if ok && value != 0 {
				all[strings.Trim(name+"{"+strings.Join(labels, ",")+"}", "{}")] = value
			}
		}
	}
	return all
}

// sum returns the sum of all observations of a histogram.
func sum(t *testing.T, registry *prometheus.Registry, name string) (total float64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				total += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return total
}

// newMeteredServer serves a store, and returns the registry of its metrics. The namespace chat is configured.
func newMeteredServer(t *testing.T, s store.Store, changes ...func(*Config)) (*testServer, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return newTestServer(t, s, append(changes, func(c *Config) {
		c.Metrics = registry
		c.Namespaces = map[string]Settings{"chat": c.Settings}
	})...), registry
}

func TestRequestMetrics(t *testing.T) {
	w, registry := newMeteredServer(t, fileStore(t))
	for range 3 {
		w.post("/chat/users/alice/ping", "")
	}
	w.fails(problem.InvalidTime, "POST", "/chat/users/alice/ping", `{"at":"x"}`)
	w.get("/chat/users/alice")
	w.send("HEAD", "/chat/users/alice", "")
	w.post("/chat/pings", "{\"user\":\"alice\"}\n{\"user\":\"bob\"}\n", ndjson)
	w.fails(problem.InvalidUser, "GET", "/chat/users/%01", "")
	w.fails(problem.MethodNotAllowed, "PUT", "/chat/users/alice", "")
	w.send("OPTIONS", "/chat/users/alice", "")
	w.fails(problem.InvalidParameter, "GET", "/chat//x/y", "")
	w.fails(problem.NotFound, "BREW", "/chat/coffee/1", "")
	w.sendTo("GET", "/docs", "")
	var many []string
	for i := range maxHeaderLines + 1 {
		many = append(many, fmt.Sprintf("X-%d: y", i))
	}
	w.fails(problem.TooManyHeaders, "GET", "/chat/users/alice", "", many...)

	const user = "/v1/namespaces/:namespace/users/:user"
	total := samples(t, registry, "lastseen_http_requests_total")
	docs := "GET,/docs/,2xx" // the test's client follows the redirect
	require.Equal(t, map[string]float64{
		"POST," + user + "/ping,2xx": 3, "POST," + user + "/ping,4xx": 1,
		"GET," + user + ",2xx": 1, "HEAD," + user + ",2xx": 1, "GET," + user + ",4xx": 1,
		"other," + user + ",4xx": 1, "OPTIONS," + user + ",2xx": 1,
		"POST,/v1/namespaces/:namespace/pings,2xx": 1,
		"GET,/docs,3xx": 1, docs: 1,
		"GET,other,4xx": 2, "other,other,4xx": 1,
	}, total)
	durations := map[string]float64{}
	for labels, n := range total {
		durations[labels[:strings.LastIndex(labels, ",")]] += n
	}
	require.Equal(t, durations, samples(t, registry, "lastseen_http_request_duration_seconds"))
	require.Equal(t, map[string]float64{
		"invalid_time": 1, "invalid_user": 1, "method_not_allowed": 1, "invalid_parameter": 1, "not_found": 1,
		"too_many_headers": 1,
	}, samples(t, registry, "lastseen_http_errors_total"))
	require.Empty(t, samples(t, registry, "lastseen_http_requests_in_progress"))
}

// TestPreflightMetrics checks that preflight requests, which have a response before their path is used, count as other.
func TestPreflightMetrics(t *testing.T) {
	w, registry := newMeteredServer(t, fileStore(t), allowing(app))
	w.send("OPTIONS", "/chat/users/alice/ping", "", "Origin: "+app, "Access-Control-Request-Method: POST")
	require.Equal(t, map[string]float64{"OPTIONS,other,2xx": 1}, samples(t, registry, "lastseen_http_requests_total"))
	require.Empty(t, samples(t, registry, "lastseen_pings_total"))
}

// TestFailureMetrics checks the outcome of requests that panic, of an unavailable store, and of clients that are gone.
func TestFailureMetrics(t *testing.T) {
	const ping = "POST,/v1/namespaces/:namespace/users/:user/ping,"
	with := func(err error) func(store.Store) *hookedStore {
		return func(s store.Store) *hookedStore { return failing(s, err) }
	}
	for name, c := range map[string]struct {
		fail    func(store.Store) *hookedStore
		gone    bool
		outcome string
		errors  map[string]float64
	}{
		"panic":       {panicking, false, "5xx", map[string]float64{"internal": 1}},
		"unavailable": {with(store.ErrUnavailable), false, "5xx", map[string]float64{"store_unavailable": 1}},
		"client gone": {with(context.Canceled), true, "canceled", map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			w, registry := newMeteredServer(t, c.fail(fileStore(t)))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.gone {
				cancel()
			}
			r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/v1/namespaces/chat/users/a/ping", nil)
			w.ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, map[string]float64{ping + c.outcome: 1},
				samples(t, registry, "lastseen_http_requests_total"))
			require.Equal(t, c.errors, samples(t, registry, "lastseen_http_errors_total"))
			require.Equal(t, map[string]float64{"refused": 1}, samples(t, registry, "lastseen_pings_total"))
			require.Empty(t, samples(t, registry, "lastseen_http_requests_in_progress"))
			require.Zero(t, w.Shared().overload.calls.Load(), "no call to the store is in progress")
		})
	}
}

// TestPanicOfAMiddlewareIsCounted checks what echo's recovery does not see: the panic goes on to package net/http.
func TestPanicOfAMiddlewareIsCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := &server{Shared: NewShared(Config{Metrics: registry})}
	c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
	require.Panics(t, func() { _ = s.begin(func(echo.Context) error { panic("a defect") })(c) })
	require.Equal(t, map[string]float64{"GET,other,5xx": 1}, samples(t, registry, "lastseen_http_requests_total"))
	require.Empty(t, samples(t, registry, "lastseen_http_requests_in_progress"))
}

func TestProgressMetrics(t *testing.T) {
	s, asked, let := blockingStore(t, "Ping")
	w, registry := newMeteredServer(t, s, func(c *Config) { c.BodyMemory = 20 << 20 })
	body := `{"pings":[{"user":"` + strings.Repeat("a", 200) + `"}` + strings.Repeat(`,{"user":"b"}`, 100) + `]}`
	done := w.later("POST", "/chat/pings", body)
	<-asked
	require.Equal(t, map[string]float64{"": 1}, samples(t, registry, "lastseen_http_requests_in_progress"))
	w.Shared().bodies.mu.Lock()
	used := float64(w.Shared().bodies.used)
	w.Shared().bodies.mu.Unlock()
	require.Greater(t, used, float64(len(body)))
	require.Equal(t, map[string]float64{"bytes": used, "limit_bytes": 20 << 20},
		samples(t, registry, "lastseen_body_memory_"))
	close(let)
	(<-done).is(t, http.StatusOK)
	require.Empty(t, samples(t, registry, "lastseen_body_memory_bytes"))
}

// Shared returns the state of the server's handlers.
func (w *testServer) Shared() *Shared { return w.config.Shared }

func TestRateLimitMetrics(t *testing.T) {
	guarded, one, _, tokenOf := twoKeys(t)
	w, registry := newMeteredServer(t, fileStore(t), guarded, func(c *Config) {
		c.Limits = limit.Limits{Caller: 1, User: 1}
	})
	for i := range limit.Burst(1) + 3 {
		w.send("GET", "/chat", "", bearer(one), from("203.0.113.7"))
		if i < limit.Burst(1)+2 {
			w.send("GET", "/chat", "", bearer(tokenOf("alice")), from("203.0.113.7"))
		}
		if i < limit.Burst(1)+1 {
			w.send("GET", "/chat", "", from("203.0.113.7"))
		}
	}
	require.Equal(t, map[string]float64{"key": 3, "user": 2, "address": 1},
		samples(t, registry, "lastseen_rate_limited_total"))
}

// TestEventMetrics checks how pings and leaves are counted: one by one, in lists and in streams.
func TestEventMetrics(t *testing.T) {
	w, registry := newMeteredServer(t, fileStore(t))
	expect := func(pings, leaves, departures map[string]float64) {
		t.Helper()
		require.Equal(t, pings, samples(t, registry, "lastseen_pings_total"))
		require.Equal(t, leaves, samples(t, registry, "lastseen_leaves_total"))
		require.Equal(t, departures, samples(t, registry, "lastseen_departures_total"))
	}
	none := map[string]float64{}
	w.post("/chat/users/alice/ping", "")
	w.post("/chat/users/alice/ping", "") // the same time again
	w.post("/chat/users/alice/ping", `{"at":1795175999}`)
	w.fails(problem.InvalidUser, "POST", "/chat/users/%01/ping", "")
	expect(map[string]float64{"recorded": 2, "superseded": 1, "refused": 1}, none, none)

	w.post("/chat/users/alice/leave", "")
	w.post("/chat/users/alice/leave", `{"at":1795175999}`)
	w.post("/chat/users/alice/ping", "") // at the same time left wins
	w.post("/other/users/bob/leave", "")
	w.fails(problem.InvalidJSON, "POST", "/chat/users/alice/leave", `{`)
	expect(map[string]float64{"recorded": 2, "superseded": 2, "refused": 1},
		map[string]float64{"recorded": 2, "superseded": 1, "refused": 1}, map[string]float64{"left,chat": 1})

	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"carol"},{"user":"dan"}]}`)
	w.fails(problem.InvalidUser, "POST", "/chat/pings", `{"pings":[{"user":"eve"},{"user":""},{"user":"x"}]}`)
	w.fails(problem.InvalidJSON, "POST", "/chat/pings", `{"pings":[{"user":"eve"},`)
	w.post("/chat/leaves", "{\"user\":\"carol\"}\n{\"user\":\"dan\",\"at\":1795175999}\n", ndjson)
	w.fails(problem.InvalidJSON, "POST", "/chat/leaves", "{\"user\":\"dan\"}\n{", ndjson)
	expect(map[string]float64{"recorded": 4, "superseded": 3, "refused": 4},
		map[string]float64{"recorded": 4, "superseded": 2, "refused": 1}, map[string]float64{"left,chat": 3})

	found, err := testutil.GatherAndCount(registry, "lastseen_departures_total")
	require.NoError(t, err)
	require.Equal(t, 1, found, "only those who left are known before the others are counted")
	w.Shared().Telemetry.CountExpired("chat", 0)
	found, err = testutil.GatherAndCount(registry, "lastseen_departures_total")
	require.NoError(t, err)
	require.Equal(t, 2, found)
	w.Shared().Telemetry.CountExpired("chat", 5)
	w.Shared().Telemetry.CountExpired("other", 7)
	require.Equal(t, map[string]float64{"left,chat": 3, "expired,chat": 5},
		samples(t, registry, "lastseen_departures_total"))
}

// TestRefusedEvents checks that the events of a request are refused if the store fails.
func TestRefusedEvents(t *testing.T) {
	w, registry := newMeteredServer(t, failingLater(fileStore(t), store.ErrUnavailable))
	three := `{"pings":[{"user":"a"},{"user":"b"},{"user":"c"}]}`
	w.post("/chat/pings", three)
	w.fails(problem.StoreUnavailable, "POST", "/chat/pings", three)
	w.fails(problem.StoreUnavailable, "POST", "/chat/pings", "{\"user\":\"a\"}\n{\"user\":\"b\"}\n", ndjson)
	w.fails(problem.StoreUnavailable, "POST", "/chat/users/a/ping", "")
	require.Equal(t, map[string]float64{"recorded": 3, "refused": 6}, samples(t, registry, "lastseen_pings_total"))
}

// TestGapMetric checks that times between pings are multiples of the namespace's ping interval.
func TestGapMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	shared := NewShared(Config{Metrics: registry})
	gap := shared.Telemetry.GapObserver()
	gap("chat", time.Minute) // before there is a handler
	New(Config{
		Shared: shared, Settings: Settings{PingInterval: 30 * time.Second},
		Namespaces: map[string]Settings{"slow": {PingInterval: time.Minute}},
	})
	gap("chat", 45*time.Second)
	gap("slow", 3*time.Minute)
	require.Equal(t, map[string]float64{"": 2}, samples(t, registry, "lastseen_ping_gap_ratio"))
	require.InDelta(t, 1.5+3, sum(t, registry, "lastseen_ping_gap_ratio"), 1e-9)
	require.Nil(t, NewShared(Config{}).Telemetry.GapObserver())
}

// TestReloadKeepsCounts checks that a new handler continues the metrics of the one that it replaces.
func TestReloadKeepsCounts(t *testing.T) {
	w, registry := newMeteredServer(t, fileStore(t))
	w.post("/chat/users/alice/leave", "")
	w.reload(func(c *Config) { c.Namespaces = map[string]Settings{"other": c.Settings} })
	for _, namespace := range []string{"chat", "other"} {
		w.post("/"+namespace+"/users/bob/leave", "")
	}
	require.Equal(t, map[string]float64{"recorded": 3}, samples(t, registry, "lastseen_leaves_total"))
	require.Equal(t, map[string]float64{"left,chat": 1, "left,other": 1},
		samples(t, registry, "lastseen_departures_total"))
	require.Equal(t, map[string]float64{"POST,/v1/namespaces/:namespace/users/:user/leave,2xx": 3},
		samples(t, registry, "lastseen_http_requests_total"))
}

// TestHistogramsHaveBothForms checks that a histogram has native buckets and classic ones.
func TestHistogramsHaveBothForms(t *testing.T) {
	w, registry := newMeteredServer(t, fileStore(t))
	w.get("/chat")
	families, err := registry.Gather()
	require.NoError(t, err)
	found := 0
	for _, family := range families {
		if family.GetName() == "lastseen_http_request_duration_seconds" {
			h := family.GetMetric()[0].GetHistogram()
			require.NotEmpty(t, h.GetBucket())
			require.NotEmpty(t, h.GetPositiveSpan())
			found++
		}
	}
	require.Equal(t, 1, found)
}
