package main

import (
	"bytes"
	"context"
	"os"
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

func TestWrongSettings(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--green", "60"}, "has no unit"},
		{[]string{"--green", "0"}, "--green is 0"},
		{[]string{"--green", "5m"}, "--green and --yellow"},
		{[]string{"--yellow", "11y"}, "no duration"},
		{[]string{"--ping-interval", "100000h"}, "out of bounds"},
		{[]string{"--sync=-1s"}, "out of bounds"},
		{[]string{"--redis-shards", "0"}, "--redis-shards is 0: it is 1 to 64"},
		{[]string{"--redis-shards", "65"}, "--redis-shards is 65"},
		{[]string{"--redis-pool-size", "-1"}, "--redis-pool-size"},
		{[]string{"--redis-prefix", ""}, "--redis-prefix"},
		{[]string{"--store", ""}, "--store is empty"},
		{[]string{"--store", "mysql://localhost"}, "--store"},
		{[]string{"--store", "redis://:geheim@localhost:port"}, "--store"},
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"no-such-command"}, "no-such-command"},
	} {
		code, _, stderr := execute(t, c.args...)
		require.Equal(t, 2, code, "%v: %s", c.args, stderr)
		require.Contains(t, stderr, c.want, "%v", c.args)
		require.NotContains(t, stderr, "geheim")
	}
}

func TestFlagBeatsEnvironmentBeatsDefault(t *testing.T) {
	settingsOf := func(args ...string) map[string]any { return start(t, args...).get(t, "/v1/namespaces/any") }
	require.EqualValues(t, 60_000, settingsOf()["green_ms"])
	t.Setenv("LASTSEEN_GREEN", "20s")
	t.Setenv("LASTSEEN_PING_INTERVAL", "7s")
	fromEnv := settingsOf()
	require.EqualValues(t, 20_000, fromEnv["green_ms"])
	require.EqualValues(t, 7_000, fromEnv["ping_interval_ms"])
	require.EqualValues(t, 10_000, settingsOf("--green", "10s")["green_ms"])
	t.Setenv("LASTSEEN_GREEN", "20")
	code, _, stderr := execute(t)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "green")
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
	code, _, stderr := execute(t, "--store", foreign)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "not a lastseen data file")

	locked := filepath.Join(t.TempDir(), "data.db")
	start(t, "--store", locked)
	code, _, stderr = execute(t, "--store", locked)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "in use by another process")

	code, _, stderr = execute(t, "--store", filepath.Join(t.TempDir(), "no", "folder", "data.db"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "folder has to exist")
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
	s.kill()
	require.Equal(t, 1, run(ctx, []string{"health", "--listen", address}, &out, &errs))

	code, stdout, _ := execute(t, "version")
	require.Zero(t, code)
	require.Regexp(t, `^lastseen .* go1\.`, stdout)
	code, stdout, _ = execute(t, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "serve")
}

func TestHealthURL(t *testing.T) {
	for listen, want := range map[string]string{
		":8080":          "http://127.0.0.1:8080/healthz",
		"0.0.0.0:80":     "http://127.0.0.1:80/healthz",
		"[::]:80":        "http://127.0.0.1:80/healthz",
		"127.0.0.1:8080": "http://127.0.0.1:8080/healthz",
		"[::1]:9":        "http://[::1]:9/healthz",
		"host:1":         "http://host:1/healthz",
	} {
		got, err := healthURL(listen)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := healthURL("nonsense")
	require.Error(t, err)
}
