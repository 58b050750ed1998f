package calls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWarnings(t *testing.T) {
	var w warnings
	require.False(t, w.next(0, false))
	require.True(t, w.next(0, true))
	require.False(t, w.next(2*time.Minute, true), "the same series")
	require.False(t, w.next(3*time.Minute, false))
	require.True(t, w.next(4*time.Minute, true))
	require.False(t, w.next(4*time.Minute+time.Second, false))
	require.False(t, w.next(4*time.Minute+2*time.Second, true), "a short time later")
	require.False(t, w.next(5*time.Minute, false))
	require.True(t, w.next(5*time.Minute+time.Second, true))
}
