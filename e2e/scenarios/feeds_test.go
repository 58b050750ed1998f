package scenarios

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const aliceChanges = "/v1/namespaces/chat/changes?user=alice"

// TestUsersReturnAfterALoss: users with open WebSockets are green again after Redis lost its data, although their next
// heartbeats are more than twenty minutes away. A server notices the loss of everything also if nobody follows there,
// and that of a namespace, as when one Redis of a Cluster is emptied, if somebody does.
func TestUsersReturnAfterALoss(t *testing.T) {
	t.Parallel()
	for name, everything := range map[string]bool{"everything": true, "namespace": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartProcess(t)
			args := []string{
				"--store", server.URL(), "--redis-timeout", "30s", "--redis-dial-timeout", "30s",
				"--ping-interval", "1h", "--green", "12h", "--yellow", "24h",
			}
			one, two := testserver.Start(t, args...), testserver.Start(t, args...)
			followed := two
			if !everything {
				followed = one
			}
			openApp(t, one, appOptions{user: "alice"})
			stream := followed.Follow(t, aliceChanges, "")
			stream.Until(t, `"status":"green"`)
			loseData(t, server.Client(t), everything)
			require.Eventually(t, func() bool { return look(t, two, "alice", "") == "green" }, scenarioWait,
				10*time.Millisecond)
			reset, green := false, false
			for !reset || !green {
				event, data := stream.Next()
				require.NotEmpty(t, event, "the stream ended")
				reset, green = reset || event == "reset", strings.Contains(data, `"status":"green"`)
			}
		})
	}
}

// loseData empties a Redis, or leaves what servers read of connections to close.
func loseData(t *testing.T, client *redis.Client, everything bool) {
	t.Helper()
	if everything {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		return
	}
	keys, err := client.Keys(t.Context(), "presence*").Result()
	require.NoError(t, err)
	lost := slices.DeleteFunc(keys, func(key string) bool { return key == "presence::closings" })
	require.NoError(t, client.Del(t.Context(), lost...).Err())
}

// TestStopEndsStreams: a server that stops ends streams with advice when to connect again, answers long polls, and does
// not wait for either.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, append(args, "--admin-listen", "127.0.0.1:0")...)
		stream := s.Follow(t, aliceChanges, "")
		stream.Until(t, `"status":"grey"`)
		began := stream.Retry
		require.NotEmpty(t, began)
		answered := make(chan int, 1)
		go func() {
			response, err := http.Get(s.URL + aliceChanges + "&wait=50s&cursor=" + stream.ID)
			if err != nil {
				answered <- 0
				return
			}
			_ = response.Body.Close()
			answered <- response.StatusCode
		}()
		require.Eventually(t, func() bool {
			return strings.Contains(s.Metrics(t), `lastseen_changes_streams{transport="long_poll"} 1`)
		}, time.Minute, 10*time.Millisecond)
		stream.Retry = ""
		require.Zero(t, s.Terminate(t))
		for name, _ := stream.Next(); name != ""; name, _ = stream.Next() {
			require.Equal(t, "changes", name)
		}
		require.NotEmpty(t, stream.Retry, "the stream ended without advice")
		require.Equal(t, http.StatusOK, <-answered)
	})
}

// TestReloadOfChanges: a namespace whose changes are switched off has no feed any more, also for clients that follow.
func TestReloadOfChanges(t *testing.T) {
	t.Parallel()
	file := testserver.WriteConfig(t, "namespaces: {chat: {changes: on}}")
	s := testserver.Start(t, "--config", file)
	stream := s.Follow(t, aliceChanges, "")
	stream.Until(t, `"status":"grey"`)
	require.NoError(t, os.WriteFile(file, []byte("namespaces: {chat: {changes: off}}"), 0o600))
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGHUP))
	for name, _ := stream.Next(); name != ""; name, _ = stream.Next() {
		require.NotEqual(t, "reset", name)
	}
	status, problem := s.Call(t, http.MethodGet, aliceChanges, "")
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "feed_unavailable", problem["code"])
	require.NoError(t, os.WriteFile(file, []byte("namespaces: {chat: {changes: auto}}"), 0o600))
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		status, _ = s.Call(t, http.MethodGet, aliceChanges, "")
		return status == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
}

// TestMaxWatches: clients of a server follow at most so many users.
func TestMaxWatches(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--max-watches", "2")
	s.Follow(t, aliceChanges+"&user=bob", "").Until(t, "bob")
	status, problem := s.Call(t, http.MethodGet, aliceChanges, "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "overloaded", problem["code"])
}

// TestAlwaysRecorded: with changes on, users who turn yellow or grey are recorded although nobody follows.
func TestAlwaysRecorded(t *testing.T) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, args []string) {
		file := testserver.WriteConfig(t, "green: 1s\nyellow: 2s\nping-interval: 500ms\nnamespaces: {chat: {changes: on}}")
		s := testserver.Start(t, append(args, "--config", file, "--admin-listen", "127.0.0.1:0")...)
		require.Eventually(t, func() bool {
			s.Post(t, alice+"/ping", "")
			return !strings.Contains(s.Metrics(t), "lastseen_changes_decays_total 0\n")
		}, time.Minute, 3*time.Second, "pings that are further apart than yellow")
	})
}

// TestFollowersOfANewNamespace: clients that follow a namespace that does not exist are sent the first user of it, and
// make nothing until then. A client that connects again with a cursor of then gets a reset.
func TestFollowersOfANewNamespace(t *testing.T) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		stream := s.Follow(t, aliceChanges, "")
		stream.Until(t, `"status":"grey"`)
		everyone := s.Get(t, "/v1/namespaces/chat/changes")
		require.Empty(t, everyone["users"])
		after := "/v1/namespaces/chat/changes?wait=50s&cursor=" + everyone["cursor"].(string)
		polled := make(chan map[string]any, 1)
		go func() {
			_, response := s.Call(t, http.MethodGet, after, "")
			polled <- response
		}()
		app := openApp(t, s, appOptions{friends: []string{"alice"}})
		require.Empty(t, s.Get(t, "/v1/namespaces")["namespaces"])

		s.Post(t, alice+"/ping", "")
		stream.Until(t, `"status":"green"`)
		app.until(t, "alice", "green")
		response := <-polled
		require.Equal(t, false, response["reset"])
		require.Len(t, response["users"], 1)
		require.Equal(t, true, s.Get(t, after)["reset"], "it did not wait")
	})
}
