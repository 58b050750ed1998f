package scenarios

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func detailOf(t *testing.T, s *testserver.Server, method, path, body string) (int, string, string) {
	t.Helper()
	status, answer := s.Call(t, method, path, body)
	return status, fmt.Sprint(answer["code"]), fmt.Sprint(answer["detail"])
}

// TestUnknownNamespacesAreRefused: with refuse a typo is an error, until a reload allows it.
func TestUnknownNamespacesAreRefused(t *testing.T) {
	const typo = "/v1/namespaces/chta/users/alice"
	file := testserver.WriteConfig(t, "unknown-namespaces: refuse\nnamespaces: {chat: }\n")
	s := testserver.Start(t, "--config", file)
	s.Post(t, alice+"/ping", "")
	require.Equal(t, "green", s.Get(t, alice)["status"])
	for _, request := range [][2]string{{"GET", typo}, {"POST", typo + "/ping"}, {"GET", "/v1/namespaces/chta"}} {
		status, code, detail := detailOf(t, s, request[0], request[1], "")
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, "not_found", code)
		require.Contains(t, detail, `"chta" is not configured`)
	}
	require.NoError(t, os.WriteFile(file, []byte("namespaces: {chat: }\n"), 0o600))
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		status, _ := s.Call(t, "GET", typo, "")
		return status == http.StatusOK
	}, 30*time.Second, time.Millisecond)
}

// TestSetInSecondsIsNotServedAsMilliseconds: the tutorial's set without the setting that says so. Retention deletes
// nothing from it, and with the setting it is listed and served.
func TestSetInSecondsIsNotServedAsMilliseconds(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	long := time.Now().Add(-48 * time.Hour).Unix()
	require.NoError(t, client.ZAdd(ctx, "presence", redis.Z{Score: float64(long), Member: "alice"}).Err())
	args := []string{"--store", url, "--redis-timeout", "30s", "--redis-dial-timeout", "30s"}

	s := testserver.Start(t, append(args, "--config", testserver.WriteConfig(t,
		"namespaces: {chat: {redis-key: presence, retention: 1h}}"))...)
	for _, request := range [][2]string{{"GET", alice}, {"POST", alice + "/ping"}, {"DELETE", alice}} {
		status, code, detail := detailOf(t, s, request[0], request[1], "")
		require.Equal(t, http.StatusInternalServerError, status)
		require.Equal(t, "namespace_mismatch", code)
		require.Contains(t, detail, "redis-score-unit")
	}
	require.Contains(t, s.Log.String(), "some configured namespaces cannot be served")
	require.Zero(t, s.Terminate(t), s.Log)
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		own := key == "presence::closings" || strings.HasPrefix(key, "presence::lease:")
		require.True(t, key == "presence" || own, key)
	}

	s = testserver.Start(t, append(args, "--config", testserver.WriteConfig(t,
		"namespaces: {chat: {redis-key: presence, redis-score-unit: s}}"))...)
	require.Contains(t, fmt.Sprint(s.Get(t, "/v1/namespaces")), time.Unix(long, 0).UTC().Format("2006-01-02T15:04:05"),
		"listed before any request")
	require.Equal(t, time.Unix(long, 0).UTC().Format("2006-01-02T15:04:05.000Z"), s.Get(t, alice)["last_seen"])
}

// TestRetentionOfNamespaces sets a retention for one of two namespaces. A server that was just started does not delete
// anyone yet.
func TestRetentionOfNamespaces(t *testing.T) {
	t.Parallel()
	config := testserver.WriteConfig(t, "namespaces:\n  chat: {retention: 1h, contacts-retention: 2h}\n")
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		require.Nil(t, s.Get(t, "/v1/namespaces/chat")["retention_ms"])
		s.Post(t, "/v1/namespaces/chat/pings", `{"pings":[{"user":"alice","at":100123},{"user":"bob"}]}`)
		s.Post(t, "/v1/namespaces/game/pings", `{"pings":[{"user":"alice","at":100123}]}`)
		require.Zero(t, s.Terminate(t))

		s = testserver.Start(t, append(args, "--config", config)...)
		require.EqualValues(t, 3_600_000, s.Get(t, "/v1/namespaces/chat")["retention_ms"])
		require.EqualValues(t, 7_200_000, s.Get(t, "/v1/namespaces/chat")["contacts_retention_ms"])
		require.Nil(t, s.Get(t, "/v1/namespaces/game")["retention_ms"])
		require.Nil(t, s.Get(t, "/v1/namespaces/game")["contacts_retention_ms"])
		require.NotNil(t, s.Get(t, alice)["last_seen"])
	})
}

// TestNamespacesAreRegisteredOnceRedisResponds: the service starts without it.
func TestNamespacesAreRegisteredOnceRedisResponds(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	server.Stop(t)
	s := testserver.Start(t, "--store", server.URL(), "--config", testserver.WriteConfig(t, "namespaces: {chat: }"))
	require.Eventually(t, func() bool {
		return strings.Contains(s.Log.String(), "cannot register the configured namespaces yet")
	}, 30*time.Second, time.Millisecond)
	require.Contains(t, s.Log.String(), "Redis is not ready")
	server.Start(t)
	require.Eventually(t, func() bool {
		status, answer := s.Call(t, "GET", "/v1/namespaces", "")
		return status == 200 &&
			fmt.Sprint(answer) == "map[namespaces:[map[last_ping:<nil> namespace:chat]] next_cursor:<nil>]"
	}, 60*time.Second, 50*time.Millisecond)
}
