package guides

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// thresholdsGuide returns the text of docs/thresholds.md, and the matches of a pattern in it, which are more than some.
func thresholdsGuide(t *testing.T, pattern string, some int) (string, [][]string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/thresholds.md")
	require.NoError(t, err)
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(guide), -1)
	require.Greater(t, len(found), some)
	return string(guide), found
}

// TestThresholdsGuideLostPing counts, over all pairs of waits, how often a user is yellow after one lost ping.
func TestThresholdsGuideLostPing(t *testing.T) {
	t.Parallel()
	_, rows := thresholdsGuide(t, `(?m)^\| ([\d.]+) s \| ([\d.]+) % \|$`, 3)
	for _, row := range rows {
		delay, err := strconv.ParseFloat(row[1], 64)
		require.NoError(t, err)
		yellow, all := 0, 0
		for first := 24.005; first < 30; first += 0.01 { // between 0.8 and 1 of the ping interval
			for second := 24.005; second < 30; second += 0.01 {
				all++
				if first+second+delay >= 60 {
					yellow++
				}
			}
		}
		require.InDelta(t, 100*float64(yellow)/float64(all), parseFloat(t, row[2]), 0.1, row[0])
	}
}

func parseFloat(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}

// TestThresholdsGuideValues: the configuration has the values of the table, raises no warning, and costs what the table
// says. The guide begins with those of a chat.
func TestThresholdsGuideValues(t *testing.T) {
	guide, rows := thresholdsGuide(t, `(?m)^\| (?:shared )?(\w+) \| (\w+) \| (\w+) \| (\w+) \| [^|]+ \| (\d+) \|$`, 3)
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(guide)
	require.NotNil(t, block)
	for _, row := range rows {
		values := fmt.Sprintf("%s: {green: %s, yellow: %s, ping-interval: %s}", row[1], row[2], row[3], row[4])
		require.Contains(t, block[1], values)
		interval, err := time.ParseDuration(row[4])
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(int(math.Round(1000/0.9/interval.Seconds()))), row[5], row[1])
	}
	for _, row := range rows {
		if row[1] == "chat" {
			require.Contains(t, guide, fmt.Sprintf("\n\n    green: %s\n    yellow: %s\n    ping-interval: %s\n\n", row[2], row[3], row[4]))
		}
	}
	var stderr bytes.Buffer
	config := testenv.Command(testserver.Binary(t), "config", "--config", testserver.WriteConfig(t, block[1]))
	config.Stderr = &stderr
	stdout, err := config.Output()
	require.NoError(t, err, stderr.String())
	require.Empty(t, stderr.String())
	require.Contains(t, string(stdout), "game:\n    green: 15s")
}
