package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

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

func TestRequestMetrics(t *testing.T) {
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t))
	for range 3 {
		w.Post("/chat/users/alice/ping", "")
	}
	w.Fails(problem.InvalidTime, "POST", "/chat/users/alice/ping", `{"at":"x"}`)
	w.Get("/chat/users/alice")
	w.Send("HEAD", "/chat/users/alice", "")
	w.Post("/chat/pings", "{\"user\":\"alice\"}\n{\"user\":\"bob\"}\n", kit.NDJSON)
	w.Fails(problem.InvalidUser, "GET", "/chat/users/%01", "")
	w.Fails(problem.MethodNotAllowed, "PUT", "/chat/users/alice", "")
	w.Send("OPTIONS", "/chat/users/alice", "")
	w.Fails(problem.InvalidParameter, "GET", "/chat//x/y", "")
	w.Fails(problem.NotFound, "BREW", "/chat/coffee/1", "")
	w.SendTo("GET", "/docs", "")
	w.SendTo("GET", "/guides/faq", "")
	w.SendTo("GET", "/guides/concepts", "")
	w.SendTo("GET", "/guides/nothing", "").Is(t, http.StatusNotFound)
	var many []string
	for i := range kit.MaxHeaderLines + 1 {
		many = append(many, fmt.Sprintf("X-%d: y", i))
	}
	w.Fails(problem.TooManyHeaders, "GET", "/chat/users/alice", "", many...)

	const user = "/v1/namespaces/:namespace/users/:user"
	total := kit.Samples(t, registry, "lastseen_http_requests_total")
	docs := "GET,/docs/,2xx" // the test's client follows the redirect
	require.Equal(t, map[string]float64{
		"POST," + user + "/ping,2xx": 3, "POST," + user + "/ping,4xx": 1,
		"GET," + user + ",2xx": 1, "HEAD," + user + ",2xx": 1, "GET," + user + ",4xx": 1,
		"other," + user + ",4xx": 1, "OPTIONS," + user + ",2xx": 1,
		"POST,/v1/namespaces/:namespace/pings,2xx": 1,
		"GET,/docs,3xx": 1, docs: 1, "GET,/guides/*,2xx": 2, "GET,/guides/*,4xx": 1,
		"GET,other,4xx": 2, "other,other,4xx": 1,
	}, total)
	durations := map[string]float64{}
	for labels, n := range total {
		durations[labels[:strings.LastIndex(labels, ",")]] += n
	}
	require.Equal(t, durations, kit.Samples(t, registry, "lastseen_http_request_duration_seconds"))
	require.Equal(t, map[string]float64{
		"invalid_time": 1, "invalid_user": 1, "method_not_allowed": 1, "invalid_parameter": 1, "not_found": 2,
		"too_many_headers": 1,
	}, kit.Samples(t, registry, "lastseen_http_errors_total"))
	require.Empty(t, kit.Samples(t, registry, "lastseen_http_requests_in_progress"))
}

// TestPreflightMetrics checks that preflight requests, which have a response before their path is used, count as other.
func TestPreflightMetrics(t *testing.T) {
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t), apitest.Allowing(kit.AppOrigin))
	w.Send("OPTIONS", "/chat/users/alice/ping", "", "Origin: "+kit.AppOrigin, "Access-Control-Request-Method: POST")
	require.Equal(t, map[string]float64{"OPTIONS,other,2xx": 1}, kit.Samples(t, registry, "lastseen_http_requests_total"))
	require.Empty(t, kit.Samples(t, registry, "lastseen_pings_total"))
}

// TestFailureMetrics checks the outcome of requests that panic, of an unavailable store, and of clients that are gone.
func TestFailureMetrics(t *testing.T) {
	const ping = "POST,/v1/namespaces/:namespace/users/:user/ping,"
	with := func(err error) func(store.Store) *kit.HookedStore {
		return func(s store.Store) *kit.HookedStore { return kit.Failing(s, err) }
	}
	for name, c := range map[string]struct {
		fail    func(store.Store) *kit.HookedStore
		gone    bool
		outcome string
		errors  map[string]float64
	}{
		"panic":       {kit.Panicking, false, "5xx", map[string]float64{"internal": 1}},
		"unavailable": {with(store.ErrUnavailable), false, "5xx", map[string]float64{"store_unavailable": 1}},
		"client gone": {with(context.Canceled), true, "canceled", map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			w, registry := apitest.NewMeteredServer(t, c.fail(kit.FileStore(t)))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.gone {
				cancel()
			}
			r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/v1/namespaces/chat/users/a/ping", nil)
			w.ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, map[string]float64{ping + c.outcome: 1},
				kit.Samples(t, registry, "lastseen_http_requests_total"))
			require.Equal(t, c.errors, kit.Samples(t, registry, "lastseen_http_errors_total"))
			require.Equal(t, map[string]float64{"refused": 1}, kit.Samples(t, registry, "lastseen_pings_total"))
			require.Empty(t, kit.Samples(t, registry, "lastseen_http_requests_in_progress"))
			require.Zero(t, w.Config.Shared.CallsInProgress(), "no call to the store is in progress")
		})
	}
}

