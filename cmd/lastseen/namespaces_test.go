package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// detailOf returns status, code and detail of an error.
func (s *service) detailOf(t *testing.T, method, path, body string) (int, string, string) {
	t.Helper()
	status, answer := s.call(t, method, path, body)
	return status, fmtAny(answer["code"]), fmtAny(answer["detail"])
}

// TestUnknownNamespacesAreRefused: with refuse a typo is an error, until a reload allows it.
func TestUnknownNamespacesAreRefused(t *testing.T) {
	const typo = "/v1/namespaces/chta/users/alice"
	file := writeConfig(t, "unknown-namespaces: refuse\nnamespaces: {chat: }\n")
	s := start(t, "--config", file)
	s.post(t, alice+"/ping", "")
	require.Equal(t, "green", s.get(t, alice)["status"])
	for _, request := range [][2]string{{"GET", typo}, {"POST", typo + "/ping"}, {"GET", "/v1/namespaces/chta"}} {
		status, code, detail := s.detailOf(t, request[0], request[1], "")
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, "not_found", code)
		require.Contains(t, detail, `"chta" is not configured`)
	}
	require.NoError(t, os.WriteFile(file, []byte("namespaces: {chat: }\n"), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		status, _ := s.call(t, "GET", typo, "")
		return status == http.StatusOK
	}, 30*time.Second, time.Millisecond)

	code, _, stderr := execute(t, "--unknown-namespaces", "refuse")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "no namespaces are configured")
}

// TestNamespaceLimitOnRedis: the setting reaches the store, and the response names it.
func TestNamespaceLimitOnRedis(t *testing.T) {
	s := start(t, "--store", redistest.Start(t), "--redis-timeout", "30s", "--redis-dial-timeout", "30s", "--max-namespaces", "1")
	s.post(t, alice+"/ping", "")
	status, code, detail := s.detailOf(t, "POST", "/v1/namespaces/other/users/alice/ping", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "store_full", code)
	require.Contains(t, detail, "max-namespaces")
	require.Equal(t, "grey", s.get(t, "/v1/namespaces/other/users/alice")["status"])
	s.post(t, alice+"/ping", "")
}

// TestSetInSecondsIsNotServedAsMilliseconds: the tutorial's set without the setting that says so. Retention deletes
// nothing from it, and with the setting it is listed and served.
func TestSetInSecondsIsNotServedAsMilliseconds(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	long := time.Now().Add(-48 * time.Hour).Unix()
	require.NoError(t, client.ZAdd(ctx, "presence", redis.Z{Score: float64(long), Member: "alice"}).Err())
	args := []string{"--store", url, "--redis-timeout", "30s", "--redis-dial-timeout", "30s"}

	s := start(t, append(args, "--config", writeConfig(t, "namespaces: {chat: {redis-key: presence, retention: 1h}}"))...)
	for _, request := range [][2]string{{"GET", alice}, {"POST", alice + "/ping"}, {"DELETE", alice}} {
		status, code, detail := s.detailOf(t, request[0], request[1], "")
		require.Equal(t, http.StatusInternalServerError, status)
		require.Equal(t, "namespace_mismatch", code)
		require.Contains(t, detail, "redis-score-unit")
	}
	require.Contains(t, s.log.String(), "some configured namespaces cannot be served")
	require.Zero(t, s.terminate(t), s.log)
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.True(t, key == "presence" || strings.HasPrefix(key, "presence::lease:"), key)
	}

	s = start(t, append(args, "--config", writeConfig(t, "namespaces: {chat: {redis-key: presence, redis-score-unit: s}}"))...)
	require.Contains(t, fmtAny(s.get(t, "/v1/namespaces")), time.Unix(long, 0).UTC().Format("2006-01-02T15:04:05"), "listed before any request")
	require.Equal(t, time.Unix(long, 0).UTC().Format("2006-01-02T15:04:05.000Z"), s.get(t, alice)["last_seen"])
}
