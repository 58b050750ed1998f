package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestOnGrid checks that timers fire together, never later than asked for, and hardly earlier.
func TestOnGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(rapid.Int64Range(0, 1e16).Draw(t, "now"))
		d := time.Duration(rapid.Int64Range(int64(minWake+wakeGrid), int64(time.Minute)).Draw(t, "d"))
		short := onGrid(now, d)
		require.LessOrEqual(t, short, d)
		require.Greater(t, short, d-wakeGrid)
		require.True(t, now.Add(short).Equal(now.Add(short).Truncate(wakeGrid)), "%s after %s", short, now)
	})
	require.Equal(t, minWake, onGrid(time.Now(), time.Millisecond))
}
