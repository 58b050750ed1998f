//go:build faults

package faults

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestRedisFull lets Redis run out of memory under load. Pings and leaves fail and say so, lookups succeed, and all
// succeed when there is memory again.
func TestRedisFull(t *testing.T) {
	redis := redistest.StartProcess(t, "--maxmemory-policy", "noeviction")
	admin := redis.Client(t)
	s := startServer(t, redis.URL())
	l := startLoad(t, loadOptions{leaves: 0.1}, s.url)
	for range testenv.Choose(5, 2) {
		l.awaitPings(t, 200)
		require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1mb").Err()) // less than it takes now
		l.awaitFailures(t, 1)
		l.reset()
		l.awaitFailures(t, 100)
		during := l.snapshot()
		require.Less(t, during.slowest, longestFailure)
		requireOnly(t, during, "503 store_full", overloaded)
		require.Positive(t, during.lookups)
		require.Equal(t, http.StatusServiceUnavailable, s.request(t, http.MethodGet, "/readyz").status)
		require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}
	l.awaitPings(t, 200)
	await(t, "readiness", func() bool { return s.ready(t) })
	l.stop(t)
	t.Logf("%d users verified", l.verify(t, s.url))
	require.Positive(t, s.metric(t, "lastseen_http_errors_total", "code", "store_full"))
	require.Positive(t, s.metric(t, "lastseen_store_call_duration_seconds", "outcome", "full"))
	s.awaitLog(t, "code=store_full")
}
