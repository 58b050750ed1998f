package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestWrongFlags: an error names the flag, and the process ends. What values are wrong is tested where they are read.
func TestWrongFlags(t *testing.T) {
	requireRefused(t, nil, map[string]string{
		"--green 60": `--green: "60" has no unit`,
		"--green":    "--green",
		"--green 5m": "green is 5m (flag --green) and yellow is 5m (default): green must be shorter",
		"--sync=-1s": `"-1s" is out of range: durations are between 1ms and 10 years (87600h); use 0, or a duration`,
		"--store=":   "--store: is empty; use a file, or a URL",
		"--config=":  "--config: is empty",
		"--redis-pool-size 2 --redis-min-idle-conns 3": "redis-min-idle-conns cannot exceed redis-pool-size",
		"--store mysql://localhost":                    "--store: ",
		"--store redis://:geheim@localhost:port":       "--store: ",
		"--listen 8080":                                `--listen: "8080" is not valid: missing port in address; use HOST:PORT`,
		"--listen :99999":                              `":99999" has no port from 0 to 65535; use HOST:PORT`,
		"--listen :":                                   `":" has no port from 0 to 65535; use HOST:PORT`,
		"--redis-key presence":                         "unknown flag --redis-key",
		"--unknown-namespaces refuse":                  "no namespaces are configured",
	})
}

// TestSecretInsteadOfFileIsNotShown, whatever else is wrong.
func TestSecretInsteadOfFileIsNotShown(t *testing.T) {
	t.Setenv("LASTSEEN_JWT_SECRET_FILE", testserver.Secret)
	refused := map[string]string{}
	for _, line := range []string{
		"", "--jwt-issuer x", "--jwt-jwks-url http://a", "--auth none", "--jwt-issuer x --jwt-audience y",
		"--listen :8080 --tls-cert x",
	} {
		refused[line] = "LASTSEEN_JWT_SECRET_FILE"
	}
	requireRefused(t, []string{"config"}, refused)
}

func TestReportsAllErrors(t *testing.T) {
	t.Setenv("LASTSEEN_SYNC", "5")
	t.Setenv("LASTSEEN_GREN", "5s")
	code, stdout, stderr := execute(t, "config", "--yellow", "5", "--redis-shards", "many", "--green", "7m")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	for _, want := range []string{
		"3 errors in the settings", "\n  LASTSEEN_SYNC: ", "\n  --yellow: ", "\n  --redis-shards: ",
		"warning: env LASTSEEN_GREN: unknown setting, did you mean LASTSEEN_GREEN?",
	} {
		require.Contains(t, stderr, want)
	}
	require.NotContains(t, stderr, "green is", "values that cannot be compared are not reported")
}

// TestUnrelatedVariables: Kubernetes sets variables like these for Services by the names of lastseen and
// lastseen-redis.
func TestUnrelatedVariables(t *testing.T) {
	for _, name := range []string{
		"LASTSEEN_PORT", "LASTSEEN_PORT_80_TCP_ADDR", "LASTSEEN_SERVICE_HOST",
		"LASTSEEN_REDIS_PORT", "LASTSEEN_REDIS_SERVICE_PORT_TLS", "LASTSEEN_TEST_BINARY",
	} {
		t.Setenv(name, "x")
	}
	_, _, stderr := execute(t, "config")
	require.Empty(t, stderr)
}

func TestPrecedence(t *testing.T) {
	settingsOf := func(args ...string) map[string]any {
		return testserver.Start(t, args...).Get(t, "/v1/namespaces/any")
	}
	require.EqualValues(t, 60_000, settingsOf()["green_ms"], "default")

	file := testserver.WriteConfig(t, "green: 40s\nping-interval: 8s\nnamespaces: {chat: {green: 50s}}\n")
	fromFile := settingsOf("--config", file)
	require.EqualValues(t, 40_000, fromFile["green_ms"], "file beats default")
	require.EqualValues(t, 8_000, fromFile["ping_interval_ms"])

	t.Setenv("LASTSEEN_CONFIG", file)
	t.Setenv("LASTSEEN_GREEN", "20s")
	t.Setenv("LASTSEEN_PING_INTERVAL", "7s")
	fromEnv := settingsOf()
	require.EqualValues(t, 20_000, fromEnv["green_ms"], "environment beats file")
	require.EqualValues(t, 7_000, fromEnv["ping_interval_ms"])

	s := testserver.Start(t, "--green", "10s")
	require.EqualValues(t, 10_000, s.Get(t, "/v1/namespaces/any")["green_ms"], "flag beats environment")
	chat := s.Get(t, "/v1/namespaces/chat")
	require.EqualValues(t, 50_000, chat["green_ms"], "a namespace's own value beats all of them")
	require.EqualValues(t, 7_000, chat["ping_interval_ms"], "and the rest it inherits")

	t.Setenv("LASTSEEN_GREEN", "20")
	code, _, stderr := execute(t)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "LASTSEEN_GREEN: ")
}

