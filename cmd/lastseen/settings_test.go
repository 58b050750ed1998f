package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// execute runs one command line to its end, with a context that has ended: serve stops at once.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err)
	return code, out.String(), err.String()
}

func TestWrongFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--green", "60"}, `--green: "60" has no unit`},
		{[]string{"--green", "0"}, "--green: is 0"},
		{[]string{"--green", "5m"}, "green is 5m (flag --green) and yellow is 5m (default): green must be shorter"},
		{[]string{"--yellow", "11y"}, "is not a valid duration"},
		{[]string{"--ping-interval", "100000h"}, "out of range"},
		{
			[]string{"--sync=-1s"},
			"--sync: \"-1s\" is out of range: durations are between 1ms and 10 years (87600h); use 0, or a duration",
		},
		{[]string{"--redis-shards", "0"}, "--redis-shards: 0 is out of range; use a number from 1 to 64"},
		{[]string{"--redis-shards", "65"}, "--redis-shards: 65 is out of range"},
		{[]string{"--redis-shards", "99999999999999999999"}, "out of range"},
		{[]string{"--redis-shards", "4.0"}, `"4.0" is not a whole number`},
		{[]string{"--redis-pool-size=-1"}, "--redis-pool-size: -1 is out of range"},
		{
			[]string{"--redis-pool-size", "2", "--redis-min-idle-conns", "3"},
			"redis-min-idle-conns cannot exceed redis-pool-size",
		},
		{[]string{"--redis-score-unit", "us"}, `--redis-score-unit: "us" is not a unit; use ms or s`},
		{[]string{"--redis-prefix", ""}, "--redis-prefix: is empty"},
		{[]string{"--store", ""}, "--store: is empty; use a file, or a URL"},
		{[]string{"--store", "mysql://localhost"}, "--store: "},
		{[]string{"--store", "redis://:geheim@localhost:port"}, "--store: "},
		{[]string{"--listen", "8080"}, `--listen: "8080" is not an address; use HOST:PORT`},
		{[]string{"--listen", ":99999"}, "no valid port"},
		{[]string{"--listen", ":"}, "no valid port"},
		{
			[]string{"--retention", "4m"},
			"retention is 4m (flag --retention) and yellow is 5m (default): retention must be off or at least yellow",
		},
		{[]string{"--body-memory", "64"}, `--body-memory: "64" has no unit; use a size from 16MiB to 1024GiB`},
		{[]string{"--body-memory", "64MB"}, "has no unit"},
		{[]string{"--body-memory", "15MiB"}, "out of range"},
		{[]string{"--body-memory", "1025GiB"}, "out of range"},
		{[]string{"--body-memory", "99999999999999999999GiB"}, "out of range"},
		{[]string{"--body-memory=-1GiB"}, "out of range"},
		{[]string{"--max-connections", "0"}, `--max-connections: "0" is out of range; use auto, or a number from 1 to`},
		{[]string{"--max-connections", "many"}, "out of range"},
		{[]string{"--config", ""}, "--config: is empty"},
		{[]string{"--redis-key", "presence"}, "unknown flag --redis-key"},
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"no-such-command"}, "no-such-command"},
		{
			[]string{"redis://:geheim@localhost"},
			`unknown command "redis://:xxxxx@localhost:6379", did you mean --store?`,
		},
		{[]string{"--green"}, "--green"},
	} {
		code, _, stderr := execute(t, c.args...)
		require.Equal(t, 2, code, "%v: %s", c.args, stderr)
		require.Contains(t, stderr, c.want, "%v", c.args)
		require.NotContains(t, stderr, "geheim")
	}
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
	require.NotContains(t, stderr, "green is", "nothing is said about what cannot be compared")
}

// TestForeignVariables: Kubernetes sets variables like these for Services by the names of lastseen and
// lastseen-redis.
func TestForeignVariables(t *testing.T) {
	for _, name := range []string{
		"LASTSEEN_PORT", "LASTSEEN_PORT_80_TCP_ADDR", "LASTSEEN_SERVICE_HOST",
		"LASTSEEN_REDIS_PORT", "LASTSEEN_REDIS_SERVICE_PORT_TLS", "LASTSEEN_TEST_BINARY",
	} {
		t.Setenv(name, "x")
	}
	_, _, stderr := execute(t, "config")
	require.Empty(t, stderr)
}

