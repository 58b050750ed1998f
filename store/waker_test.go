package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPause ends after the time, or with the context.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.True(t, Pause(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(begun))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, Pause(ctx, time.Hour))
		require.Equal(t, time.Second, time.Since(begun))
	})
}

// TestWaker: waking ends the wait in progress, or else the next one, and two of them end one.
func TestWaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, w := time.Now(), NewWaker()
		time.AfterFunc(time.Second, w.Wake)
		w.Wait(t.Context(), time.Hour)
		require.Equal(t, time.Second, time.Since(begun))
		w.Wake()
		w.Wake()
		w.Wait(t.Context(), time.Hour)
		require.Equal(t, time.Second, time.Since(begun))
		w.Wait(t.Context(), time.Hour)
		require.Equal(t, time.Hour+time.Second, time.Since(begun))
	})
}
