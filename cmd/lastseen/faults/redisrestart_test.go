//go:build faults

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// longestFailure is far beyond twice --redis-timeout, 500 ms, within which every request has a response: a busy machine
// made it 4 s.
const longestFailure = 15 * time.Second

// overloaded is how a server refuses requests when a machine is too busy for the load, or behind a slow Redis.
const overloaded = "503 overloaded"

// TestRedisKilled kills Redis under load and starts it again, with its data on disk. Requests fail in time meanwhile,
// and everything acknowledged is there afterwards.
func TestRedisKilled(t *testing.T) {
	redis := redistest.StartProcess(t, "--appendfsync", "always")
	s := startServer(t, redis.URL())
	l := startLoad(t, loadOptions{leaves: 0.1}, s.url)
	for range testenv.Choose(5, 2) {
		l.awaitPings(t, 200)
		redis.Stop(t)
		l.awaitFailures(t, 50)
		redis.Start(t)
		begin := time.Now()
		l.awaitPings(t, 1)
		t.Logf("the first ping %s after the return of Redis", time.Since(begin).Round(time.Millisecond))
		require.Less(t, time.Since(begin), 10*time.Second) // five times what is promised
	}
	s.awaitLog(t, "requests succeed again")
	stats := l.stop(t)
	require.Less(t, stats.slowestFailure, longestFailure)
	requireOnly(t, stats, "503 store_unavailable", overloaded)
	t.Logf("%d users verified", l.verify(t, s.url))
	require.Positive(t, s.metric(t, "lastseen_pings_total", "result", "refused"))
	require.Positive(t, s.metric(t, "lastseen_http_errors_total", "code", "store_unavailable"))
	require.Positive(t, s.metric(t, "lastseen_store_call_duration_seconds", "outcome", "unavailable"))
}
