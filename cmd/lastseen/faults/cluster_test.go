//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// calm are settings of a server whose requests must not fail, also on a machine that is busy.
func calm() []string { return []string{"--redis-timeout", "2s", "--redis-dial-timeout", "1s"} }

// TestClusterPrimaryFails kills a primary under load, whose replica takes over. Only users on that primary notice.
func TestClusterPrimaryFails(t *testing.T) {
	c := redistest.StartCluster(t, 1, redistest.QuickToFail)
	s := startServer(t, c.URL(), calm()...)
	away := c.Owner(t, "presence:here")
	l := startLoad(t, loadOptions{namespace: "here"}, s.url)
	l.awaitPings(t, 200)
	elsewhere := namespaceElsewhere(t, c, away)
	others := startLoad(t, loadOptions{namespace: elsewhere}, s.url)
	others.awaitPings(t, 100)
	before := medianPing(t, s, elsewhere)
	others.reset()
	l.mayLose(replicationWindow, func() {
		begin := time.Now()
		away.Stop(t)
		l.awaitFailures(t, 20)
		during := medianPing(t, s, elsewhere)
		l.awaitPings(t, 50)
		t.Logf("a ping elsewhere took %s before and %s meanwhile; no ping here succeeded for %s", before, during,
			l.longestGap(begin))
		require.Less(t, during, 10*before+100*time.Millisecond)
	})
	l.awaitPings(t, 100)
	requireOnly(t, l.stop(t), "503 store_unavailable")
	require.Empty(t, others.stop(t).failures, "pings to other primaries fail")
	l.verify(t, s.url)
	others.verify(t, s.url)
}

// namespaceElsewhere returns a namespace whose users, like the list of namespaces, are on another primary. The list is
// read to create a namespace.
func namespaceElsewhere(t testing.TB, c *redistest.Cluster, away *redistest.Process) string {
	t.Helper()
	for i := range 100 {
		name := fmt.Sprintf("elsewhere-%d", i)
		if c.Owner(t, "presence:"+name) != away {
			return name
		}
	}
	t.Fatal("all namespaces are on one primary")
	return ""
}

// medianPing returns the median time of a ping: single ones say nothing on a machine that is busy.
func medianPing(t testing.TB, s *server, namespace string) time.Duration {
	t.Helper()
	times := make([]time.Duration, 31)
	for i := range times {
		r := s.request(t, http.MethodPost, "/v1/namespaces/"+namespace+"/users/median/ping")
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		times[i] = r.took
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// TestClusterSlotsMove moves the users of a namespace from primary to primary under load.
func TestClusterSlotsMove(t *testing.T) {
	c := redistest.StartCluster(t, 0)
	s := startServer(t, c.URL(), calm()...)
	l := startLoad(t, loadOptions{leaves: 0.1}, s.url)
	l.awaitPings(t, 200)
	slot := c.Slot(t, "presence:chat")
	for range testenv.Choose(10, 3) {
		owner := slices.Index(c.Primaries, c.Owner(t, "presence:chat"))
		c.MoveSlot(t, slot, c.Primaries[(owner+1)%len(c.Primaries)], func() { l.awaitPings(t, 20) })
	}
	stats := l.stop(t)
	requireOnly(t, stats, "503 store_unavailable")
	require.Less(t, stats.failed(), stats.pings/10, "calls are redirected")
	t.Logf("%d users verified", l.verify(t, s.url))
}
