package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWaker: who waits is woken by the next wake.
func TestWaker(t *testing.T) {
	t.Parallel()
	var r Waker
	r.Wake() // before the first use
	ctx, done := r.Wait(t.Context())
	defer done()
	require.NoError(t, ctx.Err())
	r.Wake()
	<-ctx.Done()
	next, done := r.Wait(t.Context())
	require.NoError(t, next.Err())
	done()
	require.Error(t, next.Err())
}
