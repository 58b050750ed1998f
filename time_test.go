package lastseen

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestParseTime(t *testing.T) {
	for in, want := range map[string]Instant{
		"0": 0, "1": 1000, "0.001": 1, "0.0009": 0, ".5": 500, "5.": 5000, "100123": 100_123_000,
		"1795212000.123": 1_795_212_000_123, "1795212000.1239999": 1_795_212_000_123,
		"1795212000.9999999999999999999999": 1_795_212_000_999,
		"1.7e9":                             1_700_000_000_000, "17E+8": 1_700_000_000_000,
		"170000000000e-2": 1_700_000_000_000,
		"123e-2":          1230, "1.7e-3": 1, "100E-3": 100, // a minus in the fifth place makes no date of them
		"0000000000000000000000001": 1000, "253402300799.999": MaxInstant, "1e-400": 0,
		"1970-01-01T00:00:00Z": 0, "2026-11-20T22:00:00Z": 1_795_212_000_000,
		"2026-11-20T23:00:00+01:00": 1_795_212_000_000, "2026-11-20T22:00:00.123999999Z": 1_795_212_000_123,
		"9999-12-31T23:59:59.999999Z": MaxInstant,
		"2026-11-20t22:00:00z":        1_795_212_000_000, "2026-11-20T22:00:00-00:00": 1_795_212_000_000,
		"2026-11-21T21:59:00+23:59": 1_795_212_000_000, "2016-12-31T23:59:60Z": 1_483_228_800_000, // a leap second
		"2017-01-01t00:59:60.5+01:00": 1_483_228_800_500, "2026-02-28T23:59:60Z": 1_772_323_200_000,
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
	} {
		_, err := ParseTime(in)
		require.ErrorContains(t, err, hint, in)
	}
	for _, in := range []string{
		"", ".", "-", "e5", "1e", "1e+", "+1", "0x10", "1_000", "NaN", "Infinity", " 1", "1.2.3", "2026-11-20",
		"2026-02-30T00:00:00Z", "2026-11-20 22:00:00Z", "2026-11-20T22:00:00", "2026-11-20T22:00:60Z",
		"20261120T220000Z", "1e99999", "2026-11-20T1:00:00Z", "2026-11-20T22:00:00+24:00",
		"2026-11-20T22:00:00+00:60", "2026-11-20T22:00:00,1Z", "2026-11-20T22:00:00.Z", "2026-11-20T22:00:00+1:00",
		"2026-11-20T23:59:60Z", "2026-11-30T22:59:60Z", "2026-11-30T23:58:60Z", "2026-11-30T23:59:60+01:00",
		"2026-11-30T23:59:61Z", "2026-11-20T24:00:00Z", "2026-11-20T22:00:00+0000", "2026-11-20\u212a22:00:00Z",
	} {
		_, err := ParseTime(in)
		require.ErrorContains(t, err, "not a valid time", in)
	}
}

func TestInstantString(t *testing.T) {
	require.Equal(t, "2026-11-20T22:00:00.123Z", Instant(1_795_212_000_123).String())
	require.Equal(t, "1970-01-01T00:00:00.001Z", MinInstant.String())
	require.Equal(t, "9999-12-31T23:59:59.999Z", MaxInstant.String())
	require.Equal(t, Instant(1_795_212_060_123), Instant(1_795_212_000_123).Add(time.Minute+999*time.Microsecond))
	require.Less(t, int64(MaxInstant), int64(math.Pow(2, 52)), "scores are exact")
}

// decimals returns the reference for decimals: exact, slow, and written without looking at ours. It
// gives the thousandths, cut towards zero, or nil for what is no decimal number.
func decimals() func(string) *big.Int {
	form := regexp.MustCompile(`\A-?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\z`)
	return func(s string) *big.Int {
		if !form.MatchString(s) {
			return nil
		}
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			return nil
		}
		r.Mul(r, big.NewRat(1000, 1))
		return new(big.Int).Quo(r.Num(), r.Denom())
	}
}

