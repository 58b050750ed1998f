package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHourlyThrottle: of each id there is one line an hour, and none about the others.
func TestHourlyThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		throttle := NewHourly(slog.New(slog.NewTextHandler(&log, nil)))
		lines := func() int { return strings.Count(log.String(), "\n") }
		for _, id := range []string{"a", "a", "b", "a"} {
			throttle.Log(slog.LevelInfo, id, "refused")
		}
		require.Equal(t, 2, lines())
		time.Sleep(time.Hour - time.Second)
		throttle.Log(slog.LevelInfo, "a", "refused")
		require.Equal(t, 2, lines())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 2, lines(), "no summary")
		throttle.Log(slog.LevelInfo, "a", "refused")
		require.Equal(t, 3, lines())
		time.Sleep(time.Hour) // the last timer
	})
}
