package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// loadText loads a configuration whose file has the given content, without flags and environment.
func loadText(t testing.TB, content string) (*Config, error) {
	t.Helper()
	file := testserver.WriteConfig(t, content)
	return Loader{Flags: map[string]string{"config": file}}.Load()
}

// load is loadText of a file that is valid.
func load(t testing.TB, content string) *Config {
	t.Helper()
	c, err := loadText(t, content)
	require.NoError(t, err, content)
	return c
}

// problemsOf returns what is wrong with a file, without the folder that it is in.
func problemsOf(t *testing.T, content string) []string {
	t.Helper()
	c, err := loadText(t, content)
	if err == nil {
		return nil
	}
	var wrong *Error
	require.ErrorAs(t, err, &wrong)
	dir := filepath.Dir(c.Config) + "/"
	var all []string
	for _, problem := range wrong.Problems {
		all = append(all, strings.ReplaceAll(problem, dir, ""))
	}
	return all
}

func TestWrongFiles(t *testing.T) {
	const (
		redis = "store: redis://127.0.0.1:1\n"
		times = " (examples: 90s, 5m, 1h30m); use a duration shorter than yellow"
		feeds = ": a set that other programs can write has no changes feed: set changes to auto or off for it"
		one   = ": a namespace with a redis-key has one shard: set redis-shards: 1 for it"
		atMap = `; use a mapping, such as "name: value"`
		rings = "; use a duration from 1s to 10m"
		limit = "; use off, or a number from 1 to 1000000"
		nets  = "; use comma-separated IP addresses and networks, such as 10.0.0.0/8"

		address = "; use HOST:PORT, or :PORT for all addresses"
	)
	hosts, _ := Find("allowed-hosts")
	for _, c := range []struct{ content, want string }{
		{"grene: 60s", "lastseen.yaml:1: grene: unknown setting, did you mean green?"},
		{"\nping_interval: 60s", "lastseen.yaml:2: ping_interval: unknown setting, did you mean ping-interval?"},
		{"Green: 60s", "lastseen.yaml:1: Green: unknown setting, did you mean green?"},
		{"namespace: {}", "lastseen.yaml:1: namespace: unknown setting, did you mean namespaces?"},
		{"quite-another-thing: 1", "lastseen.yaml:1: quite-another-thing: unknown setting"},
		{"\"a b\": 1", `lastseen.yaml:1: "a b": unknown setting`},
		{"config: other.yaml", "lastseen.yaml:1: config cannot be set here: set it with the flag"},
		{
			"redis-key: presence",
			"lastseen.yaml:1: redis-key cannot be set here: set it for a namespace, under namespaces",
		},
		{"green: 50s\n\ngreen: 40s", "lastseen.yaml:3: green is a duplicate of line 1"},
		{"green: 60", `lastseen.yaml:1: green: "60" has no unit` + times},
		{"green: '60'", `lastseen.yaml:1: green: "60" has no unit` + times},
		{"green: true", `lastseen.yaml:1: green: "true" is not a valid duration` + times},
		{"green:", "lastseen.yaml:1: green holds nothing; use a duration shorter than yellow"},
		{"green: [60s]", "lastseen.yaml:1: green holds a list; use a duration shorter than yellow"},
		{"green: {a: 60s}", "lastseen.yaml:1: green holds a mapping; use a duration shorter than yellow"},
		{
			"ping-interval: 100000h",
			`lastseen.yaml:1: ping-interval: "100000h" is out of range: durations are between 1ms and 10 years (87600h); use a duration from 1ms to 10 years`,
		},
		{"redis-shards: four", `lastseen.yaml:1: redis-shards: "four" is not valid; use a number from 1 to 64`},
		{"redis-prefix: 7", "lastseen.yaml:1: redis-prefix: put the value in quotes; use text"},
		{"redis-prefix: ''", "lastseen.yaml:1: redis-prefix: is empty; use text"},
		{"green: 6m", "green is 6m (lastseen.yaml:1) and yellow is 5m (default): green must be shorter than yellow"},
		{
			"green: 5m\nyellow: 300s",
			"green is 5m (lastseen.yaml:1) and yellow is 300s (lastseen.yaml:2): green must be shorter than yellow",
		},
		{
			"retention: 299s",
			"retention is 299s (lastseen.yaml:1) and yellow is 5m (default): retention must be off or at least yellow",
		},
		{
			"contacts-retention: 4m",
			"contacts-retention is 4m (lastseen.yaml:1) and yellow is 5m (default): " +
				"contacts-retention must be off or at least yellow",
		},
		{
			"retention: 720h\ncontacts-retention: 719h",
			"contacts-retention is 719h (lastseen.yaml:2) and retention is 720h (lastseen.yaml:1): " +
				"contacts-retention must be off or at least retention",
		},
		{"- green", `lastseen.yaml:1: the file holds a list` + atMap},
		{"redis://:geheim@h", `lastseen.yaml:1: the file holds a single value` + atMap},
		{"green: 50s\n---\nyellow: 6m", "lastseen.yaml:2: the file holds a second YAML document: only one is allowed"},
		{"green: 50s\n  yellow: 6m", "lastseen.yaml:2: mapping values are not allowed in this context"},
		{"green: 50s: 60s", "lastseen.yaml:1: mapping values are not allowed in this context"},
		{
			"sync: 1s\nanonymous-read: [*]",
			"lastseen.yaml:2: did not find expected alphabetic or numeric character after * or &: put values that start with * in quotes",
		},
		{"sync: 1s\ngreen: *nowhere\nyellow: 6m", "lastseen.yaml:2: unknown anchor 'nowhere' referenced"},
		{"namespaces:\n  a:\n    green: 10s\n   yellow: 5m\n  b:", "lastseen.yaml:4: did not find expected key"},
		{"namespaces:\n  a:\n    green: 10s\n    - x\n  b:", "lastseen.yaml:4: did not find expected key"},
		{"# one\n\nlisten: {a:\n  b}\nyellow: [5m\nsync: 1s", "lastseen.yaml:5: did not find expected ',' or ']'"},
		{"green: 50s\nsync: 1s\n\tyellow: 6m\n", "lastseen.yaml:3: found a tab character that violates indentation"},
		{"green: 50s\nnonsense\nyellow: 6m\nsync: 1s", "lastseen.yaml:2: could not find expected ':'"},
		{"green: 50s\r\nsync: @\r\nyellow: 6m", "lastseen.yaml:2: found character that cannot start any token"},
		{"sync: 1s\nstore: \"a\nyellow: 6m\ngreen: 50s", "lastseen.yaml:2: found unexpected end of stream"},
		{"\xff\xfe\xfd", "lastseen.yaml:1: incomplete UTF-16 character"},
		{"{[a]: b}", "lastseen.yaml:1: the file has a list as a name; use text"},
		{"namespaces: chat", `lastseen.yaml:1: namespaces holds a single value` + atMap},
		{"namespaces: [chat]", `lastseen.yaml:1: namespaces holds a list` + atMap},
		{"namespaces:\n  chat: 60s", `lastseen.yaml:2: namespaces.chat holds a single value` + atMap},
		{"namespaces:\n  chat:\n    a: 1", "lastseen.yaml:3: namespaces.chat.a: unknown setting"},
		{
			"namespaces: {chat: {grey: 1s}}",
			"lastseen.yaml:1: namespaces.chat.grey: unknown setting, did you mean green?",
		},
		{
			"namespaces: {chat: {sync: 1s}}",
			"lastseen.yaml:1: namespaces.chat.sync cannot be set here: set it for the whole server",
		},
		{
			"namespaces: {a/b: }",
			`lastseen.yaml:1: namespaces: the namespace "a/b" has a character outside A–Z a–z 0–9 . _ -`,
		},
		{"namespaces: {'': }", "lastseen.yaml:1: namespaces: the namespace is empty: use 1 to 64 of A–Z a–z 0–9 . _ -"},
		{"namespaces: {a: {green: 5}}", `lastseen.yaml:1: namespaces.a.green: "5" has no unit` + times},
		{"namespaces: {a: }\nnamespaces: ", "lastseen.yaml:2: namespaces is a duplicate of line 1"},
		{"namespaces:\n  a:\n  a:", "lastseen.yaml:3: namespaces.a is a duplicate of line 2"},
		{
			"namespaces: {a: {yellow: 1m}}",
			"green is 60s (default) and namespaces.a.yellow is 1m (lastseen.yaml:1): green must be shorter than yellow",
		},
		{
			"namespaces: {a: {yellow: 2h}}\nretention: 1h",
			"retention is 1h (lastseen.yaml:2) and namespaces.a.yellow is 2h (lastseen.yaml:1): retention must be off or at least yellow",
		},
		{
			"namespaces: {a: {retention: 2h}}\ncontacts-retention: 1h",
			"contacts-retention is 1h (lastseen.yaml:2) and namespaces.a.retention is 2h (lastseen.yaml:1): " +
				"contacts-retention must be off or at least retention",
		},
		{
			"namespaces: {a: {redis-key: presence}}",
			"namespaces.a.redis-key is presence (lastseen.yaml:1): this setting requires a Redis store, but store is lastseen.db (default)",
		},
		{
			redis + "namespaces: {a: {redis-key: 2024-01-02}}",
			"lastseen.yaml:2: namespaces.a.redis-key: put the value in quotes; use text",
		},
		{
			redis + "namespaces: {a: {redis-key: k, redis-shards: 2}}",
			"namespaces.a.redis-key is k (lastseen.yaml:2) and namespaces.a.redis-shards is 2 (lastseen.yaml:2)" + one,
		},
		{
			redis + "redis-shards: 2\nnamespaces: {a: {redis-key: k}}",
			"namespaces.a.redis-key is k (lastseen.yaml:3) and redis-shards is 2 (lastseen.yaml:2)" + one,
		},
		{"changes: maybe", `lastseen.yaml:1: changes: "maybe" is not valid; use auto, on or off`},
		{
			redis + "namespaces: {a: {redis-key: k, changes: on}}",
			"namespaces.a.redis-key is k (lastseen.yaml:2) and namespaces.a.changes is on (lastseen.yaml:2)" + feeds,
		},
		{
			redis + "changes: on\nnamespaces: {a: {redis-key: k}, b: {redis-key: l, changes: auto}}",
			"namespaces.a.redis-key is k (lastseen.yaml:3) and changes is on (lastseen.yaml:2)" + feeds,
		},
		{
			redis + "namespaces: {a: {redis-score-unit: ms, changes: on}}",
			"namespaces.a.redis-score-unit is ms (lastseen.yaml:2) and namespaces.a.changes is on (lastseen.yaml:2)" + feeds,
		},
		{
			redis + "redis-score-unit: s\nnamespaces: {a: {changes: on}, b: {}}",
			"redis-score-unit is s (lastseen.yaml:2) and namespaces.a.changes is on (lastseen.yaml:3)" + feeds,
		},
		{
			redis + "redis-prefix: 'p{1}:'\nchanges: on\nnamespaces: {a: {}}",
			"redis-prefix is p{1}: (lastseen.yaml:2) and changes is on (lastseen.yaml:3): a changes feed requires a prefix without braces",
		},
		{
			redis + "redis-prefix: 'p}'\nnamespaces: {a: {changes: on}, b: {changes: off}, c: }",
			"redis-prefix is p} (lastseen.yaml:2) and namespaces.a.changes is on (lastseen.yaml:3): a changes feed requires a prefix without braces",
		},
		{
			redis + "namespaces: {a: {redis-key: k}, b: {redis-key: k}}",
			"namespaces.a.redis-key is k (lastseen.yaml:2) and namespaces.b.redis-key is k (lastseen.yaml:2): two namespaces cannot share a key",
		},
		{
			redis + "namespaces: {a: {redis-key: 'presence:b'}}",
			`lastseen.yaml:2: namespaces.a.redis-key: namespace a: the key "presence:b" is where b belongs`,
		},
		{
			redis + "namespaces:\n  a: {green: 70s}\n  b:\n    redis-key: 'presence::meta'",
			`lastseen.yaml:5: namespaces.b.redis-key: namespace b: the key "presence::meta" is where the list of namespaces belongs`,
		},
		{"log-level: loud", `lastseen.yaml:1: log-level: "loud" is not valid; use debug, info, warn or error`},
		{"log-format: xml", `lastseen.yaml:1: log-format: "xml" is not valid; use text or json`},
		{"access-log: yes", `lastseen.yaml:1: access-log: "yes" is not valid; use on or off`},
		{"rate-limit: 0", `lastseen.yaml:1: rate-limit: "0" is not valid` + limit},
		{"user-rate-limit: 1.5", `lastseen.yaml:1: user-rate-limit: "1.5" is not valid` + limit},
		{"listen: 127.0.0.1:99999", `lastseen.yaml:1: listen: "127.0.0.1:99999" has no port from 0 to 65535` + address},
		{"listen: '127.0.0.1:'", `lastseen.yaml:1: listen: "127.0.0.1:" has no port from 0 to 65535` + address},
		{
			"admin-listen: 127.0.0.1",
			`lastseen.yaml:1: admin-listen: "127.0.0.1" is not valid: missing port in address; use HOST:PORT, ` +
				":PORT for all addresses, or off",
		},
		{"listen: '::1:80'", `lastseen.yaml:1: listen: "::1:80" is not valid: too many colons in address` + address},
		{
			"trusted-proxies: 10.0.0.1/8",
			`lastseen.yaml:1: trusted-proxies: "10.0.0.1/8" has bits set after its prefix: ` +
				"for the network, write 10.0.0.0/8" + nets,
		},
		{"trusted-proxies: nginx", `lastseen.yaml:1: trusted-proxies: "nginx" is not valid` + nets},
		{"trusted-proxies: '10.0.0.1,,10.0.0.2'", "lastseen.yaml:1: trusted-proxies: has an empty item" + nets},
		{"trusted-proxies: []", "lastseen.yaml:1: trusted-proxies is empty" + nets},
		{"trusted-proxies: {a: b}", "lastseen.yaml:1: trusted-proxies holds a mapping" + nets},
		{
			"allowed-hosts: https://a.example",
			`lastseen.yaml:1: allowed-hosts: "https://a.example" is not a host name: use presence.example.com, or ` +
				"*.example.com for all names that end in it, in lower case and without a port; use " + hosts.Takes,
		},
		{"jwt-leeway: 5m1ms", `lastseen.yaml:1: jwt-leeway: "5m1ms" is not valid; use 0, or a duration up to 5m`},
		{"jwt-leeway: 87600h", `lastseen.yaml:1: jwt-leeway: "87600h" is not valid; use 0, or a duration up to 5m`},
		{"disconnect-grace: 61s", `lastseen.yaml:1: disconnect-grace: "61s" is not valid; use 0, or a duration up to 1m`},
		{"connect-drain: 601s", `lastseen.yaml:1: connect-drain: "601s" is not valid; use 0, or a duration up to 10m`},
		{
			"max-connections: 10\nmax-websockets: 11",
			"max-websockets is 11 (lastseen.yaml:2) and max-connections is 10 (lastseen.yaml:1): " +
				"WebSocket connections are part of max-connections, so max-websockets cannot exceed it",
		},
		{"redis-read-from: x", `lastseen.yaml:1: redis-read-from: "x" is not valid; use primary or replica`},
		{"redis-max-lag: 99ms", `lastseen.yaml:1: redis-max-lag: "99ms" is not valid; use a duration from 100ms to 1m`},
		{"redis-max-lag: 61s", `lastseen.yaml:1: redis-max-lag: "61s" is not valid; use a duration from 100ms to 1m`},
		{
			"redis-read-from: replica\nstore: rediss+cluster://a,b",
			"redis-read-from is replica (lastseen.yaml:1) and store is rediss+cluster://a:6379,b:6379 " +
				"(lastseen.yaml:2): the replicas of a Cluster cannot be read from: set redis-read-from to primary",
		},
		{"ring-timeout: 999ms", `lastseen.yaml:1: ring-timeout: "999ms" is not valid` + rings},
		{"ring-timeout: 10m1s", `lastseen.yaml:1: ring-timeout: "10m1s" is not valid` + rings},
		{"namespaces: {a: {}}\nring-timeout: 11m", `lastseen.yaml:2: ring-timeout: "11m" is not valid` + rings},
		{"namespaces: {a: {ring-timeout: 11m}}", `lastseen.yaml:1: namespaces.a.ring-timeout: "11m" is not valid` + rings},
		{"redial-wait: 999ms", `lastseen.yaml:1: redial-wait: "999ms" is not valid; use off, or a duration from 1s to 5m`},
		{
			"namespaces: {a: {redial-wait: 6m}}",
			`lastseen.yaml:1: namespaces.a.redial-wait: "6m" is not valid; use off, or a duration from 1s to 5m`,
		},
	} {
		require.Equal(t, []string{c.want}, problemsOf(t, c.content), c.content)
	}
}

