package api

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/telemetry"
)

// TestTimesOfTheStoresClockAreRecorded checks that a ping is recorded if the store replaces a time that is too far
// ahead.
func TestTimesOfTheStoresClockAreRecorded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := &server{Shared: NewShared(Config{Metrics: registry})}
	s.recorded(telemetry.Ping, "chat", []lastseen.State{{At: 1000}}, func(int) lastseen.Instant { return 2000 })
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP lastseen_pings_total Pings by result.
# TYPE lastseen_pings_total counter
lastseen_pings_total{result="recorded"} 1
lastseen_pings_total{result="refused"} 0
lastseen_pings_total{result="superseded"} 0
`), "lastseen_pings_total"))
}
