package guard

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLoadSleeps checks that the load is read as long as there is some, without requests too, and not afterwards.
func TestLoadSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		load := 1.0
		l := NewLoad(slog.New(slog.DiscardHandler), time.Now, 10*time.Second)
		l.Configure(func() float64 { return load }, 1)
		l.Begin()
		l.End()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.InDelta(t, 1, l.Level(), 0.01)
		require.True(t, l.Refuses(Lookup))
		require.False(t, l.Refuses(Vital))
		require.True(t, l.awake.Load())
		load = 0
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, l.Level())
		require.False(t, l.awake.Load())
	})
}
