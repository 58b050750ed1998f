package main

import (
	"crypto/sha256"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testserver"
)

// aKey is an API key in a file.
var aKey = "keys: {a: {hash: '" + testserver.HashOf("ls_a") + "', scopes: [read], namespaces: [a]}}\n"

// loadText loads a configuration whose file, lastseen.yaml, has the given content.
func loadText(t *testing.T, content string) (*config.Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("lastseen.yaml", []byte(content), 0o600))
	return config.Loader{Flags: map[string]string{"config": "lastseen.yaml"}}.Load()
}

func TestKeyNew(t *testing.T) {
	code, stdout, stderr := execute(t, "key", "new", "--name", "page", "--scopes", "read, ping", "--namespaces",
		"chat-*,lobby")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	key, lines, found := strings.Cut(stdout, "\n\n")
	require.True(t, found)
	require.Regexp(t, `^ls_[A-Za-z0-9_-]{43}$`, key)
	require.NotContains(t, lines, key)
	c, err := loadText(t, lines)
	require.NoError(t, err)
	require.Equal(t, []auth.Key{{
		Name: "page", Hash: sha256.Sum256([]byte(key)),
		Scopes: []auth.Scope{"read", "ping"}, Namespaces: []auth.Pattern{"chat-*", "lobby"},
	}}, c.Access.Keys)

	_, stdout, _ = execute(t, "key", "new")
	require.NotContains(t, stdout, key, "another one")
	_, lines, _ = strings.Cut(stdout, "\n\n")
	c, err = loadText(t, lines)
	require.NoError(t, err)
	require.Equal(t, "backend", c.Access.Keys[0].Name)
	require.Equal(t, []auth.Scope{"ping", "read"}, c.Access.Keys[0].Scopes)
	require.Equal(t, []auth.Pattern{"*"}, c.Access.Keys[0].Namespaces)
}

func TestKeyNewErrors(t *testing.T) {
	for _, wrong := range []string{"--name=a b", "--name=", "--scopes=write", "--scopes=", "--namespaces=a/b"} {
		code, stdout, stderr := execute(t, "key", "new", wrong)
		require.Equal(t, 2, code)
		require.Empty(t, stdout, "a key that was refused is none")
		flag, _, _ := strings.Cut(wrong, "=")
		require.Contains(t, stderr, flag+": ")
	}
}
