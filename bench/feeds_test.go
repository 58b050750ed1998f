package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadersMeasure has a server that sends the first presences in two events, then a change of half a minute ago, a
// tick and a reset. Only the change counts.
func TestReadersMeasure(t *testing.T) {
	event := func(name string, age time.Duration, more bool) string {
		at := time.Now().UTC().Add(-age).Format("2006-01-02T15:04:05.000Z")
		return fmt.Sprintf("event: %s\nid: 1\ndata: {\"users\":[{\"user\":\"%s\",\"last_seen\":\"%s\"},"+
			"{\"user\":\"never\",\"last_seen\":null}],\"more\":%t}\n\n", name, strings.Repeat("x", 5000), at, more)
	}
	changes := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "retry: 1000\n\n", event("changes", time.Hour, true), event("changes", time.Hour, false))
		_ = http.NewResponseController(w).Flush() // a test server can
		for range 3 {
			fmt.Fprint(w, <-changes)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	var r readers
	require.NoError(t, r.connectAll(t.Context(), []string{server.URL}, 1, func(int) string { return "/" }))
	changes <- event("tick", time.Hour, false)
	changes <- event("reset", time.Hour, false)
	changes <- event("changes", 30*time.Second, false)
	var lags []time.Duration
	require.Eventually(t, func() bool {
		lags = append(lags, r.take()...)
		return len(lags) > 0
	}, 30*time.Second, time.Millisecond)
	require.Len(t, lags, 1)
	require.GreaterOrEqual(t, lags[0], 30*time.Second)
	require.Less(t, lags[0], time.Hour)
	require.EqualValues(t, 1, r.open.Load())
	r.close()
	require.Eventually(t, func() bool { return r.open.Load() == 0 }, 30*time.Second, time.Millisecond)
}

// TestReadersRefused checks that a refusal is an error with what the server says.
func TestReadersRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "feed_unavailable", http.StatusConflict)
	}))
	defer server.Close()
	var r readers
	err := r.connectAll(t.Context(), []string{server.URL}, 1, func(int) string { return "/" })
	require.ErrorContains(t, err, "409")
	var never net.Error
	require.NotErrorAs(t, err, &never)
}

func TestWatchCounts(t *testing.T) {
	ids := newUsers(3)
	r := readers{watching: make([]uint16, 3)}
	path := r.watch(ids, 10)
	require.Equal(t, 10, strings.Count(path, "user="))
	sum := 0
	for i, n := range r.watching {
		sum += int(n)
		require.Equal(t, int(n), strings.Count(path, ids.id(i)))
	}
	require.Equal(t, 10, sum)
}
