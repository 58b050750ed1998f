package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

func TestConfigCommand(t *testing.T) {
	t.Setenv("LASTSEEN_SYNC", "2s")
	file := testserver.WriteConfig(t, "store: redis://u:geheim@127.0.0.1:1\nnamespaces:\n  chat:\n    green: 90s\n")
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
	_, stdout, _ := execute(t, "config", "--config", testserver.WriteConfig(t, "namespaces: {chat: }"))
	require.Contains(t, stdout, "    # retention: off # inherited, default\n")
	require.NotContains(t, stdout, "    # redis-")
}

// TestConfigRedactsURLs: a query may hold a key, and a user without a password may be one.
func TestConfigRedactsURLs(t *testing.T) {
	for content, shown := range map[string]string{
		testserver.Issuer + "jwt-jwks-url: https://id.example.com/keys?key=geheim":       "jwt-jwks-url: https://id.example.com/keys?xxxxx # ",
		testserver.Issuer + "jwt-jwks-url: https://id.example.com?geheim":                "jwt-jwks-url: https://id.example.com?xxxxx # ",
		testserver.Issuer + "jwt-jwks-url: 'https://id.example.com:8443/a%2Fb#geheim'":   "jwt-jwks-url: https://id.example.com:8443/a%2Fb # ",
		testserver.Issuer + "jwt-jwks-url: https://id.example.com/.well-known/jwks.json": "jwt-jwks-url: https://id.example.com/.well-known/jwks.json # ",
		"store: redis://geheim@127.0.0.1:1":                                              "store: redis://xxxxx@127.0.0.1:1 # ",
		"store: redis://geheim:@127.0.0.1:1":                                             "store: redis://xxxxx@127.0.0.1:1 # ",
		"store: redis://user:geheim@127.0.0.1:1":                                         "store: redis://user:xxxxx@127.0.0.1:1 # ",
		"store: redis+sentinel://geheim@h:1?master=m":                                    "store: redis+sentinel://xxxxx@h:1?master=m # ",
		"store: redis+cluster://geheim@h:1\nnamespaces: {a: {redis-score-unit: ms}}":     "store: redis+cluster://xxxxx@h:1 # ",
	} {
		code, stdout, stderr := execute(t, "config", "--config", testserver.WriteConfig(t, content))
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "\n"+shown, content)
		require.NotContains(t, stdout+stderr, "geheim", content)
	}
	for _, args := range [][]string{
		{"--jwt-jwks-url", "https://geheim@id.example.com/keys"},
		{"--jwt-jwks-url", "http://id.example.com/keys?geheim", "--jwt-issuer", "x", "--jwt-audience", "y"},
		{"--jwt-jwks-url", "https://id.example.com/keys?geheim", "--jwt-issuer", "x"},
		{"https://geheim@id.example.com/keys?geheim"},
		{"redis://geheim@127.0.0.1"},
	} {
		_, stdout, stderr := execute(t, append([]string{"config"}, args...)...)
		require.NotEmpty(t, stderr, args)
		require.NotContains(t, stdout+stderr, "geheim", args)
	}
	r := newReloadTest(t, testserver.Issuer+"jwt-jwks-url: https://id.example.com/keys?key=geheim")
	log := r.write(testserver.Issuer + "jwt-jwks-url: https://id.example.com/new?key=geheim")
	require.Contains(t, log, "jwt-jwks-url: https://id.example.com/keys?xxxxx → https://id.example.com/new?xxxxx")
	require.NotContains(t, log, "geheim")
}