func TestProgressMetrics(t *testing.T) {
	s, asked, let := kit.BlockingStore(t, "Ping")
	w, registry := apitest.NewMeteredServer(t, s, func(c *api.Config) { c.BodyMemory = 20 << 20 })
	body := `{"pings":[{"user":"` + strings.Repeat("a", 200) + `"}` + strings.Repeat(`,{"user":"b"}`, 100) + `]}`
	done := w.Later("POST", "/chat/pings", body)
	<-asked
	require.Equal(t, map[string]float64{"": 1}, kit.Samples(t, registry, "lastseen_http_requests_in_progress"))
	used := float64(w.Config.Shared.BodyMemoryUsed())
	require.Greater(t, used, float64(len(body)))
	require.Equal(t, map[string]float64{"bytes": used, "limit_bytes": 20 << 20},
		kit.Samples(t, registry, "lastseen_body_memory_"))
	close(let)
	(<-done).Is(t, http.StatusOK)
	require.Empty(t, kit.Samples(t, registry, "lastseen_body_memory_bytes"))
}

func TestRateLimitMetrics(t *testing.T) {
	guarded, one, _, tokenOf := apitest.TwoKeys(t)
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t), guarded, func(c *api.Config) {
		c.Limits = limit.Limits{Caller: 1, User: 1}
	})
	for i := range limit.Burst(1) + 3 {
		w.Send("GET", "/chat", "", kit.Bearer(one), kit.ForwardedFor("203.0.113.7"))
		if i < limit.Burst(1)+2 {
			w.Send("GET", "/chat", "", kit.Bearer(tokenOf("alice")), kit.ForwardedFor("203.0.113.7"))
		}
		if i < limit.Burst(1)+1 {
			w.Send("GET", "/chat", "", kit.ForwardedFor("203.0.113.7"))
		}
	}
	require.Equal(t, map[string]float64{"key": 3, "user": 2, "address": 1},
		kit.Samples(t, registry, "lastseen_rate_limited_total"))
}

