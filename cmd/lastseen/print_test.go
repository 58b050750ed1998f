package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
