package jobs

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// testClocks are clocks that a test sets.
type testClocks struct {
	begun   time.Time
	elapsed atomic.Int64 // monotonic time
	wrong   atomic.Int64 // how far the machine's clock is off
}

func (c *testClocks) monotonic() time.Duration { return time.Duration(c.elapsed.Load()) }

// wall is what the machine's clock shows.
func (c *testClocks) wall() time.Time {
	return c.begun.Add(c.monotonic() + time.Duration(c.wrong.Load()))
}

// openFile opens a store in a file on some clocks.
func openFile(
	t *testing.T, sync time.Duration, now func() time.Time, monotonic func() time.Duration,
) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: sync, Now: now, Monotonic: monotonic,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// openRedis opens a store on a Redis, on some clocks; nil for those of the machine.
func openRedis(t *testing.T, url string, now func() time.Time, monotonic func() time.Duration) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Options{
		URL: url, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Now: now, Monotonic: monotonic,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// clockedServer is a server on a store, with a retention of 30 days, whose machine's clock a test sets.
type clockedServer struct {
	url     string
	store   store.Store
	wrong   *atomic.Int64 // how far the machine's clock is off
	elapsed *atomic.Int64 // how far the test set monotonic time forward
	job     *Retention
}

// newClockedServer serves the store that open returns.
func newClockedServer(t *testing.T, open func(func() time.Time, func() time.Duration) store.Store) *clockedServer {
	t.Helper()
	c, start := &clockedServer{wrong: new(atomic.Int64), elapsed: new(atomic.Int64)}, time.Now()
	monotonic := func() time.Duration { return time.Since(start) + time.Duration(c.elapsed.Load()) }
	s := open(func() time.Time { return start.Add(monotonic() + time.Duration(c.wrong.Load())).Round(0) }, monotonic)
	c.store = s
	server := httptest.NewServer(api.New(api.Config{
		Store: s, Logger: slog.New(slog.DiscardHandler),
		Settings: api.Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
			PingInterval: 30 * time.Second,
		},
	}))
	t.Cleanup(server.Close)
	c.url = server.URL + "/v1/namespaces/chat"
	c.job = newSteadyRetention(s, slog.New(slog.DiscardHandler))
	c.job.rules.Users = func(string) time.Duration { return 30 * 24 * time.Hour }
	c.job.rules.Configured = func(string) bool { return false }
	c.job.monotonic, c.job.pause = monotonic, func(context.Context, time.Duration) {}
	return c
}

// send makes a request and returns its response.
func (c *clockedServer) send(t *testing.T, method, path, body string) map[string]any {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	var result map[string]any
	require.NoError(t, json.NewDecoder(response.Body).Decode(&result))
	require.Equal(t, http.StatusOK, response.StatusCode, result)
	return result
}

// sweep is a round of retention.
func (c *clockedServer) sweep(t *testing.T) {
	t.Helper()
	require.True(t, c.job.hasLease(t.Context()))
	require.NoError(t, c.job.round(t.Context()))
}

// wrongClocks are ways in which a clock is wrong.
func wrongClocks() []time.Duration {
	const years = 30 * 365 * 24 * time.Hour
	return []time.Duration{1000 * time.Hour, -1000 * time.Hour, years, -years}
}

// requireWrongClockCostsNothing lets the machine's clock of one server be wrong for half a second, in which somebody
// asks it, pings and leaves. other is another server on the same store, or the same one. Between requests monotonic
// time is set forward by a step.
func requireWrongClockCostsNothing(t *testing.T, c, other *clockedServer, step time.Duration) {
	t.Helper()
	send := func(method, path, body string) map[string]any { t.Helper(); return c.send(t, method, path, body) }
	send(http.MethodPost, "/pings", `{"pings":[{"user":"seen"},{"user":"goes"}]}`)
	send(http.MethodPost, "/users/gone/leave", "")
	c.sweep(t)
	for _, wrong := range wrongClocks() {
		c.wrong.Store(int64(wrong))
		for range 5 {
			require.Equal(t, "green", send(http.MethodGet, "/users/seen", "")["status"], "%s", wrong)
			now := time.Now().Add(time.Duration(c.elapsed.Load()))
			pinged, err := time.Parse(time.RFC3339, send(http.MethodPost, "/users/goes/ping", "")["last_seen"].(string))
			require.NoError(t, err)
			require.WithinDuration(t, now, pinged, 3*time.Second, "%s", wrong)
			c.sweep(t)
			c.elapsed.Add(int64(step))
		}
		// The clocks of two servers differ by milliseconds, so the first leave may be older than the ping.
		for range 1000 {
			if other.send(t, http.MethodPost, "/users/goes/leave", "")["left"] == true {
				break
			}
		}
		for _, s := range []*clockedServer{c, other} {
			require.Equal(t, "grey", s.send(t, http.MethodGet, "/users/goes", "")["status"], "%s", wrong)
		}
		c.wrong.Store(0)
		for range 3 {
			c.sweep(t)
			other.sweep(t)
			require.Equal(t, "green", send(http.MethodGet, "/users/seen", "")["status"])
			require.NotNil(t, send(http.MethodGet, "/users/gone", "")["last_seen"], "%s", wrong)
		}
	}
}

// TestWrongClockOnAFile: the machine's clock is all that the store has.
func TestWrongClockOnAFile(t *testing.T) {
	c := newClockedServer(t, func(now func() time.Time, monotonic func() time.Duration) store.Store {
		return openFile(t, time.Second, now, monotonic)
	})
	requireWrongClockCostsNothing(t, c, c, 100*time.Millisecond)
}

// TestWrongClockOfOneServer: it is the clock of Redis that counts, not those of the servers.
func TestWrongClockOfOneServer(t *testing.T) {
	url := redistest.Start(t)
	onRedis := func(now func() time.Time, monotonic func() time.Duration) store.Store {
		return openRedis(t, url, now, monotonic)
	}
	c, other := newClockedServer(t, onRedis), newClockedServer(t, onRedis)
	c.job.store, other.job.store = leased{c.store}, leased{other.store}
	requireWrongClockCostsNothing(t, c, other, 0) // time does not pass faster for one of them
}

// leased is a store that grants every lease, so that each server is the one that deletes.
type leased struct{ store.Store }

func (leased) Lease(context.Context, string, time.Duration) (bool, error) { return true, nil }
