package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/calls"
)

// TestCallersAreSentCallsFirst: the caller is sent a call at a fixed time after the signal, the callee a random time
// later that is long enough for the caller to have it.
func TestCallersAreSentCallsFirst(t *testing.T) {
	t.Parallel()
	first := untilSent(calls.SignalCallee)
	varies := false
	for range 1000 {
		require.Equal(t, callDelay, untilSent(calls.SignalCaller))
		callee := untilSent(calls.SignalCallee)
		require.GreaterOrEqual(t, callee, 2*callDelay)
		require.Less(t, callee, 3*callDelay)
		varies = varies || callee != first
	}
	require.True(t, varies)
}
