package guides

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestDevicesTimeline evaluates the timeline of docs/devices.md by the rule.
func TestDevicesTimeline(t *testing.T) {
	guide, err := os.ReadFile("../../docs/devices.md")
	require.NoError(t, err)
	pattern := regexp.MustCompile(`(?m)^\| (\d:\d\d) \| ([^|]*?) ?\| (\d:\d\d) \| ([a-z, ]+) \|`)
	rows := pattern.FindAllStringSubmatch(string(guide), -1)
	require.Len(t, rows, 7)
	thresholds := lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
	window := lastseen.DeviceWindow(thresholds, 30*time.Second)
	var state lastseen.State
	var devices lastseen.Devices
	for _, row := range rows {
		at := minutes(t, row[1])
		if id, gone := reported(row[2]); id != "" {
			record := lastseen.DeviceRecord{ID: id, Since: at, At: at, Gone: gone}
			state, devices = devices.Assert(state, window, record)
		}
		shown := thresholds.Presence("alice", state, at)
		status := string(shown.Status)
		if state.Left {
			status += ", left"
		}
		require.Equal(t, row[4], status, row[0])
		require.Equal(t, minutes(t, row[3]), state.At, row[0])
	}
}

// reported returns the device that reports in a row, and whether that is a leave.
func reported(text string) (id string, gone bool) {
	pattern := regexp.MustCompile(`the (laptop|phone) (?:is back and )?(pings|leaves)`)
	if match := pattern.FindStringSubmatch(text); match != nil {
		return match[1], match[2] == "leaves"
	}
	return "", false
}

// minutes parses minutes and seconds, on a day long ago.
func minutes(t *testing.T, text string) lastseen.Instant {
	t.Helper()
	var m, s int
	_, err := fmt.Sscanf(text, "%d:%d", &m, &s)
	require.NoError(t, err)
	return lastseen.InstantOf(time.Date(2026, 11, 20, 22, m, s, 0, time.UTC))
}
