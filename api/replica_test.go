package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// behindStore is a store of a test server whose replica reads are found, and whose clock the test sets.
type behindStore struct {
	*clockStore
	redis *redisstore.Store
}

func (s behindStore) Unwrap() store.Store { return s.redis }

// replicaServer is a server on a Redis with a replica. Its store's clocks stand still, so that the replica stays young.
type replicaServer struct {
	*testServer
	replica *redistest.Process
	redis   *redisstore.Store
	keys    map[string]string // Authorization headers
	lag     atomic.Int64      // by how much the store's clock is set forward
}

func newReplicaServer(t *testing.T) *replicaServer {
	t.Helper()
	return newLaggingServer(t, redisstore.MinLag)
}

// newLaggingServer is newReplicaServer with a largest lag. Four times in it, but at least once per second, the replica
// can get to know what the server wrote.
func newLaggingServer(t *testing.T, lag time.Duration) *replicaServer {
	t.Helper()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(primary.Addr)
	require.NoError(t, err)
	r := &replicaServer{replica: redistest.StartProcess(t, "--replicaof", host, port, "--appendonly", "no")}
	began := time.Now()
	r.redis, err = redisstore.Open(redisstore.Options{
		URL: primary.URL(), MaxLag: lag, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Invisible: true,
		Monotonic: func() time.Duration { return time.Duration(r.lag.Load()) },
		Now:       func() time.Time { return began }, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.redis.Close()) })
	authenticator, keys := callers(t)
	r.keys = keys
	r.testServer = newTestServer(t, r.redis, func(c *Config) {
		c.Auth, c.Store = authenticator, behindStore{c.Store.(*clockStore), r.redis}
	})
	_, err = r.redis.Ping(context.Background(), "chat", []store.Sighting{{User: "alice", At: testNow}})
	require.NoError(t, err)
	return r
}

// read sends a request of a caller that reads, and reports whether a replica answered.
func (r *replicaServer) read(caller, method, path, body string, headers ...string) (testResponse, bool) {
	r.t.Helper()
	response := r.send(method, path, body, append(headers, "Authorization: "+r.keys[caller])...)
	age := response.header.Get(ageHeader)
	if age != "" {
		require.Equal(r.t, "0.000", age, "the clocks stand still")
	}
	return response, age != ""
}

// fromReplica waits until a replica answers a request of the key read, and returns the response.
func (r *replicaServer) fromReplica(method, path, body string, headers ...string) (last testResponse) {
	r.t.Helper()
	require.Eventually(r.t, func() (ok bool) {
		last, ok = r.read("read", method, path, body, headers...)
		return ok
	}, 30*time.Second, 10*time.Millisecond, "%s %s", method, path)
	return last
}

// replicaRequests are those that a replica can answer, with their bodies.
func replicaRequests() map[string]string {
	return map[string]string{
		"GET /chat/users/alice": "", "GET /chat/users/alice/dot.svg": "", "GET /chat/lookup?user=alice": "",
		"POST /chat/lookup": `{"users":["alice"]}`, "GET /chat/users": "", "GET /chat/users?limit=1": "",
		"GET /chat/counts": "",
	}
}

// TestReplicaRequests: replicas answer the lookups, lists and counts of API keys, and nothing else.
func TestReplicaRequests(t *testing.T) {
	r := newReplicaServer(t)
	for request, body := range replicaRequests() {
		method, path, _ := strings.Cut(request, " ")
		response := r.fromReplica(method, path, body)
		require.Equal(t, http.StatusOK, response.status, response.body)
		response, replica := r.read("alice", method, path, body)
		require.Equal(t, http.StatusOK, response.status, response.body)
		require.False(t, replica, "a user: %s", request)
	}
	for _, request := range []string{
		"GET /chat", "GET ", "GET /chat/changes?user=alice", "GET /chat/users/alice/devices",
		"GET /chat/users/alice/availability", "GET /chat/users/alice/contacts", "GET /chat/users/bob",
	} {
		method, path, _ := strings.Cut(request, " ")
		response, replica := r.read("all", method, path, "")
		require.Equal(t, http.StatusOK, response.status, response.body)
		require.Equal(t, path == "/chat/users/bob", replica, request)
	}
}