func TestReportsAllErrorsOfAFile(t *testing.T) {
	problems := problemsOf(t, `
grene: 5s
yellow: 300
redis-shards: [1, 2]
namespaces:
  .x: {}
  chat: {green: 5m, retention: 1s, redis-key: k}
  none: {redis-key: ''}
  nothing: {redis-key: ''}
`)
	require.Len(t, problems, 7, "what cannot be compared is not; %s", strings.Join(problems, "\n"))
	for i, want := range []string{
		":2: grene", ":3: yellow", ":4: redis-shards", ":6: namespaces",
		":8: namespaces.none", ":9: namespaces.nothing", "redis-key is k",
	} {
		require.Contains(t, problems[i], want)
	}
}

func TestUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		dir + "/missing.yaml": "--config: " + dir + "/missing.yaml: no such file or directory",
		dir:                   "--config: " + dir + ": is a directory",
		"/dev/zero":           "--config: /dev/zero: is too large: the maximum is 16 MiB",
	} {
		_, err := Loader{Flags: map[string]string{"config": name}}.Load()
		require.EqualError(t, err, want)
	}
	if os.Geteuid() != 0 { // root may read everything
		file := testserver.WriteFile(t, "lastseen.yaml", []byte("green: 50s"))
		require.NoError(t, os.Chmod(file, 0))
		_, err := Loader{Flags: map[string]string{"config": file}}.Load()
		require.EqualError(t, err, "--config: "+file+": permission denied")
	}
}

