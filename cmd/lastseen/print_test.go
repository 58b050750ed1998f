package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireRoundTrip requires that what is printed of a configuration, taken as a file, makes the same one.
func requireRoundTrip(t testing.TB, c *config) {
	t.Helper()
	var printed strings.Builder
	require.NoError(t, c.print(&printed))
	again, err := loadText(t, printed.String())
	require.NoError(t, err, printed.String())
	require.Zero(t, compare(c, again), printed.String())
	require.Equal(t, c.names(), again.names())
	require.Equal(t, c.layouts(), again.layouts())
}

func TestPrintedConfigurationIsAFile(t *testing.T) {
	for _, content := range []string{
		"",
		"green: 50s\nsync: 0\nretention: 720h\nstore: 'a: #b'\nlisten: ':80'\nauth: none\n",
		"store: redis://h:1/2\nredis-prefix: \"1\"\nredis-score-unit: s\nredis-shards: 3\n",
		"store: redis://h:1\nredis-prefix: \"a\\nb\\t'\\\"{}\"\n",
		"cors-origins: '*'\nanonymous-read: ['null']\nkeys: {'null': {hash: " + hashOf("a") + ", scopes: [ping], namespaces: ['*', 'null', 1]}}\n",
		"log-level: warn\nrate-limit: off\nlisten: '[::]:1'\nkeys: {'1': {hash: " + hashOf("a") + ", scopes: [admin], namespaces: [a]}}\n",
		"store: redis://h:1\nnamespaces:\n  '1': {green: 10s}\n  null: {redis-key: '007', redis-score-unit: ms}\n  off: {retention: off}\n  z:\n",
	} {
		c, err := loadText(t, content)
		require.NoError(t, err)
		requireRoundTrip(t, c)
	}
}

func TestConfigCommand(t *testing.T) {
	t.Setenv("LASTSEEN_SYNC", "2s")
	file := writeConfig(t, "store: redis://u:geheim@127.0.0.1:1\nnamespaces:\n  chat:\n    green: 90s\n")
	code, stdout, stderr := execute(t, "config", "--config", file, "--yellow", "4m")
	require.Zero(t, code, stderr)
	for _, want := range []string{
		"\n# Statuses\ngreen: 60s # default\nyellow: 4m # flag --yellow\n",
		"\nsync: 2s # env LASTSEEN_SYNC\n",
		"\nstore: redis://u:xxxxx@127.0.0.1:1 # " + file + ":1, without passwords and options\n",
		"\nredis-prefix: 'presence:' # default\n",
		"\nnamespaces:\n  chat:\n    green: 90s # " + file + ":4\n    # yellow: 4m # inherited, flag --yellow\n",
		"\n    # redis-shards: 1 # inherited, default\n",
	} {
		require.Contains(t, stdout, want)
	}
	require.NotContains(t, stdout, "geheim")
	require.Empty(t, stderr)

	code, stdout, stderr = execute(t, "config", "--config", file, "--green", "50s")
	require.Zero(t, code)
	require.NotEmpty(t, stdout)
	require.Contains(t, stderr, "warning: green is 50s (flag --green) and ping-interval is 30s (default)")
	require.NotContains(t, stderr, "namespaces.chat")
}

// TestFileStoreShowsNoRedisOfNamespaces: it would be refused there.
func TestFileStoreShowsNoRedisOfNamespaces(t *testing.T) {
	_, stdout, _ := execute(t, "config", "--config", writeConfig(t, "namespaces: {chat: }"))
	require.Contains(t, stdout, "    # retention: off # inherited, default\n")
	require.NotContains(t, stdout, "    # redis-")
}
