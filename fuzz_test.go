package lastseen

import (
	"math/big"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// thousandths is the reference for decimals: exact, and slow.
func thousandths(s string) (*big.Int, bool) {
	if strings.ContainsAny(s, "/_xXbBoOpP+") && !strings.Contains(s, "e+") && !strings.Contains(s, "E+") {
		return nil, false // forms that big.Rat knows and we do not
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, false
	}
	r.Mul(r, big.NewRat(1000, 1))
	return new(big.Int).Quo(r.Num(), r.Denom()), true
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"0", "1795212000.123", "1.7e9", "-0.5", "2026-11-20T22:00:00.123Z", "2026-11-20T22:00:00+01:00", "1795212000123"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := ParseTime(s)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.GreaterOrEqual(t, at, Instant(0))
		require.LessOrEqual(t, at, MaxInstant)
		again, err := ParseTime(at.String())
		require.NoError(t, err)
		require.Equal(t, at, again, "what is written is read as the same")
		if want, ok := thousandths(s); ok && len(s) < 40 {
			require.Equal(t, want.Int64(), int64(at), s)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"90", "0.5", "90s", "1h30m", "-1", "1e5", "87600h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err == nil {
			require.GreaterOrEqual(t, d, MinDuration)
			require.LessOrEqual(t, d, MaxDuration)
			require.Zero(t, d%time.Millisecond)
		}
		if c, err := ParseConfigDuration(s); err == nil {
			require.Equal(t, d, c, "what both take means the same")
			require.Contains(t, "smh", s[len(s)-1:], "it has a unit")
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"chat", ".", "a/b", "é", "\xff", "\u0085", strings.Repeat("x", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckNamespace(s) == nil {
			require.NoError(t, CheckUser(s), "every namespace would also be a user")
			require.LessOrEqual(t, len(s), MaxNamespaceLen)
			require.NotContains(t, s, ":", "keys would collide")
		}
		if err := CheckUser(s); err == nil {
			require.True(t, utf8.ValidString(s))
			require.NotEmpty(t, s)
		} else {
			require.True(t, utf8.ValidString(err.Error()), "messages are text")
		}
		if status, err := ParseStatus(s); err == nil {
			require.Equal(t, s, string(status))
		}
	})
}
