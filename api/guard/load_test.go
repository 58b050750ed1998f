package guard

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLoadSleeps checks that the load is read as long as there is some, without requests too, and not afterwards.
func TestLoadSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool // the load is
		l := NewLoad(slog.New(slog.DiscardHandler), time.Now, 10*time.Second)
		l.Configure(func() float64 {
			if away.Load() {
				return 0
			}
			return 1
		}, 1)
		l.Begin()
		l.End()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.InDelta(t, 1, l.Level(), 0.01)
		require.True(t, l.Refuses(Lookup))
		require.False(t, l.Refuses(Vital))
		require.True(t, l.awake.Load())
		away.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, l.Level())
		require.False(t, l.awake.Load())
	})
}
