package auth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

func TestParsePattern(t *testing.T) {
	for _, validToken := range []string{"*", "chat", "chat-*", "chat*", "A.b_c-9", strings.Repeat("x", 64) + "*"} {
		p, err := ParsePattern(validToken)
		require.NoError(t, err)
		require.Equal(t, Pattern(validToken), p)
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
