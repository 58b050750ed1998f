package lastseen

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// nameSeeds are names of which each fuzz test knows whether they are valid.
func nameSeeds(f *testing.F) {
	for _, s := range []string{
		"chat", "green", "Green", "gray", "grey ", "Chat-2_x.y", "0", "-", "_", "a.", "", ".", "..", "...", ".a",
		" ", "a b",
		"a:b", "a/b", "a%", "{a}", "%00", "é", "…", "😀", "\u00a0", "\U0010ffff", "\u200e\u200f\u061c",
		"\u2027\u202f\u2065\u206a", "\x00", "a\tb", "a\n", "\x7f", "\u0085", "\u009f", "\xff", "a\xc3", "\xed\xa0\x80",
		"a\u2028b", "\u2029", "\u202ebob", "a\u202a", "\u2066a", "a\u2069", strings.Repeat("n", 64),
		strings.Repeat("x", 65), strings.Repeat("u", 256), strings.Repeat("x", 257), strings.Repeat("é", 128),
		strings.Repeat("é", 129), strings.Repeat("\xff", 256),
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
		}
		requireShortText(t, err)
	})
}

func FuzzCheckUser(f *testing.F) {
	nameSeeds(f)
	f.Fuzz(func(t *testing.T, s string) {
		stored := len(s) >= 1 && len(s) <= 256 && utf8.ValidString(s) && s != "." && s != ".."
		good := stored
		for _, r := range s {
			stored = stored && !unicode.Is(unicode.Cc, r)
			good = good && !disrupts(r)
		}
		err := CheckUser(s)
		require.Equal(t, good, err == nil, "%q: %v", s, err)
		require.Equal(t, stored, CheckStoredUser(s) == nil, "earlier versions took disruptive characters: %q", s)
		if stored && !good {
			require.ErrorContains(t, err, "bidirectional", "%q", s)
		}
		requireShortText(t, err)
	})
}

// disrupts reports whether a character is a control character, ends a line, or begins or ends text of another
// direction: LRE, RLE, PDF, LRO, RLO, LRI, RLI, FSI and PDI.
func disrupts(r rune) bool {
	const overrides = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) || strings.ContainsRune(overrides, r)
}

// requireShortText requires that the message of an error, if there is one, can be shown.
func requireShortText(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.True(t, utf8.ValidString(err.Error()), "messages are text")
		require.Less(t, len(err.Error()), 300, "messages stay short")
	}
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