// TestEventMetrics checks how pings and leaves are counted: one by one, in lists and in streams.
func TestEventMetrics(t *testing.T) {
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t))
	expect := func(pings, leaves, departures map[string]float64) {
		t.Helper()
		require.Equal(t, pings, kit.Samples(t, registry, "lastseen_pings_total"))
		require.Equal(t, leaves, kit.Samples(t, registry, "lastseen_leaves_total"))
		require.Equal(t, departures, kit.Samples(t, registry, "lastseen_departures_total"))
	}
	none := map[string]float64{}
	w.Post("/chat/users/alice/ping", "")
	w.Post("/chat/users/alice/ping", "") // the same time again
	w.Post("/chat/users/alice/ping", `{"at":1795175999}`)
	w.Fails(problem.InvalidUser, "POST", "/chat/users/%01/ping", "")
	expect(map[string]float64{"recorded": 2, "superseded": 1, "refused": 1}, none, none)

	w.Post("/chat/users/alice/leave", "")
	w.Post("/chat/users/alice/leave", `{"at":1795175999}`)
	w.Post("/chat/users/alice/ping", "") // at the same time left wins
	w.Post("/other/users/bob/leave", "")
	w.Fails(problem.InvalidJSON, "POST", "/chat/users/alice/leave", `{`)
	expect(map[string]float64{"recorded": 2, "superseded": 2, "refused": 1},
		map[string]float64{"recorded": 2, "superseded": 1, "refused": 1}, map[string]float64{"left,chat": 1})

	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"carol"},{"user":"dan"}]}`)
	w.Fails(problem.InvalidUser, "POST", "/chat/pings", `{"pings":[{"user":"eve"},{"user":""},{"user":"x"}]}`)
	w.Fails(problem.InvalidJSON, "POST", "/chat/pings", `{"pings":[{"user":"eve"},`)
	w.Post("/chat/leaves", "{\"user\":\"carol\"}\n{\"user\":\"dan\",\"at\":1795175999}\n", kit.NDJSON)
	w.Fails(problem.InvalidJSON, "POST", "/chat/leaves", "{\"user\":\"dan\"}\n{", kit.NDJSON)
	expect(map[string]float64{"recorded": 4, "superseded": 3, "refused": 4},
		map[string]float64{"recorded": 4, "superseded": 2, "refused": 1}, map[string]float64{"left,chat": 3})

	found, err := testutil.GatherAndCount(registry, "lastseen_departures_total")
	require.NoError(t, err)
	require.Equal(t, 1, found, "only those who left are known before the others are counted")
	w.Config.Shared.Telemetry.CountExpired("chat", 0)
	found, err = testutil.GatherAndCount(registry, "lastseen_departures_total")
	require.NoError(t, err)
	require.Equal(t, 2, found)
	w.Config.Shared.Telemetry.CountExpired("chat", 5)
	w.Config.Shared.Telemetry.CountExpired("other", 7)
	require.Equal(t, map[string]float64{"left,chat": 3, "expired,chat": 5},
		kit.Samples(t, registry, "lastseen_departures_total"))
}

// TestRefusedEvents checks that the events of a request are refused if the store fails.
func TestRefusedEvents(t *testing.T) {
	w, registry := apitest.NewMeteredServer(t, kit.FailingLater(kit.FileStore(t), store.ErrUnavailable))
	three := `{"pings":[{"user":"a"},{"user":"b"},{"user":"c"}]}`
	w.Post("/chat/pings", three)
	w.Fails(problem.StoreUnavailable, "POST", "/chat/pings", three)
	w.Fails(problem.StoreUnavailable, "POST", "/chat/pings", "{\"user\":\"a\"}\n{\"user\":\"b\"}\n", kit.NDJSON)
	w.Fails(problem.StoreUnavailable, "POST", "/chat/users/a/ping", "")
	require.Equal(t, map[string]float64{"recorded": 3, "refused": 6}, kit.Samples(t, registry, "lastseen_pings_total"))
}

// TestGapMetric checks that times between pings are multiples of the namespace's ping interval.
func TestGapMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	shared := api.NewShared(api.Config{Metrics: registry})
	gap := shared.Telemetry.ObserveGap
	gap("chat", time.Minute) // before there is a handler
	api.New(api.Config{
		Shared: shared, Settings: api.Settings{PingInterval: 30 * time.Second},
		Namespaces: map[string]api.Settings{"slow": {PingInterval: time.Minute}},
	})
	gap("chat", 45*time.Second)
	gap("slow", 3*time.Minute)
	require.Equal(t, map[string]float64{"": 2}, kit.Samples(t, registry, "lastseen_ping_gap_ratio"))
	require.InDelta(t, 1.5+3, sum(t, registry, "lastseen_ping_gap_ratio"), 1e-9)
}

// TestReloadKeepsCounts checks that a new handler continues the metrics of the one that it replaces.
func TestReloadKeepsCounts(t *testing.T) {
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t))
	w.Post("/chat/users/alice/leave", "")
	w.Reload(func(c *api.Config) { c.Namespaces = map[string]api.Settings{"other": c.Settings} })
	for _, namespace := range []string{"chat", "other"} {
		w.Post("/"+namespace+"/users/bob/leave", "")
	}
	require.Equal(t, map[string]float64{"recorded": 3}, kit.Samples(t, registry, "lastseen_leaves_total"))
	require.Equal(t, map[string]float64{"left,chat": 1, "left,other": 1},
		kit.Samples(t, registry, "lastseen_departures_total"))
	require.Equal(t, map[string]float64{"POST,/v1/namespaces/:namespace/users/:user/leave,2xx": 3},
		kit.Samples(t, registry, "lastseen_http_requests_total"))
}

// TestHistogramsHaveBothForms checks that a histogram has native buckets and classic ones.
func TestHistogramsHaveBothForms(t *testing.T) {
	w, registry := apitest.NewMeteredServer(t, kit.FileStore(t))
	w.Get("/chat")
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

// TestStreamMemory checks that the memory of a stream is counted, and released after each chunk.
func TestStreamMemory(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t), func(c *api.Config) { c.BodyMemory = api.MinBodyMemory })
	used := w.Config.Shared.BodyMemoryUsed
	s := w.Upload()
	for i := range 3 {
		fmt.Fprintf(s, "{\"user\":\"u%d\"}\n{\"user\":", i)
		kit.Await(t, func() bool { return w.Total("chat") == 2*i+1 })
		kit.Await(t, func() bool { return used() == kit.ReadBuffer }, "between two chunks")
		fmt.Fprintf(s, "\"v%d\"}\n", i)
		kit.Await(t, func() bool { return w.Total("chat") == 2*i+2 })
	}
	kit.Await(t, func() bool { return used() == kit.ReadBuffer }, "between two chunks")
	release, err := w.Config.Shared.FillBodyMemory()
	require.NoError(t, err)
	w.Fails(problem.Overloaded, "POST", "/chat/pings", "{\"user\":\"bob\"}\n", kit.NDJSON)
	fmt.Fprint(s, "{\"user\":\"eve\"}\n")
	require.NoError(t, s.Close()) // or the server would wait for more
	r := (<-s.Response).Is(t, http.StatusServiceUnavailable)
	require.EqualValues(t, 6, r.JSON(t)["recorded"], r.Body)
	release()
	require.Zero(t, used())
}
