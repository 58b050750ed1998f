package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
)

// The rungs of the ladder, by what is refused in addition.
const (
	rungDeep = iota + 1
	rungBulk
	rungLookups
)

// ladderRequests are requests with their bodies, by the rung of a ladder from which on they are refused. Those of rung
// 0 never are.
func ladderRequests() map[int]map[string]string {
	return map[int]map[string]string{
		rungDeep: {
			"GET /chat/counts": "", "GET /chat/users?limit=51": "", "GET /chat/users?offset=0": "",
			"GET /chat/users?cursor=x": "", "HEAD /chat/counts": "", "GET ?limit=100": "",
		},
		rungBulk: {
			"GET /chat/users": "", "GET /chat/users?limit=50&status=green": "", "GET ": "",
			"POST /chat/pings": `{"pings":[{"user":"a"}]}`, "POST /chat/leaves": `{"leaves":[{"user":"a"}]}`,
		},
		rungLookups: {
			"GET /chat/users/alice": "", "GET /chat/lookup?user=a": "", "POST /chat/lookup": `{"users":["a"]}`,
			"GET /chat/users/alice/dot.svg": "",
		},
		0: {
			"POST /chat/users/alice/ping": "", "POST /chat/users/alice/leave": "", "DELETE /chat/users/alice": "",
			"DELETE /chat?confirm=chat": "", "GET /chat": "",
		},
	}
}

// checkRung sends all requests, and checks that each is refused from its rung on.
func (l *loadTest) checkRung(current int) {
	l.Helper()
	for from, requests := range ladderRequests() {
		for request, body := range requests {
			w := l.send(request, body)
			if from == 0 || current < from {
				require.NotEqual(l, http.StatusServiceUnavailable, w.Code, "%s on rung %d", request, current)
				continue
			}
			require.Equal(l, http.StatusServiceUnavailable, w.Code, "%s on rung %d", request, current)
			if !strings.HasPrefix(request, "HEAD") {
				require.Contains(l, w.Body.String(), `"code":"overloaded"`)
			}
			require.NotEmpty(l, w.Header().Get("Retry-After"))
		}
	}
}

// TestLadder goes up and down the ladder: what is refused at each load, that a rung is left later than it is entered,
// and that the end comes without requests.
func TestLadder(t *testing.T) {
	s := &loadedStore{}
	underLoad(t, s, func(l *loadTest) {
		for _, step := range []struct {
			load float64
			rung int
		}{
			{0.49, 0},
			{0.52, rungDeep},
			{0.64, rungDeep},
			{0.67, rungBulk},
			{0.79, rungBulk},
			{0.82, rungLookups},
			{1, rungLookups},
			{0.72, rungLookups},
			{0.68, rungBulk},
			{0.57, rungBulk},
			{0.53, rungDeep},
			{0.42, rungDeep},
			{0.39, 0},
			{0.49, 0},
			{0.9, rungLookups},
		} {
			s.setLoad(step.load)
			l.send("POST /chat/users/alice/ping", "") // the load is read while there are requests
			wait(20 * time.Second)
			require.InDelta(l, step.load, l.shared.load.Level(), 0.01)
			l.checkRung(step.rung)
		}
		s.setLoad(0)
		wait(time.Minute)
		require.Zero(l, l.shared.load.Level())
		l.checkRung(0)
	})
}

// TestShortLoadIsIgnored checks that a pause of less than a second, such as that of a slow machine, refuses nothing.
func TestShortLoadIsIgnored(t *testing.T) {
	s := &loadedStore{}
	underLoad(t, s, func(l *loadTest) {
		for range 10 {
			s.setLoad(1)
			l.send("POST /chat/users/alice/ping", "")
			wait(time.Second)
			l.checkRung(0)
			s.setLoad(0)
			wait(10 * time.Second)
		}
		require.Empty(l, l.log.Take())
	})
}

// TestShedBeforeBody checks that a refused request is answered before its body arrives.
func TestShedBeforeBody(t *testing.T) {
	s := &loadedStore{}
	underLoad(t, s, func(l *loadTest) {
		s.setLoad(1)
		l.send("POST /chat/users/alice/ping", "")
		wait(10 * time.Second)
		body := &unread{}
		w := httptest.NewRecorder()
		request := httptest.NewRequest("POST", "http://localhost/v1/namespaces/chat/pings", body)
		l.api.ServeHTTP(&flushedFirst{w, body, l}, request)
		require.Equal(l, http.StatusServiceUnavailable, w.Code)
	})
}

// flushedFirst is a response that has to be sent before a body is read.
type flushedFirst struct {
	*httptest.ResponseRecorder
	body *unread
	l    *loadTest
}

// WriteHeader is that of an [http.ResponseWriter].
func (f *flushedFirst) WriteHeader(status int) {
	require.False(f.l, f.body.read)
	f.ResponseRecorder.WriteHeader(status)
}

// TestOverloadIsLogged checks the lines about an overload: one when it begins, one for each rung, one at its end, and
// none for the requests refused, nor when the load comes and goes.
func TestOverloadIsLogged(t *testing.T) {
	s := &loadedStore{}
	underLoad(t, s, func(l *loadTest) {
		for range 5 {
			s.setLoad(0.6)
			l.send("POST /chat/users/alice/ping", "")
			wait(5 * time.Second)
			l.send("GET /chat/counts", "")
			s.setLoad(0)
			wait(5 * time.Second)
		}
		require.Regexp(l, `^\S+ level=WARN msg="overloaded; some requests are refused to leave room for pings" load=0.5 `+
			`refused=lists\n$`, l.log.Take())
		s.setLoad(1)
		wait(20 * time.Second)
		for range 3 {
			l.send("GET /chat/users/alice", "")
		}
		l.send("POST /chat/pings", "")
		require.Regexp(l, `^.*refused="lists, bulk requests"\n.*refused="lists, bulk requests, lookups"\n$`, l.log.Take())
		s.setLoad(0)
		wait(20 * time.Second)
		require.Regexp(l, `^\S+ level=INFO msg="no longer overloaded" lists=5 bulk=1 lookups=3 after=\S+\n$`, l.log.Take())
		wait(time.Hour)
		require.Empty(l, l.log.Take())
	})
}

