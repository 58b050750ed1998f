package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// TestAudienceHolds connects clients in two steps, and counts those whose server ends.
func TestAudienceHolds(t *testing.T) {
	f := testFixture(t)
	servers, err := f.launchCentrifuge()
	require.NoError(t, err)
	a := newAudience(centrifugeProtocol, servers.urls())
	defer a.stop()
	require.NoError(t, a.grow(t.Context(), 20))
	require.NoError(t, a.grow(t.Context(), 50))
	require.Len(t, a.parts, 2)
	require.Equal(t, 50, a.sum().Open)
	text, err := get(t.Context(), servers[0].admin+memoryPath)
	require.NoError(t, err)
	require.Contains(t, string(text), "# 50 clients present\n")
	heap, err := servers[0].number(t.Context(), heapMetric)
	require.NoError(t, err)
	require.Greater(t, heap, 100_000.0)

	h := &holding{group: servers, audience: a, rss: 1024}
	m, err := f.heartbeats(h)(t.Context(), 10*time.Millisecond)
	require.NoError(t, err)
	require.InDelta(t, 50*m.elapsed.Minutes(), m.units, 1e-9)
	servers[0].stop()
	require.Eventually(t, func() bool { return a.sum().Open == 0 }, 30*time.Second, 10*time.Millisecond)
	_, err = f.heartbeats(h)(t.Context(), 10*time.Millisecond)
	require.Error(t, err, "connections were lost")
}

// TestHeartbeatsThatRenewRecords checks that they count as the others do.
func TestHeartbeatsThatRenewRecords(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for kind, n := range map[string]int{"ping": 30, "device": 10, "lookup": 5} {
			fmt.Fprintf(w, "lastseen_batch_members_sum{kind=%q} %d\n", kind, n)
		}
	}))
	defer metrics.Close()
	servers := group{{admin: metrics.URL}, {admin: metrics.URL}}
	h := &holding{group: servers, audience: &audience{protocol: lastseenProtocol}}
	all, renewed, err := h.beats(t.Context())
	require.NoError(t, err)
	require.Equal(t, []float64{80, 20}, []float64{all, renewed})
}

func TestHowConnectionsEnd(t *testing.T) {
	require.Equal(t, "4503", nameOf(&websocket.CloseError{Code: 4503}))
	require.Equal(t, "HTTP 429", nameOf(fmt.Errorf("dial: %w", refusedError(429))))
	require.Equal(t, "broken", nameOf(errors.New("EOF")))
	require.Equal(t, "1 × 4503, 2 × broken", listed(map[string]int{"broken": 5, "4503": 1, "1000": 2},
		map[string]int{"broken": 3, "1000": 2}))
	require.Equal(t, "none", listed(nil, nil))
}

func TestBackoff(t *testing.T) {
	for failures := 1; failures < 100; failures++ {
		most := 30 * time.Second
		if failures <= 5 {
			most = time.Second << (failures - 1)
		}
		for range 20 {
			require.Less(t, backoff(failures), most)
		}
	}
}
