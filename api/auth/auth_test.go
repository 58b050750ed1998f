package auth

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
)

func TestParsePattern(t *testing.T) {
	for _, good := range []string{"*", "chat", "chat-*", "chat*", "A.b_c-9", strings.Repeat("x", 64) + "*"} {
		p, err := ParsePattern(good)
		require.NoError(t, err)
		require.Equal(t, Pattern(good), p)
	}
	for _, bad := range []string{
		"", "**", "*chat", "ch*t", ".*", ".chat", "chat ", "chat/*", "chät*",
		strings.Repeat("x", 65),
	} {
		_, err := ParsePattern(bad)
		require.Error(t, err, bad)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern Pattern
		match   string
		not     string
	}{
		{"*", "chat . -", ""},
		{"chat", "chat", "chat- chatx cha Chat"},
		{"chat-*", "chat- chat-1 chat-a.b", "chat cha chat1 Chat-1 xchat-1"},
	} {
		for name := range strings.FieldsSeq(c.match) {
			require.True(t, c.pattern.Match(name), "%s %s", c.pattern, name)
		}
		for name := range strings.FieldsSeq(c.not) {
			require.False(t, c.pattern.Match(name), "%s %s", c.pattern, name)
		}
	}
}

// TestNextReadable walks names as a page of namespaces does, and finds what a caller may read and nothing else,
// however many others there are.
func TestNextReadable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab-][ab.-]{0,2}`)
		patterns := rapid.SliceOfN(rapid.Map(rapid.StringMatching(`[ab-][ab.-]{0,2}\*?|\*`),
			func(s string) Pattern { return Pattern(s) }), 0, 4).Draw(t, "patterns")
		names := rapid.MapOf(name, rapid.Just(true)).Draw(t, "names")
		caller := &Caller{Kind: ByKey, scopes: []Scope{Read}, namespaces: patterns}
		found, asked := map[string]bool{}, 0
		for after, more := caller.SeekReadable(""); more; asked++ {
			next := ""
			for n := range names {
				if n > after && (next == "" || n < next) {
					next = n
				}
			}
			if next == "" {
				break
			}
			if caller.Can(Read, next) {
				require.False(t, found[next], "%s is found twice", next)
				found[next] = true
			}
			after, more = caller.SeekReadable(next)
		}
		want := map[string]bool{}
		for n := range names {
			if caller.Can(Read, n) {
				want[n] = true
			}
		}
		require.Equal(t, want, found)
		require.LessOrEqual(t, asked, len(want)+len(patterns)+1, "names of others are skipped")
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"*", "chat-*", "chat", ".", "**"} {
		f.Add(s, "chat-1")
	}
	f.Fuzz(func(t *testing.T, s, name string) {
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		beginning, open := strings.CutSuffix(s, "*")
		if !open {
			require.NoError(t, lastseen.CheckNamespace(s))
		}
		require.Equal(t, name == beginning || open && strings.HasPrefix(name, beginning), p.Match(name))
		require.True(t, p.Match(beginning))
	})
}

func TestParseScope(t *testing.T) {
	for _, scope := range Scopes() {
		parsed, err := ParseScope(string(scope))
		require.NoError(t, err)
		require.Equal(t, scope, parsed)
	}
	for _, bad := range []string{"", "Read", "write", "ping read", "*"} {
		_, err := ParseScope(bad)
		require.Error(t, err, bad)
	}
}

func TestKeys(t *testing.T) {
	key, hash := NewKey()
	another, _ := NewKey()
	require.NotEqual(t, key, another)
	require.Regexp(t, `^ls_[A-Za-z0-9_-]{43}$`, key)
	require.Equal(t, sha256.Sum256([]byte(key)), hash)
	text := FormatKeyHash(hash)
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, text)
	parsed, err := ParseKeyHash(text)
	require.NoError(t, err)
	require.Equal(t, hash, parsed)

	digits := strings.TrimPrefix(text, "sha256:")
	for _, bad := range []string{
		"", key, digits, "sha256:", "sha256:" + digits[1:], text + "0", "md5:" + digits,
		"sha256:" + strings.Repeat("g", 64),
	} {
		_, err := ParseKeyHash(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), key[3:], "a secret in an error ends in a log")
	}
}
