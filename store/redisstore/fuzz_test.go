package redisstore

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// FuzzScore: other programs may write any score. One that is a time is written as a score of the same time.
func FuzzScore(f *testing.F) {
	for _, score := range []string{
		"0", "-0", "1", "-1795212000123", "1795212000.123", "4503599627370497", "nan",
		"-inf", "1e400", "0x1p-2", "5e-324", "253402300799.9996",
	} {
		f.Add(score, true)
		f.Add(score, false)
	}
	f.Fuzz(func(t *testing.T, text string, seconds bool) {
		score, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return
		}
		e := encoding{unit: Milliseconds, shared: true}
		if seconds {
			e.unit = Seconds
		}
		state := e.state(score)
		if state == (lastseen.State{}) {
			return
		}
		require.GreaterOrEqual(t, state.At, lastseen.MinInstant)
		require.LessOrEqual(t, state.At, lastseen.MaxInstant)
		require.Equal(t, score < 0, state.Left)
		written, err := strconv.ParseFloat(e.score(state), 64)
		require.NoError(t, err)
		require.Equal(t, state, e.state(written))
		require.LessOrEqual(t, written*sign(state), score*sign(state), "a time is cut, never rounded up")
	})
}

func sign(s lastseen.State) float64 {
	if s.Left {
		return -1
	}
	return 1
}
