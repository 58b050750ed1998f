package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/coalesce"
)

// TestSaturatedStore has more pings than a store can take, by a queue of calls and real time: pings succeed, lists are
// refused, and then all is served again. While the store is down, nothing counts as load.
func TestSaturatedStore(t *testing.T) {
	s := &slowBatcher{delay: 100 * time.Millisecond, recorded: map[string]int{}}
	batched := coalesce.New(s, coalesce.Options{Timeout: 250 * time.Millisecond, BatchSize: 10})
	underLoad(t, batched, func(l *loadTest) {
		var stopped, failed atomic.Bool
		var pinging sync.WaitGroup
		for i := range 31 { // of which 10 are served in 100 ms: a ping waits for 0.2 to 0.3 s, of 0.375
			pinging.Go(func() {
				for !stopped.Load() {
					if l.send(fmt.Sprintf("POST /chat/users/u%d/ping", i), "").Code != http.StatusOK {
						failed.Store(true)
					}
				}
			})
		}
		require.Equal(l, http.StatusOK, l.send("GET /chat/counts", "").Code)
		wait(10 * time.Second)
		require.Equal(l, http.StatusServiceUnavailable, l.send("GET /chat/counts", "").Code)
		require.Equal(l, http.StatusServiceUnavailable, l.send("GET /chat/users", "").Code)
		require.False(l, failed.Load(), "no ping is refused")

		s.setDown(true)
		wait(10 * time.Second)
		require.Zero(l, l.shared.overload.rung.Load(), "a store that is down is not loaded")
		s.setDown(false)
		wait(10 * time.Second)
		require.NotZero(l, l.shared.overload.rung.Load(), "but pings that come after it are")

		stopped.Store(true)
		pinging.Wait()
		wait(20 * time.Second)
		require.Equal(l, http.StatusOK, l.send("GET /chat/counts", "").Code)
		require.Contains(l, l.log.take(), "no longer overloaded")
	})
}

// TestStorm sends pings of many users in the same moment, as after an outage, to a store that takes 20,000 a second.
// Each is recorded or gets the time at which to come back. These times are spread, so that all are recorded soon.
func TestStorm(t *testing.T) {
	const queueSize, late = 6000, -1
	users := testenv.Choose(50_000, 10_000)
	s := &slowBatcher{delay: 50 * time.Millisecond, recorded: map[string]int{}}
	batched := coalesce.New(s, coalesce.Options{
		Timeout: 250 * time.Millisecond, BatchSize: 1000, NamespaceSize: 1000, QueueSize: queueSize,
	})
	underLoad(t, batched, func(l *loadTest) {
		var mu sync.Mutex
		waits := map[int]int{} // how many were asked to wait so many seconds
		refused := func(w *httptest.ResponseRecorder) time.Duration {
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if w.Code != http.StatusServiceUnavailable || err != nil || seconds < 1 || seconds > 15 {
				seconds = late
			}
			mu.Lock()
			defer mu.Unlock()
			waits[seconds]++
			return time.Duration(seconds) * time.Second
		}
		var pinging sync.WaitGroup
		for i := range users {
			pinging.Go(func() {
				w := l.send(fmt.Sprintf("POST /chat/users/u%d/ping", i), "")
				for ; w.Code != http.StatusOK; w = l.send(fmt.Sprintf("POST /chat/users/u%d/ping", i), "") {
					time.Sleep(refused(w))
				}
			})
		}
		begun, done := time.Now(), make(chan struct{})
		go func() { pinging.Wait(); close(done) }()
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
			case <-time.After(10 * time.Millisecond):
				require.LessOrEqual(l, batched.Stats().Pings.Queued, int64(queueSize))
			}
		}
		l.Logf("recorded after %s; asked to wait: %v", time.Since(begun), waits)
		require.Less(l, time.Since(begun), time.Minute)
		require.Len(l, s.recorded, users)
		require.Zero(l, waits[late], "neither recorded nor asked to come back")
		require.GreaterOrEqual(l, len(waits), 5)
		require.NotZero(l, batched.Stats().Pings.Refused)
	}, func(c *Config) { c.Random = nil })
}
