package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMissedBy(t *testing.T) {
	at := time.Date(2026, 11, 20, 22, 0, 30, 0, time.UTC)
	const frame = `{"call":{"id":"a","state":%q,"ended_at":"2026-11-20T22:00:29.877Z"}}`
	lag, missed := missedBy(fmt.Appendf(nil, frame, "missed"), at)
	require.True(t, missed)
	require.Equal(t, 123*time.Millisecond, lag)
	for _, other := range []string{fmt.Sprintf(frame, "cancelled"), `{"tick":{}}`, ""} {
		_, missed = missedBy([]byte(other), at)
		require.False(t, missed, other)
	}
}

// TestDifference takes off what the connections cost without calls, for as long as was measured with them.
func TestDifference(t *testing.T) {
	without := measurement{elapsed: 10 * time.Second, server: 2 * time.Second, store: time.Second}
	with := measurement{elapsed: 20 * time.Second, server: 6 * time.Second, store: 4 * time.Second}
	m := difference(without, with, 1000, 2)
	require.Equal(t, 2*time.Second, m.server)
	require.Equal(t, 2*time.Second, m.store)
	var found []float64
	for _, c := range callComparisons() {
		if c.row == 31 {
			found = append(found, c.metric.of(m))
		}
	}
	require.Equal(t, []float64{5, 10}, found, "percent of a processor: of each server, and of Redis")
}

// TestExpect waits for a metric, and says what it is instead.
func TestExpect(t *testing.T) {
	var reads atomic.Int64
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %d\n", callsMetric, reads.Add(1))
	}))
	defer metrics.Close()
	servers := group{{admin: metrics.URL}}
	require.NoError(t, servers.expect(t.Context(), callsMetric, 3, time.Minute))
	require.EqualError(t, servers.expect(t.Context(), callsMetric, 3, 0), "lastseen_calls is 4 instead of 3")
}

// TestCallsAreMeasured measures a few calls, each time on its own server.
func TestCallsAreMeasured(t *testing.T) {
	f := testFixture(t)
	f.quick, f.calls = true, 200
	m, err := f.ongoing(t.Context(), 20*time.Millisecond)
	require.NoError(t, err)
	require.InDelta(t, 20*m.elapsed.Seconds(), m.units, 1e-9)
	require.Contains(t, m.note, "20 calls on 1 servers")
	measure, err := f.workloads()["ringing"]()
	require.NoError(t, err)
	m, err = measure(t.Context(), 100*time.Millisecond)
	require.NoError(t, err)
	again, err := measure(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Equal(t, m.note, again.note, "it is measured once")
	require.InDelta(t, 1000, m.units, 0)
	require.Positive(t, m.p50)
	require.Contains(t, m.note, "200 of 1000 calls were measured")
}
