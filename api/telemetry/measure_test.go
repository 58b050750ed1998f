package telemetry

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const pingPath = "/v1/namespaces/:namespace/users/:user/ping"

// pinged returns the context of a ping.
func pinged() echo.Context {
	c := echo.New().NewContext(httptest.NewRequest("POST", "/", nil), httptest.NewRecorder())
	c.SetPath(pingPath)
	return c
}

// TestDurationMetric checks that durations are measured in seconds.
func TestDurationMetric(t *testing.T) {
	registry, now := prometheus.NewRegistry(), time.Duration(0)
	m := New(registry, nil)
	m.requests.now = func() time.Duration {
		now += 2 * time.Second // between two readings
		return now
	}
	require.NoError(t, m.Measure(pinged(), func(echo.Context) error { return nil }))
	families, err := registry.Gather()
	require.NoError(t, err)
	total := 0.0
	for _, family := range families {
		if family.GetName() == "lastseen_http_request_duration_seconds" {
			total += family.GetMetric()[0].GetHistogram().GetSampleSum()
		}
	}
	require.InDelta(t, 2, total, 1e-9)
}

// TestMetricsDoNotAllocate checks that counting a request allocates nothing once its time series exist.
func TestMetricsDoNotAllocate(t *testing.T) {
	m := New(prometheus.NewRegistry(), []Route{{"POST", pingPath, true, Ping}})
	c := pinged()
	handle := func(c echo.Context) error {
		m.Recorded(Ping, "chat", 1, 0, 0)
		return c.Request().Context().Err()
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = m.Measure(c, handle) }))
}