// writeConfig writes a configuration file and returns its name.
func writeConfig(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lastseen.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func TestPrecedence(t *testing.T) {
	settingsOf := func(args ...string) map[string]any { return start(t, args...).get(t, "/v1/namespaces/any") }
	require.EqualValues(t, 60_000, settingsOf()["green_ms"], "default")

	file := writeConfig(t, "green: 40s\nping-interval: 8s\nnamespaces: {chat: {green: 50s}}\n")
	fromFile := settingsOf("--config", file)
	require.EqualValues(t, 40_000, fromFile["green_ms"], "file beats default")
	require.EqualValues(t, 8_000, fromFile["ping_interval_ms"])

	t.Setenv("LASTSEEN_CONFIG", file)
	t.Setenv("LASTSEEN_GREEN", "20s")
	t.Setenv("LASTSEEN_PING_INTERVAL", "7s")
	fromEnv := settingsOf()
	require.EqualValues(t, 20_000, fromEnv["green_ms"], "environment beats file")
	require.EqualValues(t, 7_000, fromEnv["ping_interval_ms"])

	s := start(t, "--green", "10s")
	require.EqualValues(t, 10_000, s.get(t, "/v1/namespaces/any")["green_ms"], "flag beats environment")
	chat := s.get(t, "/v1/namespaces/chat")
	require.EqualValues(t, 50_000, chat["green_ms"], "a namespace's own value beats all of them")
	require.EqualValues(t, 7_000, chat["ping_interval_ms"], "and the rest it inherits")

	t.Setenv("LASTSEEN_GREEN", "20")
	code, _, stderr := execute(t)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "LASTSEEN_GREEN: ")
}

func TestWarnsOfThresholdsBelowTwoPings(t *testing.T) {
	_, _, stderr := execute(t, "--listen", "127.0.0.1:0", "--green", "59s")
	require.Contains(t, stderr, "two ping intervals")
	_, _, stderr = execute(t, "--listen", "127.0.0.1:0", "--green", "60s")
	require.NotContains(t, stderr, "two ping intervals")
}

func TestSaysWhereThingsAre(t *testing.T) {
	code, stdout, stderr := execute(t, "--listen", "127.0.0.1:0", "--store", "here.db")
	require.Zero(t, code, stderr)
	dir, err := os.Getwd()
	require.NoError(t, err)
	require.Contains(t, stdout, filepath.Join(dir, "here.db"))
	require.Regexp(t, `http://127\.0\.0\.1:[1-9][0-9]*/v1/namespaces`, stdout)
}

func TestRefusesForeignAndLockedFiles(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(foreign, bytes.Repeat([]byte("notes "), 4000), 0o600))
	code, _, stderr := execute(t, "--listen", "127.0.0.1:0", "--store", foreign)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "not a lastseen data file")

	locked := filepath.Join(t.TempDir(), "data.db")
	start(t, "--store", locked)
	code, _, stderr = execute(t, "--listen", "127.0.0.1:0", "--store", locked)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "in use by another process")

	code, _, stderr = execute(t, "--listen", "127.0.0.1:0", "--store",
		filepath.Join(t.TempDir(), "no", "folder", "data.db"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "folder must exist")
}

func TestBusyPort(t *testing.T) {
	s := start(t)
	code, _, stderr := execute(t, "--listen", s.url[len("http://"):])
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "address already in use")
}

func TestHealthAndVersion(t *testing.T) {
	s := start(t)
	address := s.url[len("http://"):]
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.Zero(t, run(ctx, []string{"health", "--listen", address}, &out, &errs), errs.String())
	t.Setenv("LASTSEEN_CONFIG", writeConfig(t, "grene: 1s\nlisten: "+address))
	require.Zero(t, run(ctx, []string{"health"}, &out, &errs), "whatever else is wrong: %s", errs.String())
	t.Setenv("LASTSEEN_CONFIG", "no-such-file")
	require.Zero(t, run(ctx, []string{"health", "--listen", address}, &out, &errs), "it is not needed")
	require.Equal(t, 2, run(ctx, []string{"health"}, &out, &errs))
	require.Equal(t, 2, run(ctx, []string{"health", "--listen", "x"}, &out, &errs))
	s.kill()
	require.Equal(t, 1, run(ctx, []string{"health", "--listen", address}, &out, &errs))

	code, stdout, _ := execute(t, "version")
	require.Zero(t, code)
	require.Regexp(t, `^lastseen .* go1\.`, stdout)
	code, stdout, _ = execute(t, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "serve")
}

// TestHealthTakesNoProxy: one would answer for the service.
func TestHealthTakesNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	health := exec.Command(os.Getenv(binaryVar), "health", "--listen", "lastseen.invalid:80")
	health.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL)
	out, err := health.CombinedOutput()
	require.Error(t, err, string(out))
}

func TestHealthAddress(t *testing.T) {
	for listen, want := range map[string]string{
		":8080":          "127.0.0.1:8080",
		"0.0.0.0:80":     "127.0.0.1:80",
		"[::]:80":        "127.0.0.1:80",
		"127.0.0.1:8080": "127.0.0.1:8080",
		"[::1]:9":        "[::1]:9",
		"host:1":         "host:1",
		":http":          "127.0.0.1:80",
	} {
		got, err := healthAddress(listen)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := healthAddress("nonsense")
	require.Error(t, err)
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
