//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// stormConnections is how many connections the users of a storm share, as they do through a proxy. Each takes a few
// descriptors and a port of the machine.
const stormConnections = 256

// TestStorm lets all users ping at once when Redis returns from an outage. Each ping is recorded, or refused with the
// time to come back; users who come back then are all recorded.
func TestStorm(t *testing.T) {
	redis := redistest.StartProcess(t, "--appendfsync", "always")
	s := startServer(t, redis.URL())
	redis.Stop(t)
	users := testenv.Choose(50_000, 10_000)
	st := newStorm(s.url, users)
	t.Cleanup(st.end)
	st.start()
	await(t, "a tenth of the users to be refused", func() bool { return int(st.refused.Load()) >= users/10 })
	redis.Start(t)
	begin := time.Now()
	for deadline := begin.Add(5 * time.Minute); st.recorded.Load() < int64(users); time.Sleep(20 * time.Millisecond) {
		require.Empty(t, st.broken())
		require.False(t, time.Now().After(deadline), "%d of %d users are recorded", st.recorded.Load(), users)
		require.Less(t, s.memory(t), int64(mostMemory))
		require.LessOrEqual(t, s.metric(t, "lastseen_queue_members", "kind", "ping"), float64(stormConnections))
	}
	st.end()
	t.Logf("%d users recorded %s after the return of Redis; %d refusals; Retry-After: %v; %d MB of memory",
		users, time.Since(begin).Round(time.Millisecond), st.refused.Load(), st.waits, s.memory(t)>>20)
	require.Greater(t, len(st.waits), 1, "clients must not come back all at once: %v", st.waits)
	require.Equal(t, users, st.verify(t, s.url, "chat"))
	s.awaitLog(t, "requests succeed again")
}

// storm is users who ping at once, and who come back when they are asked to until they are recorded.
type storm struct {
	*ledger
	url     string
	client  *http.Client
	queue   chan string // users who want to ping now; it has room for all
	done    chan struct{}
	workers sync.WaitGroup

	recorded, refused atomic.Int64
	waitsMu           sync.Mutex
	waits             map[string]int // how often each Retry-After was sent
}

func newStorm(url string, users int) *storm {
	st := &storm{
		ledger: newLedger(), url: url, queue: make(chan string, users), done: make(chan struct{}),
		client: &http.Client{
			Timeout: awaitFor, Transport: &http.Transport{MaxIdleConnsPerHost: stormConnections},
		},
		waits: map[string]int{},
	}
	for i := range users {
		st.queue <- fmt.Sprintf("user-%d", i)
	}
	return st
}

func (st *storm) start() {
	for range stormConnections {
		st.workers.Go(func() {
			for {
				select {
				case <-st.done:
					return
				case user := <-st.queue:
					st.ping(user)
				}
			}
		})
	}
}

func (st *storm) end() {
	select {
	case <-st.done:
	default:
		close(st.done)
	}
	st.workers.Wait()
	st.client.CloseIdleConnections()
}

// ping pings once. A user who is refused comes back later.
func (st *storm) ping(user string) {
	sent := time.Now()
	st.attempt(user)
	request, err := http.NewRequest(http.MethodPost, st.url+"/v1/namespaces/chat/users/"+user+"/ping", nil)
	if err != nil {
		st.violate("%v", err)
		return
	}
	r, err := send(st.client, request)
	if err != nil {
		st.violate("%s got no response: %v", user, err)
		return
	}
	if r.status == http.StatusOK {
		st.acknowledgeBody(user, r.body, sent)
		st.recorded.Add(1)
		return
	}
	after := r.header.Get("Retry-After")
	seconds, err := strconv.Atoi(after)
	if err != nil || r.status != http.StatusServiceUnavailable {
		st.violate("%s: %d %s, Retry-After %q", user, r.status, r.code, after)
		return
	}
	st.refused.Add(1)
	st.waitsMu.Lock()
	st.waits[after]++
	st.waitsMu.Unlock()
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { st.queue <- user })
}
