package lastseen

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCheckNamespace(t *testing.T) {
	for _, good := range []string{"a", "Chat-2_x.y", "0", "-", "_", "a.", strings.Repeat("n", 64)} {
		require.NoError(t, CheckNamespace(good), good)
	}
	for _, bad := range []string{"", ".", ".a", "a b", "a:b", "a/b", "é", "a\n", "a%", "{a}", strings.Repeat("n", 65)} {
		require.Error(t, CheckNamespace(bad), bad)
	}
}

func TestCheckUser(t *testing.T) {
	for _, good := range []string{
		"a", " ", "a/b", "…", "...", "é", "a b", "\u00a0", "😀", strings.Repeat("u", 256), strings.Repeat("é", 128),
		"\U0010ffff", "%00",
	} {
		require.NoError(t, CheckUser(good), "%q", good)
	}
	for _, bad := range []string{
		"", ".", "..", "\x00", "a\tb", "\x7f", "\u0085", "\u009f", "\xff", "a\xc3", "\xed\xa0\x80",
		strings.Repeat("u", 257), strings.Repeat("é", 129),
	} {
		require.Error(t, CheckUser(bad), "%q", bad)
	}
	require.Less(t, len(CheckUser(strings.Repeat("\xff", 256)).Error()), 300, "messages stay short")
}

func nameSeeds(f *testing.F) {
	for _, s := range []string{
		"chat", "green", "", ".", "..", ".a", "a:b", "a/b", "é", "\xff", "\x00", "\u0085",
		strings.Repeat("x", 65), strings.Repeat("x", 257),
	} {
		f.Add(s)
	}
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

// BenchmarkCheckUser checks one name, as every request about a user does.
func BenchmarkCheckUser(b *testing.B) {
	for name, user := range map[string]string{"ascii": "0123456789abcdef", "other": "Ærøskøbing Søren"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := CheckUser(user); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