func within(n *big.Int, low, high int64) bool {
	return n.Cmp(big.NewInt(low)) >= 0 && n.Cmp(big.NewInt(high)) <= 0
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{
		"0", "1795212000.123", "1.7e9", "-0.5", "2026-11-20T22:00:00.123Z", "2026-11-20T22:00:00+01:00",
		"1795212000123", "123e-2", "1.7e-3", "2026-11-20T22:00:00 01:00", "9999-12-31T23:59:59-23:59",
		"2016-12-31t23:59:60.5z", "2026-11-20T1:00:00Z", "2026-11-20T22:00:00,1+00:60",
	} {
		f.Add(s)
	}
	thousandths := decimals()
	// From RFC 3339, section 5.6.
	grammar := regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?` +
		`([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseTime(s)
		if want := thousandths(s); want != nil {
			good := s[0] != '-' && within(want, 0, int64(MaxInstant))
			require.Equal(t, good, err == nil, "%q: %v", s, err)
			require.True(t, !good || want.Int64() == int64(at), "%q: %d", s, at)
		} else if err == nil {
			require.Regexp(t, grammar, s, "neither a decimal nor RFC 3339")
			later := int64(0)
			if s[17:19] == "60" {
				s, later = s[:17]+"59"+s[19:], 1000
			}
			reference, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
			require.NoError(t, err)
			require.Equal(t, reference.UnixMilli()+later, int64(at))
		}
		if err != nil {
			require.True(t, utf8.ValidString(err.Error()), "messages are text")
			return
		}
		require.GreaterOrEqual(t, at, Instant(0))
		require.LessOrEqual(t, at, MaxInstant)
		again, err := ParseTime(at.String())
		require.NoError(t, err)
		require.Equal(t, at, again, "what is written is read as the same")
	})
}

func durationSeeds(f *testing.F) {
	for _, s := range []string{
		"90", "0.5", "0.0019", "90s", "5m", "1h30m", "1ms", "1.9ms", "-1", "-1s", "1e5", "1e3", "1e-3", "1e30",
		"+5s", "1d",
		"1y", "s", "soon", "NaN", "", "0", "0s", "1.5", "0.0009", "999us", "87600h", "87600h1ms", "100000h",
		"315360000",
		"315360000.001", "9223372036854775807h", "99999999999999999999",
		"-18446744073.708", // times 10^9 it wraps around an int64, to 1.551616 ms
	} {
		f.Add(s)
	}
}

func FuzzParseDuration(f *testing.F) {
	durationSeeds(f)
	thousandths := decimals()
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if want := thousandths(s); want != nil {
			good := within(want, 1, MaxDuration.Milliseconds())
			require.Equal(t, good, err == nil, "%q: %s, %v", s, d, err)
			require.True(t, !good || want.Int64() == d.Milliseconds(), "%q: %s", s, d)
		} else {
			requireGoDuration(t, s, d, err)
		}
		if err == nil {
			require.Zero(t, d%time.Millisecond)
		}
	})
}

// requireGoDuration compares with what the standard library reads.
func requireGoDuration(t *testing.T, s string, d time.Duration, err error) {
	t.Helper()
	want, wrong := time.ParseDuration(s)
	want = want.Truncate(time.Millisecond)
	good := wrong == nil && want >= MinDuration && want <= MaxDuration
	require.Equal(t, good, err == nil, "%q: %s, %v", s, d, err)
	require.True(t, !good || d == want, "%q: %s", s, d)
}

func FuzzParseConfigDuration(f *testing.F) {
	durationSeeds(f)
	thousandths := decimals()
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseConfigDuration(s)
		if thousandths(s) != nil {
			require.ErrorContains(t, err, "no unit", s)
			return
		}
		requireGoDuration(t, s, d, err)
	})
}

func TestInstantSub(t *testing.T) {
	require.Equal(t, 1500*time.Millisecond, Instant(2500).Sub(1000))
	require.Equal(t, -1500*time.Millisecond, Instant(1000).Sub(2500))
	at := InstantOf(time.Now())
	require.Equal(t, time.Hour, at.Add(time.Hour).Sub(at))
}