// TestStretchedInterval checks the advised interval at each load, in both forms of the response.
func TestStretchedInterval(t *testing.T) {
	s := &loadedStore{}
	underLoad(t, s, func(l *loadTest) {
		for load, want := range map[float64]int{0: 10_000, 0.3: 10_000, 0.55: 20_000, 0.8: 30_000, 1: 30_000} {
			s.setLoad(load)
			l.send("POST /chat/users/alice/ping", "")
			wait(time.Minute)
			w := httptest.NewRecorder()
			request := httptest.NewRequest("POST", "http://localhost/v1/namespaces/chat/users/a/ping", nil)
			request.Header.Set("Prefer", "return=minimal")
			l.api.ServeHTTP(w, request)
			minimal, err := strconv.Atoi(w.Header().Get("Lastseen-Ping-After-Ms"))
			require.NoError(l, err)
			require.InDelta(l, want, minimal, 200, "at load %v", load)
			response := l.send("POST /chat/users/a/ping", "").Body.String()
			require.Contains(l, response, fmt.Sprint(`"ping_after_ms":`, minimal))
			require.InDelta(l, float64(want)/10_000, l.shared.load.IntervalFactor(), 0.02)
		}
		s.setLoad(0)
		wait(time.Minute)
		require.InDelta(l, 1, l.shared.load.IntervalFactor(), 0)
		require.Contains(l, l.send("POST /chat/users/a/ping", "").Body.String(), `"ping_after_ms":9999`)
	}, func(c *Config) { c.Random = func() float64 { return 0.99999 } })
}

// TestIntervalStaysWithinGreen checks that no load stretches an interval beyond half of green, and that more load never
// shortens it.
func TestIntervalStaysWithinGreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		millisecond := rapid.Int64Range(1, int64(24*time.Hour/time.Millisecond))
		settings := Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Duration(millisecond.Draw(t, "green")) * time.Millisecond},
			PingInterval: time.Duration(millisecond.Draw(t, "interval")) * time.Millisecond,
		}
		random := rapid.Float64Range(0, 0.9999999).Draw(t, "random")
		s := &server{Shared: quietShared(), Config: Config{Random: func() float64 { return random }}}
		idle := s.pingAfter(settings)
		last := idle
		for range rapid.IntRange(1, 200).Draw(t, "readings") {
			s.load.Read(1)
			after := s.pingAfter(settings)
			require.GreaterOrEqual(t, after, last)
			last = after
		}
		half := (settings.Thresholds.Green / 2).Milliseconds()
		require.LessOrEqual(t, last, max(idle, half))
		for range 300 {
			s.load.Read(0)
		}
		require.Equal(t, idle, s.pingAfter(settings), "relaxed")
	})
}

// TestCallsInProgressAreLoad checks a store without its own queue: the calls in progress are the load.
func TestCallsInProgressAreLoad(t *testing.T) {
	s := &loadedStore{}
	underLoad(t, s, func(l *loadTest) {
		const calls = 1 << 14 * 6 / 10 // of those that are full load
		for range calls {
			l.shared.load.Begin()
		}
		l.send("POST /chat/users/alice/ping", "")
		wait(20 * time.Second)
		l.checkRung(rungDeep)
		for range calls {
			l.shared.load.End()
		}
		wait(20 * time.Second)
		l.checkRung(0)
	})
}

// TestRetryAfterGrows checks that clients that are refused together come back in more and more different seconds.
func TestRetryAfterGrows(t *testing.T) {
	load := quietShared().load
	require.Equal(t, 1, load.RetryAfter(0))
	require.Equal(t, 5, load.RetryAfter(0.999))
	for range 300 {
		load.Read(1)
	}
	require.Equal(t, 15, load.RetryAfter(0.999))
	require.Equal(t, 1, load.RetryAfter(0))
}

// TestLoadMetrics checks the metrics of the load by exact values.
func TestLoadMetrics(t *testing.T) {
	s, registry := &loadedStore{}, prometheus.NewRegistry()
	underLoad(t, s, func(l *loadTest) {
		s.setLoad(1)
		l.send("POST /chat/users/alice/ping", "")
		wait(5 * time.Minute)
		for _, request := range []string{
			"GET /chat/counts", "GET /chat/users", "GET ", "POST /chat/leaves", "GET /chat/users/alice",
			"POST /chat/lookup",
		} {
			l.send(request, "")
		}
		require.NoError(l, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP lastseen_ping_interval_factor By how much advised ping intervals are stretched now.
# TYPE lastseen_ping_interval_factor gauge
lastseen_ping_interval_factor 3
# HELP lastseen_shed_requests_total Requests refused to leave room for pings.
# TYPE lastseen_shed_requests_total counter
lastseen_shed_requests_total{kind="bulk"} 1
lastseen_shed_requests_total{kind="list"} 3
lastseen_shed_requests_total{kind="lookup"} 2
`), "lastseen_ping_interval_factor", "lastseen_shed_requests_total"))
		require.InDelta(l, 1, l.shared.load.Level(), 0.001)
		s.setLoad(0)
		wait(time.Minute)
		require.NoError(l, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP lastseen_load How close the server is to its limits, 0 to 1.
# TYPE lastseen_load gauge
lastseen_load 0
`), "lastseen_load"))
	}, func(c *Config) { c.Metrics = registry })
}
