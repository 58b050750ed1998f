package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// TestChangesMetrics checks that requests that wait are counted apart from others while they do, and that the lag of a
// change that a client waited for is observed.
func TestChangesMetrics(t *testing.T) {
	s := fileStore(t)
	w, registry := newMeteredServer(t, s, live(s))
	r := w.follow(http.MethodGet, "/chat/changes?user=alice", "")
	first := r.changes()
	polled := make(chan testResponse)
	go func() {
		polled <- w.send(http.MethodGet, "/chat/changes?user=alice&wait=50s&cursor="+first.id, "")
	}()
	waiting := func() bool {
		open := samples(t, registry, "lastseen_changes_streams")
		return open["long_poll"] == 1 && open["sse"] == 1 &&
			samples(t, registry, "lastseen_http_requests_in_progress")[""] == 0
	}
	require.Eventually(t, waiting, eventually, tick)
	w.post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, statuses(r.changes().data))
	require.Equal(t, http.StatusOK, (<-polled).status)
	r.closed()
	require.Eventually(t, func() bool {
		return len(samples(t, registry, "lastseen_changes_streams")) == 0 &&
			samples(t, registry, "lastseen_changes_delivery_lag_seconds")[""] == 2
	}, eventually, tick)
}

// TestWatchesAreCharged checks that users who are followed from the beginning count as requests, and those of a request
// that continues do not.
func TestWatchesAreCharged(t *testing.T) {
	w := newLiveServer(t, func(c *Config) {
		behindProxy(c)
		c.Limits = limit.Limits{Caller: 4} // at once 20 requests, or half of them for users
		c.Now = func() time.Time { return time.UnixMilli(int64(testNow)) }
	})
	alice := from("203.0.113.7")
	first := w.send(http.MethodGet, "/chat/changes?user=a&user=b&user=c&user=d&user=e&user=f&user=g&user=h", "", alice)
	require.Equal(t, http.StatusOK, first.status, first.body)
	more := "/chat/changes?user=a&user=b&user=c&user=d&user=e&user=f&user=g&user=h&user=i&user=j&user=k&user=l"
	require.Equal(t, http.StatusOK, w.send(http.MethodGet, more+"&cursor="+cursorOf(first.json(t)), "", alice).status)
	bob := from("203.0.113.8")
	require.Equal(t, http.StatusOK, w.send(http.MethodGet, more, "", bob).status, "half of a burst")
	w.fails(codeRateLimited, http.MethodGet, more, "", bob)
}

// TestResetsAreCharged checks that users are charged whose presence is returned for a cursor that proves nothing, since
// anyone can make one.
func TestResetsAreCharged(t *testing.T) {
	w := newLiveServer(t, func(c *Config) {
		behindProxy(c)
		c.Limits = limit.Limits{Caller: 4} // at once 20 requests, or half of them for users
		c.Now = func() time.Time { return time.UnixMilli(int64(testNow)) }
	})
	path := "/chat/changes?" + strings.Repeat("user=a&", 12) + "cursor=" + changesCursor("chat", []store.Place{"x"})
	for i, header := range []string{"Accept: */*", "Accept: text/event-stream"} {
		caller := from(fmt.Sprintf("203.0.113.%d", i))
		first := w.send(http.MethodHead, path, "", caller, header)
		require.Equal(t, http.StatusOK, first.status, "half of a burst")
		w.fails(codeRateLimited, http.MethodGet, path, "", caller, header)
		w.fails(codeRateLimited, http.MethodGet, path+"&wait=1s", "", caller, header)
	}
}
