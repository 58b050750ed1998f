package auth

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// FuzzKeyHash checks that a parsed hash is formatted the same.
func FuzzKeyHash(f *testing.F) {
	_, hash := NewKey()
	f.Add(FormatKeyHash(hash))
	f.Add("sha256:")
	f.Add("ls_AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		hash, err := ParseKeyHash(text)
		if err != nil {
			require.NotContains(t, err.Error(), "ls_", "a key in the place of its hash is not shown")
			return
		}
		require.True(t, bytes.EqualFold([]byte(text), []byte(FormatKeyHash(hash))), text)
	})
}
