package lastseen

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawState() *rapid.Generator[State] {
	return rapid.Custom(func(t *rapid.T) State {
		return State{At: base + Instant(rapid.IntRange(0, 5).Draw(t, "at")), Left: rapid.Bool().Draw(t, "left")}
	})
}

// TestMergeLaws are what lets pings and leaves arrive late, twice and in any order.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawState().Draw(t, "a"), drawState().Draw(t, "b"), drawState().Draw(t, "c")
		require.Equal(t, Merge(a, b), Merge(b, a))
		require.Equal(t, Merge(a, Merge(b, c)), Merge(Merge(a, b), c))
		require.Equal(t, a, Merge(a, a))
		require.Equal(t, a, Merge(a, State{}))
		require.Equal(t, -a.Compare(b), b.Compare(a))
	})
	require.Equal(t, State{At: 5, Left: true}, Merge(State{At: 5}, State{At: 5, Left: true}), "left beats present")
	require.Equal(t, State{At: 6}, Merge(State{At: 6}, State{At: 5, Left: true}))
	require.Equal(t, State{At: 5, Left: true}, State{}.AfterLeave(5), "no exception for a user never seen")
	require.Equal(t, State{At: 5}, State{}.AfterPing(5))
}