func TestFilesThatAreFine(t *testing.T) {
	for _, content := range []string{
		"", "\n", "# nothing but a comment\n", "---\n", "---\n...\n", "null\n", "{}", "namespaces:\n",
		"namespaces: {}\n",
		"\ufeffgreen: 50s\n", "---\ngreen: 50s\n", "green: \"50s\"\r\nyellow: 6m\r\n", "retention: off\nsync: 0\n",
		"sync: 0s",
		"redis-shards: \"4\"", "green: &g 50s\nnamespaces: {a: {green: *g}, b: &b {yellow: 6m}, c: *b, 123: {}, off: }",
	} {
		_, err := loadText(t, content)
		require.NoError(t, err, content)
	}
}

// FuzzConfigFile: whatever is in a file, it is read or refused, and what is read can be printed and read
// again with the same result.
func FuzzConfigFile(f *testing.F) {
	for _, seed := range []string{
		"green: 60s\nnamespaces:\n  chat: {redis-key: presence, redis-score-unit: s}\n",
		"green: &a 5s\n<<: *a\n", "a: &a [*a]", "? [a]\n: b", "redis-prefix: \"a\\nb # c\"", "store: 'x: # y'",
		"--- |\n a\n--- b",
		"keys: {a: {hash: " + testserver.HashOf("a") +
			", scopes: [ping, read], namespaces: [a, 'b-*']}}\nanonymous-read: [a]\ncors-origins: http://a",
		"store: redis://u:p@h/1\nnamespaces: {~: , \"1\": {retention: 10m}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		c, err := loadText(t, content)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		if !utf8.ValidString(content) || strings.Contains(c.Store, "://") {
			return // hidden passwords do not come back
		}
		requireRoundTrip(t, c)
	})
}
