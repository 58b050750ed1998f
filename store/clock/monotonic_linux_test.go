package clock

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMonotonicCountsSuspends: it is the time that /proc/uptime shows, which goes on while the machine is suspended. A
// clock with it is right at once afterwards.
func TestMonotonicCountsSuspends(t *testing.T) {
	uptime := func() time.Duration { // in hundredths of a second, cut
		text, err := os.ReadFile("/proc/uptime")
		require.NoError(t, err)
		seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
		require.NoError(t, err)
		return time.Duration(seconds * float64(time.Second))
	}
	before := uptime()
	is := Monotonic()
	require.LessOrEqual(t, before, is)
	require.Greater(t, uptime()+20*time.Millisecond, is)

	b := newBench(t)
	b.read(0)
	b.monotonic += 8 * time.Hour // without a reading
	require.Zero(t, b.off())
}
