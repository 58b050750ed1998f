package main

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this file set what holds for the whole process, so they do not run side by side with others.

func TestTuneGCOnRedis(t *testing.T) {
	t.Setenv("GOGC", "")
	ballast := tuneGC(true)
	require.Len(t, ballast, gcBallast)
	require.GreaterOrEqual(t, heapGoal(), uint64(gcBallast))
	require.Len(t, ballast, gcBallast, "still there")
}

func TestTuneGCOnAFile(t *testing.T) {
	t.Setenv("GOGC", "")
	standard := debug.SetGCPercent(100)
	defer debug.SetGCPercent(standard)
	require.Nil(t, tuneGC(false))
	require.Equal(t, filePercent, debug.SetGCPercent(100))
}

func TestGOGCWins(t *testing.T) {
	t.Setenv("GOGC", "150")
	standard := debug.SetGCPercent(150)
	defer debug.SetGCPercent(standard)
	require.Nil(t, tuneGC(true))
	require.Nil(t, tuneGC(false))
	require.Equal(t, 150, debug.SetGCPercent(150))
}

// heapGoal returns at how many bytes the next collection begins, one after now.
func heapGoal() uint64 {
	debug.FreeOSMemory() // collects
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
