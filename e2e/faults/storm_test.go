//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// stormConnections is how many connections the users of a storm share, as they do through a proxy. Each takes a few
// descriptors and a port of the machine.
const stormConnections = 256

// storm is users who ping at once, and who come back when they are asked to until they are recorded.
type storm struct {
	*load
	queue chan string // users who want to ping now; it has room for all

	mu    sync.Mutex
	waits map[string]int // how often each Retry-After was sent
}

// TestStorm lets all users ping at once when Redis returns from an outage. Each ping is recorded, or refused with the
// time to come back; users who come back then are all recorded.
func TestStorm(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t, "--appendfsync", "always")
	s := startServer(t, redis.URL())
	redis.Stop(t)
	users := testenv.Choose(50_000, 10_000)
	l := startLoad(t, loadOptions{workers: stormConnections, rate: 1}, s)
	l.end() // of its clients, which the users here replace
	st := &storm{load: l, queue: make(chan string, users), waits: map[string]int{}}
	for _, user := range numbered("user", users) {
		st.queue <- user
	}
	var running sync.WaitGroup
	done := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(done)
		running.Wait()
	})
	t.Cleanup(end)
	for range stormConnections {
		running.Go(func() { st.ping(done) })
	}
	l.awaitFailures(t, users/10)
	redis.Start(t)
	await(t, "all users to be recorded", func() bool {
		l.requireKept(t)
		s.requireLittleMemory(t)
		require.LessOrEqual(t, s.metric(t, `lastseen_queue_members{kind="ping"}`), float64(stormConnections))
		return l.snapshot().pings >= users
	})
	end()
	requireOnly(t, l.stop(t), storeUnavailable, overloaded)
	t.Logf("Retry-After: %v", st.waits)
	require.Greater(t, len(st.waits), 1, "clients must not come back all at once")
	require.Len(t, l.verify(t, s), users)
	s.awaitLog(t, "requests succeed again")
}

// ping has users ping, one after the other. Those who are refused come back later.
func (st *storm) ping(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case user := <-st.queue:
			r := st.record(st.urls[0], user, "ping")
			if r.failure() == "" {
				continue
			}
			after := r.header.Get("Retry-After")
			seconds, err := strconv.Atoi(after)
			if err != nil || r.status != http.StatusServiceUnavailable {
				st.violate("%s: %s, Retry-After %q", user, r.failure(), after)
				return
			}
			st.mu.Lock()
			st.waits[after]++
			st.mu.Unlock()
			time.AfterFunc(time.Duration(seconds)*time.Second, func() { st.queue <- user })
		}
	}
}

// numbered returns names of n users.
func numbered(name string, n int) (users []string) {
	for i := range n {
		users = append(users, fmt.Sprintf("%s-%d", name, i))
	}
	return users
}
