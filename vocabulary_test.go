package lastseen

import (
	"fmt"
	"math"
	"slices"
	"strings"
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

func TestCheckNamespace(t *testing.T) {
	for _, good := range []string{"a", "Chat-2_x.y", "0", "-", "_", "a.", strings.Repeat("n", 64)} {
		require.NoError(t, CheckNamespace(good), good)
	}
	for _, bad := range []string{"", ".", ".a", "a b", "a:b", "a/b", "é", "a\n", "a%", "{a}", strings.Repeat("n", 65)} {
		require.Error(t, CheckNamespace(bad), bad)
	}
}

func TestCheckUser(t *testing.T) {
	for _, good := range []string{"a", " ", "a/b", "…", "...", "é", "a b", "\u00a0", "😀", strings.Repeat("u", 256), strings.Repeat("é", 128), "\U0010ffff", "%00"} {
		require.NoError(t, CheckUser(good), "%q", good)
	}
	for _, bad := range []string{"", ".", "..", "\x00", "a\tb", "\x7f", "\u0085", "\u009f", "\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("u", 257), strings.Repeat("é", 129)} {
		require.Error(t, CheckUser(bad), "%q", bad)
	}
	require.Less(t, len(CheckUser(strings.Repeat("\xff", 256)).Error()), 300, "messages stay short")
}

func TestParseTime(t *testing.T) {
	for in, want := range map[string]Instant{
		"0": 0, "1": 1000, "0.001": 1, "0.0009": 0, ".5": 500, "5.": 5000, "100123": 100_123_000,
		"1795212000.123": 1_795_212_000_123, "1795212000.1239999": 1_795_212_000_123,
		"1795212000.9999999999999999999999": 1_795_212_000_999,
		"1.7e9":                             1_700_000_000_000, "17E+8": 1_700_000_000_000, "170000000000e-2": 1_700_000_000_000,
		"123e-2": 1230, "1.7e-3": 1, "100E-3": 100, // a minus in the fifth place makes no date of them
		"0000000000000000000000001": 1000, "253402300799.999": MaxInstant, "1e-400": 0,
		"1970-01-01T00:00:00Z": 0, "2026-11-20T22:00:00Z": 1_795_212_000_000,
		"2026-11-20T23:00:00+01:00": 1_795_212_000_000, "2026-11-20T22:00:00.123999999Z": 1_795_212_000_123,
		"9999-12-31T23:59:59.999999Z": MaxInstant,
	} {
		got, err := ParseTime(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
}

func TestParseTimeRefuses(t *testing.T) {
	for in, hint := range map[string]string{
		"1795212000123": "divide by 1000", "253402300800": "divide by 1000", "253402300799999": "divide by 1000",
		"253402300800000": "beyond the year 9999", "1e30": "beyond the year 9999", "1e9999": "beyond the year 9999",
		"-1": "before 1970", "-0": "before 1970", "1969-12-31T23:59:59.999Z": "between 1970",
		"2026-11-20T22:00:00 01:00": "%2B", "9999-12-31T23:59:59-01:00": "between 1970",
		"": "not a valid time", ".": "not a valid time", "-": "not a valid time", "e5": "not a valid time", "1e": "not a valid time", "1e+": "not a valid time", "+1": "not a valid time",
		"0x10": "not a valid time", "1_000": "not a valid time", "NaN": "not a valid time", "Infinity": "not a valid time", " 1": "not a valid time", "1.2.3": "not a valid time",
		"2026-11-20": "not a valid time", "2026-02-30T00:00:00Z": "not a valid time", "2026-11-20 22:00:00Z": "not a valid time",
		"2026-11-20T22:00:00": "not a valid time", "2026-11-20T22:00:60Z": "not a valid time", "20261120T220000Z": "not a valid time", "1e99999": "not a valid time",
	} {
		_, err := ParseTime(in)
		require.ErrorContains(t, err, hint, in)
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "0.5": 500 * time.Millisecond, "0.0019": time.Millisecond, "90s": 90 * time.Second,
		"5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "1ms": time.Millisecond, "1.9ms": time.Millisecond,
		"87600h": MaxDuration, "315360000": MaxDuration,
	} {
		got, err := ParseDuration(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, bad := range []string{
		"", "0", "0s", "-1", "-1s", "0.0009", "999us", "87600h1ms", "315360000.001", "1d", "1y", "s", "NaN", "1e30", "9223372036854775807h",
		"-18446744073.708", // times 10^9 it wraps around an int64, to 1.551616 ms
	} {
		_, err := ParseDuration(bad)
		require.Error(t, err, bad)
	}
}

func TestParseConfigDuration(t *testing.T) {
	got, err := ParseConfigDuration("90s")
	require.NoError(t, err)
	require.Equal(t, 90*time.Second, got)
	for _, bare := range []string{"90", "0", "1.5", "1e3", "-1", "99999999999999999999"} {
		_, err := ParseConfigDuration(bare)
		require.ErrorContains(t, err, "no unit", bare)
	}
	for _, bad := range []string{"", "soon", "0s", "-1s", "100000h"} {
		_, err := ParseConfigDuration(bad)
		require.Error(t, err, bad)
	}
}

func TestInstantString(t *testing.T) {
	require.Equal(t, "2026-11-20T22:00:00.123Z", Instant(1_795_212_000_123).String())
	require.Equal(t, "1970-01-01T00:00:00.001Z", MinInstant.String())
	require.Equal(t, "9999-12-31T23:59:59.999Z", MaxInstant.String())
	require.Equal(t, Instant(1_795_212_060_123), Instant(1_795_212_000_123).Add(time.Minute+999*time.Microsecond))
	require.Less(t, int64(MaxInstant), int64(math.Pow(2, 52)), "scores are exact")
}

func TestParseStatus(t *testing.T) {
	for _, status := range Statuses() {
		got, err := ParseStatus(string(status))
		require.NoError(t, err)
		require.Equal(t, status, got)
	}
	for _, bad := range []string{"", "Green", "gray", "online", "grey "} {
		_, err := ParseStatus(bad)
		require.ErrorContains(t, err, "green, yellow or grey", fmt.Sprint(bad))
	}
}
