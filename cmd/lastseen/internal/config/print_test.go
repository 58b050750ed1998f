package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// requireRoundTrip requires that what is printed of a configuration, taken as a file, makes the same one.
func requireRoundTrip(t testing.TB, c *Config) {
	t.Helper()
	var printed strings.Builder
	require.NoError(t, c.Print(&printed, "v1"))
	again, err := loadText(t, printed.String())
	require.NoError(t, err, printed.String())
	require.Zero(t, Compare(c, again), printed.String())
	require.Equal(t, c.Names(), again.Names())
	require.Equal(t, c.layouts(), again.layouts())
}

func TestPrintedConfigurationIsAFile(t *testing.T) {
	for _, content := range []string{
		"",
		"green: 50s\nsync: 0\nretention: 720h\nstore: 'a: #b'\nlisten: ':80'\nauth: none\n",
		"store: redis://h:1/2\nredis-prefix: \"1\"\nredis-score-unit: s\nredis-shards: 3\n",
		"store: redis://h:1\nredis-prefix: \"a\\nb\\t'\\\"{}\"\n",
		"allowed-hosts: ['*.example.com', nas.lan]\n",
		"cors-origins: '*'\nanonymous-read: ['null']\nkeys: {'null': {hash: " + testserver.HashOf("a") +
			", scopes: [ping], namespaces: ['*', 'null', 1]}}\n",
		"log-level: warn\nrate-limit: off\nlisten: '[::]:1'\nkeys: {'1': {hash: " + testserver.HashOf("a") +
			", scopes: [admin], namespaces: [a]}}\n",
		"store: redis://h:1\nnamespaces:\n  '1': {green: 10s}\n  null: {redis-key: '007', redis-score-unit: ms}\n  off: {retention: off}\n  z:\n",
	} {
		c := load(t, content)
		requireRoundTrip(t, c)
	}
}
