package lastseen

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const base Instant = 1_700_000_000_000

func defaults() Thresholds { return Thresholds{Green: time.Minute, Yellow: 5 * time.Minute} }

func TestPresence(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  State
		age    Instant
		status Status
		valid  Instant
	}{
		{"just now", State{At: base}, 0, Green, base + 60_000},
		{"one millisecond short of green's end", State{At: base}, 59_999, Green, base + 60_000},
		{"green's end", State{At: base}, 60_000, Yellow, base + 300_000},
		{"one millisecond short of yellow's end", State{At: base}, 299_999, Yellow, base + 300_000},
		{"yellow's end", State{At: base}, 300_000, Grey, 0},
		{"seen later than as of", State{At: base}, -10_000_000, Green, base + 60_000},
		{"left just now", State{At: base, Left: true}, 0, Grey, 0},
		{"left later than as of", State{At: base, Left: true}, -5, Grey, 0},
		{"never seen", State{}, 0, Grey, 0},
		{"at the end of time", State{At: MaxInstant}, 0, Green, MaxInstant},
	} {
		asOf := c.state.At + c.age
		want := Presence{User: "alice", Status: c.status, LastSeen: c.state.At, Left: c.state.Left, ValidUntil: c.valid}
		require.Equal(t, want, defaults().Presence("alice", c.state, asOf), c.name)
	}
}

func TestThresholdsValidate(t *testing.T) {
	for _, good := range []Thresholds{defaults(), {time.Millisecond, 2 * time.Millisecond}, {time.Hour, MaxDuration}} {
		require.NoError(t, good.Validate(), good)
	}
	for _, bad := range []Thresholds{
		{},
		{time.Minute, time.Minute},
		{time.Hour, time.Minute},
		{0, time.Minute},
		{-time.Minute, time.Minute},
		{time.Minute, MaxDuration + 1},
		{time.Millisecond - 1, time.Minute},
	} {
		require.Error(t, bad.Validate(), bad)
	}
}

// TestRanges: a state lies in the ranges of its status, once, and in no other's.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) Instant { return base + Instant(rapid.IntRange(0, 40).Draw(t, name)) }
		thresholds := Thresholds{Green: 7 * time.Millisecond, Yellow: 15 * time.Millisecond}
		state := State{At: at("at"), Left: rapid.Bool().Draw(t, "left")}
		from, asOf := at("from"), at("as of")
		to := min(at("to"), asOf)
		wanted := rapid.SliceOfDistinct(rapid.SampledFrom(Statuses()), rapid.ID[Status]).Draw(t, "wanted")

		holding := 0
		for _, r := range thresholds.Ranges(wanted, asOf, from, to) {
			require.LessOrEqual(t, r.From, r.To, "an empty range")
			if r.Contains(state) {
				holding++
			}
		}
		status := thresholds.Presence("", state, asOf).Status
		selected := len(wanted) == 0 || slices.Contains(wanted, status)
		want := 0
		if selected && from <= state.At && state.At <= to {
			want = 1
		}
		require.Equal(t, want, holding)
	})
	whole := defaults().Ranges(nil, base, 0, base)
	require.Equal(t, []Range{{From: MinInstant, To: base}, {Left: true, From: MinInstant, To: base}}, whole,
		"all statuses are one range a half")
}

func FuzzParseStatus(f *testing.F) {
	nameSeeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		status, err := ParseStatus(s)
		require.Equal(t, s == "green" || s == "yellow" || s == "grey", err == nil, "%q", s)
		require.True(t, err != nil || s == string(status))
		requireShortText(t, err)
	})
}
