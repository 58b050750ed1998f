//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// longestFailover is five times what is promised, 5 s, for machines that are busy.
const longestFailover = 25 * time.Second

// replicationWindow is far beyond the time in which a primary has sent what it acknowledged to its replica.
const replicationWindow = 5 * time.Second

// failoverLoad is a load in which most users ping once, so that a lost ping is not made up for by the next one.
func failoverLoad() loadOptions { return loadOptions{users: 100_000, rate: 1000} }

// TestSentinelFailover kills the primary under load, or asks the Sentinels to replace it. Writes resume by themselves.
// Replication is asynchronous, so some acknowledged pings can be lost.
func TestSentinelFailover(t *testing.T) {
	faults := map[string]func(testing.TB, *redistest.Sentinel){
		"crash": func(t testing.TB, watched *redistest.Sentinel) { watched.Nodes[0].Stop(t) },
	}
	if testenv.Full() {
		faults["planned"] = failOver
	}
	for name, replace := range faults {
		t.Run(name, func(t *testing.T) {
			watched := redistest.StartSentinel(t)
			s := startServer(t, watched.URL())
			l := startLoad(t, failoverLoad(), s.url)
			l.awaitPings(t, 500)
			l.mayLose(replicationWindow, func() { replaceUnderLoad(t, watched, l, replace) })
			finishFailover(t, s, l)
		})
	}
}

// TestPlannedFailoverWithWait: with --redis-wait=1, a planned failover loses nothing that was acknowledged.
func TestPlannedFailoverWithWait(t *testing.T) {
	for range testenv.Choose(3, 1) {
		watched := redistest.StartSentinel(t)
		s := startServer(t, watched.URL(), "--redis-wait", "1")
		l := startLoad(t, failoverLoad(), s.url)
		l.awaitPings(t, 500)
		replaceUnderLoad(t, watched, l, failOver)
		finishFailover(t, s, l)
	}
}

// failOver asks a Sentinel to replace the primary although it is up.
func failOver(t testing.TB, watched *redistest.Sentinel) {
	t.Helper()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: watched.Sentinels[0].Addr, MaxRetries: -1})
	defer sentinel.Close()
	await(t, "a Sentinel to begin a failover", func() bool {
		return sentinel.Failover(context.Background(), redistest.MasterName).Err() == nil
	})
	await(t, "the primary to be a replica", func() bool {
		info := watched.Nodes[0].Client(t).Info(context.Background(), "replication").Val()
		return strings.Contains(info, "role:slave")
	})
}

// replaceUnderLoad replaces the primary, and returns when pings succeed on the new one.
func replaceUnderLoad(
	t testing.TB, watched *redistest.Sentinel, l *load, replace func(testing.TB, *redistest.Sentinel),
) {
	t.Helper()
	begin := time.Now()
	replace(t, watched)
	await(t, "the replica to be the primary", func() bool { return watched.Primary() == watched.Nodes[1] })
	l.awaitPings(t, 50)
	gap := l.longestGap(begin)
	t.Logf("the replica was the primary after %s; no ping succeeded for %s", time.Since(begin), gap)
	require.Less(t, gap, longestFailover)
}

// finishFailover checks what clients got while the primary was replaced, and how much was lost.
func finishFailover(t testing.TB, s *server, l *load) {
	t.Helper()
	l.awaitPings(t, 200)
	stats := l.stop(t)
	require.Less(t, stats.slowestFailure, longestFailure)
	requireOnly(t, stats, "503 store_unavailable")
	require.InDelta(t, stats.failed(), s.metric(t, "lastseen_http_errors_total", "code", "store_unavailable"), 0,
		"the failures of clients")
	users := l.verify(t, s.url)
	t.Logf("%d of %d users are older than acknowledged", l.countOlder(t, s), users)
}

// longestGap returns the longest time without an acknowledgement since a time.
func (l *ledger) longestGap(since time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := []time.Time{since}
	for _, acks := range l.users {
		for _, a := range acks {
			if a.received.After(since) {
				times = append(times, a.received)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	for i := range times[1:] {
		longest = max(longest, times[i+1].Sub(times[i]))
	}
	return longest
}

// countOlder returns how many users a server returns with an older state than the newest that was acknowledged,
// which a fault may have lost.
func (l *load) countOlder(t testing.TB, s *server) (older int) {
	t.Helper()
	for _, user := range l.names() {
		l.mu.Lock()
		var newest lastseen.State
		for _, a := range l.users[user] {
			newest = lastseen.Merge(newest, a.state)
		}
		l.mu.Unlock()
		r := s.request(t, http.MethodGet, "/v1/namespaces/"+l.options.namespace+"/users/"+user)
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		var found presence
		require.NoError(t, json.Unmarshal(r.body, &found))
		state, err := found.state()
		require.NoError(t, err)
		if state.Compare(newest) < 0 {
			older++
		}
	}
	return older
}
