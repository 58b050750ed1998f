//go:build faults

package faults

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// mostMemory is far above the 70 MB that lastseen takes under load.
const mostMemory = 256 << 20

// spoil is a way to spoil connections: see [proxy.spoil].
type spoil struct{ name, toxic, attributes string }

func spoils() []spoil {
	return []spoil{
		{"slow", "latency", `{"latency":1000,"jitter":500}`},
		{"silent", "timeout", `{"timeout":0}`},
		{"reset", "reset_peer", `{"timeout":0}`},
		{"cut off", "limit_data", `{"bytes":1000}`},
		{"1 KB per second", "bandwidth", `{"rate":1}`},
	}
}

// TestRedisSpoiled spoils the connections to Redis in several ways under load. Responses stay true and in time, memory
// stays bounded, what does not need Redis stays fast, and service resumes.
func TestRedisSpoiled(t *testing.T) {
	redis := redistest.StartProcess(t)
	p := startProxy(t, redis.Addr)
	s := startServer(t, p.url())
	l := startLoad(t, loadOptions{workers: 50, readers: 10, rate: 1000}, s.url)
	for _, spoil := range spoils() {
		for _, stream := range []string{"upstream", "downstream"} { // commands or replies
			l.awaitPings(t, 200)
			l.reset()
			p.spoil(t, spoil.toxic, stream, spoil.attributes)
			l.awaitFailures(t, 50)
			time.Sleep(testenv.Choose(10*time.Second, time.Second))
			requireFastWithoutRedis(t, s)
			require.Less(t, s.memory(t), int64(mostMemory))
			p.heal(t)
			begin := time.Now()
			l.awaitPings(t, 1)
			t.Logf("%s %s: %s; the first ping %s after its end", spoil.name, stream, l.snapshot(),
				time.Since(begin).Round(time.Millisecond))
			require.Less(t, l.snapshot().slowest, longestFailure)
			requireOnly(t, l.snapshot(), "503 store_unavailable", overloaded)
		}
	}
	l.awaitPings(t, 200)
	l.stop(t)
	t.Logf("%d users verified, %d MB of memory", l.verify(t, s.url), s.memory(t)>>20)
	require.Positive(t, s.metric(t, "lastseen_store_call_duration_seconds", "outcome", "unavailable"))
	require.Positive(t, s.metric(t, "lastseen_breaker_opened_total"))
	await(t, "closed breakers", func() bool { return s.metric(t, "lastseen_breaker_state") == 0 })
	s.awaitLog(t, "circuit breaker opened")
	s.awaitLog(t, "circuit breaker closed")
}

// requireFastWithoutRedis requires that what does not need Redis does not wait for it.
func requireFastWithoutRedis(t *testing.T, s *server) {
	t.Helper()
	for _, path := range []string{"/healthz", "/version", "/docs/", "/openapi.json"} {
		r := s.request(t, http.MethodGet, path)
		require.Equal(t, http.StatusOK, r.status, path)
		require.Less(t, r.took, longestFailure, path) // it takes a millisecond
	}
	r := s.request(t, http.MethodGet, "/readyz")
	require.Less(t, r.took, longestFailure)
}