// TestReplicaPages: later pages are read from the primary.
func TestReplicaPages(t *testing.T) {
	r := newReplicaServer(t)
	_, err := r.redis.Ping(context.Background(), "chat", []store.Sighting{{User: "bob", At: testNow + 1}})
	require.NoError(t, err)
	var cursor string
	require.Eventually(t, func() bool {
		page, replica := r.read("read", "GET", "/chat/users?limit=1", "")
		cursor, _ = page.json(t)["next_cursor"].(string)
		return replica && cursor != ""
	}, 30*time.Second, 10*time.Millisecond)
	page, replica := r.read("read", "GET", "/chat/users?limit=1&cursor="+cursor, "")
	require.False(t, replica)
	require.Contains(t, page.body, "alice")
}

// TestReplicaETags: responses from replicas have the ETags of the primary's, and 304 has the age, too.
func TestReplicaETags(t *testing.T) {
	r := newReplicaServer(t)
	for _, path := range []string{"/chat/users/alice", "/chat/lookup?user=alice", "/chat/users/alice/dot.svg"} {
		primary, _ := r.read("alice", "GET", path, "")
		tag := primary.header.Get("ETag")
		require.NotEmpty(t, tag)
		require.Equal(t, tag, r.fromReplica("GET", path, "").header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, r.fromReplica("GET", path, "", "If-None-Match: "+tag).status)
		r.redisPing("alice")
		response, _ := r.read("read", "GET", path, "", "If-None-Match: "+tag)
		if path != "/chat/users/alice/dot.svg" { // it shows the same
			require.Equal(t, http.StatusOK, response.status, "the user has pinged through this server")
		}
	}
}

// redisPing pings as a user, a millisecond later each time.
func (r *replicaServer) redisPing(user string) {
	r.t.Helper()
	states, err := r.redis.Lookup(context.Background(), "chat", []string{user})
	require.NoError(r.t, err)
	_, err = r.redis.Ping(context.Background(), "chat", []store.Sighting{{User: user, At: states[0].At + 1}})
	require.NoError(r.t, err)
}

// TestReplicaHasOwnWrites: a service finds in lists and counts what it wrote through this server, although the replica
// gets nothing any longer and counts as young. Another service may find it later.
func TestReplicaHasOwnWrites(t *testing.T) {
	for request, body := range map[string]string{
		"POST /chat/users/bob/ping": "", "POST /chat/pings": `{"pings":[{"user":"bob"}]}`,
		"PUT /chat/users/alice/availability": `{"availability":"invisible"}`,
	} {
		r := newReplicaServer(t)
		r.fromReplica("GET", "/chat/counts", "")
		require.NoError(t, r.replica.Client(t).Do(context.Background(), "REPLICAOF", "NO", "ONE").Err())
		method, path, _ := strings.Cut(request, " ")
		response, _ := r.read("all", method, path, body)
		require.Equal(t, http.StatusOK, response.status, response.body)
		for range 10 {
			counts, replica := r.read("all", "GET", "/chat/counts", "")
			require.False(t, replica)
			page, replica := r.read("all", "GET", "/chat/users", "")
			require.False(t, replica)
			if method == "PUT" { // becoming invisible is a leave
				require.EqualValues(t, 0, counts.json(t)["green"])
				require.Contains(t, page.body, `"left":true`)
				found, _ := r.read("read", "POST", "/chat/lookup", `{"users":["alice"]}`)
				require.Contains(t, found.body, `"left":true`)
				continue
			}
			require.EqualValues(t, 2, counts.json(t)["total"])
			require.Contains(t, page.body, "bob")
			found, _ := r.read("read", "POST", "/chat/lookup", `{"users":["bob"]}`)
			require.NotContains(t, found.body, `"last_seen":null`, "users who were written are known to all")
		}
	}
}

// TestReplicaTooFarBehind: the primary answers, without an age.
func TestReplicaTooFarBehind(t *testing.T) {
	r := newReplicaServer(t)
	r.fromReplica("GET", "/chat/counts", "")
	require.NoError(t, r.replica.Client(t).Do(context.Background(), "REPLICAOF", "NO", "ONE").Err())
	r.lag.Store(int64(redisstore.MinLag) + 1)
	for request, body := range replicaRequests() {
		method, path, _ := strings.Cut(request, " ")
		response, replica := r.read("read", method, path, body)
		require.Equal(t, http.StatusOK, response.status, response.body)
		require.False(t, replica, request)
	}
}

// TestWritingPermissions: each route that changes something counts as a write of its caller.
func TestWritingPermissions(t *testing.T) {
	for _, route := range (&server{}).routes() {
		lookup := strings.HasSuffix(route.path, "/lookup") || strings.HasSuffix(route.path, "/changes")
		writes := route.method != http.MethodGet && !lookup
		require.Equal(t, writes, route.writes(), "%s %s", route.method, route.path)
	}
}
