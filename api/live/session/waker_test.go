package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWaker: a round lasts until the next wake.
func TestWaker(t *testing.T) {
	t.Parallel()
	var r Waker
	r.Wake() // before the first use
	first := r.Round()
	require.NoError(t, first.Err())
	require.Same(t, first, r.Round())
	r.Wake()
	require.Error(t, first.Err())
	require.NoError(t, r.Round().Err())
}
