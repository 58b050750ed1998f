package lastseen

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

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

// within reports whether n lies in [low, high].
func within(n *big.Int, low, high int64) bool {
	return n.Cmp(big.NewInt(low)) >= 0 && n.Cmp(big.NewInt(high)) <= 0
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{
		"0", "1795212000.123", "1.7e9", "-0.5", "2026-11-20T22:00:00.123Z", "2026-11-20T22:00:00+01:00",
		"1795212000123", "123e-2", "1.7e-3", "2026-11-20T22:00:00 01:00", "9999-12-31T23:59:59-23:59",
	} {
		f.Add(s)
	}
	thousandths := decimals()
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseTime(s)
		if want := thousandths(s); want != nil {
			good := s[0] != '-' && within(want, 0, int64(MaxInstant))
			require.Equal(t, good, err == nil, "%q: %v", s, err)
			require.True(t, !good || want.Int64() == int64(at), "%q: %d", s, at)
		} else if err == nil {
			reference, err := time.Parse(time.RFC3339Nano, s)
			require.NoError(t, err, "neither a decimal nor RFC 3339")
			require.Equal(t, reference.UnixMilli(), int64(at))
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
	for _, s := range []string{"90", "0.5", "90s", "1h30m", "-1", "1e5", "87600h", "-18446744073.708", "1e-3", "+5s", "1d"} {
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

func nameSeeds(f *testing.F) {
	for _, s := range []string{"chat", "green", "", ".", "..", ".a", "a:b", "a/b", "é", "\xff", "\x00", "\u0085", strings.Repeat("x", 65), strings.Repeat("x", 257)} {
		f.Add(s)
	}
}

func FuzzParseStatus(f *testing.F) {
	nameSeeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		status, err := ParseStatus(s)
		require.Equal(t, s == "green" || s == "yellow" || s == "grey", err == nil, "%q", s)
		if err == nil {
			require.Equal(t, s, string(status))
		} else {
			require.True(t, utf8.ValidString(err.Error()), "messages are text")
		}
	})
}

func FuzzCheckNamespace(f *testing.F) {
	nameSeeds(f)
	form := regexp.MustCompile(`\A[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\z`)
	f.Fuzz(func(t *testing.T, s string) {
		err := CheckNamespace(s)
		require.Equal(t, form.MatchString(s), err == nil, "%q: %v", s, err)
		if err == nil {
			require.NoError(t, CheckUser(s), "every namespace would also be a user")
		} else {
			require.True(t, utf8.ValidString(err.Error()), "messages are text")
		}
	})
}

func FuzzCheckUser(f *testing.F) {
	nameSeeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		good := len(s) >= 1 && len(s) <= 256 && utf8.ValidString(s) && s != "." && s != ".."
		for _, r := range s {
			good = good && !unicode.Is(unicode.Cc, r)
		}
		err := CheckUser(s)
		require.Equal(t, good, err == nil, "%q: %v", s, err)
		if err != nil {
			require.True(t, utf8.ValidString(err.Error()), "messages are text")
		}
	})
}