// TestListFlags: a list in a flag is read as one in the environment is, with all of its items.
func TestListFlags(t *testing.T) {
	for flag, text := range map[string]string{
		"cors-origins":    "https://a.example.com,https://b.example.com",
		"allowed-hosts":   "a.example.com,presence.test.example",
		"trusted-proxies": "127.0.0.1,10.0.0.0/8",
	} {
		code, stdout, stderr := execute(t, "config", "--"+flag, text)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, text+" # flag --"+flag, flag)
	}
}

// TestMalformedStoreURL checks that such a URL is an error: taken as the name of a file, the store would be empty.
func TestMalformedStoreURL(t *testing.T) {
	for _, store := range []string{
		"redis:/user:geheim@127.0.0.1:6379", "redis:geheim@127.0.0.1", "rediss:/geheim", "redis:127.0.0.1:6379/geheim",
		"REDIS:/geheim", "redis+sentinel:/geheim/?master=m",
		"redis+cluster:geheim", "Redis://geheim@127.0.0.1", "redis:", "redis:\\\\geheim",
	} {
		for _, args := range [][]string{{"config", "--store", store}, {"--listen", "127.0.0.1:0", "--store", store}} {
			code, stdout, stderr := execute(t, args...)
			require.Equal(t, 2, code, "%s: %s", args, stdout)
			require.Contains(t, stderr, "--store: ")
			require.Contains(t, stderr, "redis://", "the error shows a valid URL")
			require.NotContains(t, stdout+stderr, "geheim")
			files, err := os.ReadDir(".")
			require.NoError(t, err)
			require.Empty(t, files, "no file was made")
		}
		_, _, stderr := execute(t, "config", "--store", store, "--config",
			testserver.WriteConfig(t, "namespaces: {a: {redis-key: a}}"))
		require.NotContains(t, stderr, "geheim")
		_, _, stderr = execute(t, store)
		require.NotContains(t, stderr, "geheim")
	}
	for _, file := range []string{"redis", "redis.db", "./redis:1", "data/redis:1", "rediska:1", "xredis:1"} {
		code, _, stderr := execute(t, "config", "--store", file)
		require.Zero(t, code, "%s is a file: %s", file, stderr)
	}
}

// TestWarnsOfReadableDataFiles: lastseen creates them for their owner only; a copy or a backup may be for everyone.
func TestWarnsOfReadableDataFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "data.db")
	code, _, stderr := execute(t, "--listen", "127.0.0.1:0", "--store", file)
	require.Zero(t, code, stderr)
	require.NotContains(t, stderr, "chmod", "one that is new")
	for mode, warned := range map[os.FileMode]bool{
		0o600: false, 0o400: false, 0o644: true, 0o640: true, 0o604: true,
		0o660: true, 0o611: false,
	} {
		require.NoError(t, os.Chmod(file, mode))
		for _, args := range [][]string{{"--listen", "127.0.0.1:0"}, {"config"}} {
			_, _, stderr := execute(t, append(args, "--store", file)...)
			require.Equal(t, warned, strings.Contains(stderr, "chmod 600 "+file), "%o %s: %s", mode, args, stderr)
		}
	}
	_, _, stderr = execute(t, "config", "--store", "redis://127.0.0.1:1")
	require.Empty(t, stderr)
	_, _, stderr = execute(t, "config", "--store", dir)
	require.NotContains(t, stderr, "chmod", "a folder is another mistake")
}
