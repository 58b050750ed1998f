package redisstore

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
)

// scoreOf returns the score of a known state, as scripts write it.
func scoreOf(e encoding, s lastseen.State) string {
	if s.Left {
		return "-" + e.time(s.At)
	}
	return e.time(s.At)
}

func TestEncoding(t *testing.T) {
	e := encoding{unit: Milliseconds}
	for state, want := range map[lastseen.State]string{
		{At: 1}: "1", {At: 1, Left: true}: "-1",
		{At: 1_700_000_000_123}: "1700000000123", {At: lastseen.MaxInstant, Left: true}: "-253402300799999",
	} {
		require.Equal(t, want, scoreOf(e, state))
		back, err := e.stateOfReply(want)
		require.NoError(t, err)
		require.Equal(t, state, back)
	}
	for _, invalid := range []float64{
		0, 0.9, -0.5, 253402300800000, -253402300800000, 1 << 52, 1<<52 + 5, -(1 << 52),
		1e300, -1e300, math.Inf(1), math.Inf(-1),
	} {
		require.Equal(t, lastseen.State{}, e.state(invalid), invalid)
	}
	for _, strange := range []any{"x", 5, []any{}} {
		_, err := e.stateOfReply(strange)
		require.Error(t, err)
	}
	state, err := e.stateOfReply(nil)
	require.NoError(t, err)
	require.Equal(t, lastseen.State{}, state, "no member, no state")
	low, high := e.bounds(lastseen.Range{From: 5, To: 9, Left: true})
	require.Equal(t, []string{"-9", "-5"}, []string{low, high})
	low, high = e.bounds(lastseen.Range{From: 5, To: 9})
	require.Equal(t, []string{"5", "9"}, []string{low, high})
}

// TestSeconds: every time we write is found again, and whatever others write belongs to one millisecond.
func TestSeconds(t *testing.T) {
	e := encoding{unit: Seconds, shared: true}
	for at, want := range map[lastseen.Instant]string{
		1: "0.001", 1000: "1", 100_123_000: "100123", 1_700_000_000_123: "1700000000.123",
		lastseen.MaxInstant: "253402300799.999",
	} {
		require.Equal(t, want, e.time(at))
	}
	for text, want := range map[string]lastseen.Instant{
		"1700000000.1239999": 1_700_000_000_123, "1700000000.1230001": 1_700_000_000_123,
		"1700000000.9999995": 1_700_000_000_999,
		"1.0009999999":       1000, "0.0019": 1, "1700000000.1229": 1_700_000_000_122,
		"1700000000.1229999065": 1_700_000_000_123,
	} {
		state, err := e.stateOfReply(text)
		require.NoError(t, err)
		require.Equal(t, lastseen.State{At: want}, state, text)
	}
	for _, invalid := range []float64{
		0, 0.0009, -0.0009, 253402300800, -253402300800, 1 << 52, 1e300, math.Inf(1),
		math.Inf(-1),
	} {
		require.Equal(t, lastseen.State{}, e.state(invalid), invalid)
	}
	rapid.Check(t, func(t *rapid.T) {
		state := lastseen.State{
			At: lastseen.Instant(
				rapid.Int64Range(int64(lastseen.MinInstant), int64(lastseen.MaxInstant)).Draw(t, "at")),
			Left: rapid.Bool().Draw(t, "left"),
		}
		f, err := strconv.ParseFloat(scoreOf(e, state), 64)
		require.NoError(t, err)
		require.Equal(t, state, e.state(f))
		before := e.state(math.Nextafter(f, 0))
		require.True(t, !before.Known() || before.At == state.At-1, "the float64 below is the millisecond before")
	})
}

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
		written, err := strconv.ParseFloat(scoreOf(e, state), 64)
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
