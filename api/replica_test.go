package api_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// behindStore is a store of a test server whose replica reads are found, and whose clock the test sets.
type behindStore struct {
	*kit.ClockStore
	redis *redisstore.Store
}

func (s behindStore) Unwrap() store.Store { return s.redis }

// replicaServer is a server on a Redis with a replica. Its store's clocks stand still, so that the replica stays young.
type replicaServer struct {
	*apitest.Server
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
	r.redis = kit.RedisStore(t, primary.URL(), func(o *redisstore.Options) {
		o.MaxLag = lag
		o.Monotonic = func() time.Duration { return time.Duration(r.lag.Load()) }
		o.Now = func() time.Time { return began }
	})
	authenticator, keys := kit.Callers(t)
	r.keys = keys
	r.Server = apitest.NewServer(t, r.redis, func(c *api.Config) {
		c.Auth, c.Store = authenticator, behindStore{c.Store.(*kit.ClockStore), r.redis}
	})
	_, err = r.redis.Ping(t.Context(), "chat", []store.PresenceEvent{{User: "alice", At: kit.Now}})
	require.NoError(t, err)
	return r
}

// cut has the replica get nothing any longer.
func (r *replicaServer) cut() {
	r.T.Helper()
	require.NoError(r.T, r.replica.Client(r.T).Do(context.Background(), "REPLICAOF", "NO", "ONE").Err())
}

// read sends a request of a caller that reads, and reports whether a replica answered.
func (r *replicaServer) read(caller, method, path, body string, headers ...string) (kit.Response, bool) {
	r.T.Helper()
	response := r.Send(method, path, body, append(headers, "Authorization: "+r.keys[caller])...)
	age := response.Header.Get("Lastseen-Age")
	if age != "" {
		require.Equal(r.T, "0.000", age, "the clocks stand still")
	}
	return response, age != ""
}

// fromReplica waits until a replica answers a request of the key read, and returns the response.
func (r *replicaServer) fromReplica(method, path, body string, headers ...string) (last kit.Response) {
	r.T.Helper()
	kit.Await(r.T, func() (ok bool) {
		last, ok = r.read("read", method, path, body, headers...)
		return ok
	}, "%s %s", method, path)
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
		require.Equal(t, http.StatusOK, response.Status, response.Body)
		response, replica := r.read("alice", method, path, body)
		require.Equal(t, http.StatusOK, response.Status, response.Body)
		require.False(t, replica, "a user: %s", request)
	}
	for _, request := range []string{
		"GET /chat", "GET ", "GET /chat/changes?user=alice", "GET /chat/users/alice/devices",
		"GET /chat/users/alice/availability", "GET /chat/users/alice/contacts", "GET /chat/users/bob",
	} {
		method, path, _ := strings.Cut(request, " ")
		response, replica := r.read("all", method, path, "")
		require.Equal(t, http.StatusOK, response.Status, response.Body)
		require.Equal(t, path == "/chat/users/bob", replica, request)
	}
}

// TestReplicaPages: later pages, with a cursor or an offset, are read from the primary.
func TestReplicaPages(t *testing.T) {
	r := newReplicaServer(t)
	_, err := r.redis.Ping(t.Context(), "chat", []store.PresenceEvent{{User: "bob", At: kit.Now + 1}})
	require.NoError(t, err)
	var cursor string
	kit.Await(t, func() bool {
		page, replica := r.read("read", "GET", "/chat/users?limit=1", "")
		cursor, _ = page.JSON(t)["next_cursor"].(string)
		return replica && cursor != ""
	})
	for range 10 {
		r.fromReplica("GET", "/chat/users", "")
		for _, query := range []string{"limit=1&cursor=" + cursor, "offset=0", "offset=1"} {
			page, replica := r.read("read", "GET", "/chat/users?"+query, "")
			require.False(t, replica, query)
			require.Contains(t, page.Is(t, http.StatusOK).Body, "alice")
		}
	}
}

// TestReplicaETags: responses from replicas have the ETags of the primary's, and 304 has the age, too.
func TestReplicaETags(t *testing.T) {
	r := newReplicaServer(t)
	for _, path := range []string{"/chat/users/alice", "/chat/lookup?user=alice", "/chat/users/alice/dot.svg"} {
		primary, _ := r.read("alice", "GET", path, "")
		tag := primary.Header.Get("ETag")
		require.NotEmpty(t, tag)
		require.Equal(t, tag, r.fromReplica("GET", path, "").Header.Get("ETag"))
		r.fromReplica("GET", path, "", "If-None-Match: "+tag).Is(t, http.StatusNotModified)
	}
}

// TestReplicaLacksOwnWrites: until a replica has what a service wrote, lookups, counts and first pages are as before,
// and have an age. Lists with an offset have it at once.
func TestReplicaLacksOwnWrites(t *testing.T) {
	r := newLaggingServer(t, time.Minute)
	for request, body := range replicaRequests() {
		method, path, _ := strings.Cut(request, " ")
		r.fromReplica(method, path, body)
	}
	r.cut()
	for _, write := range []struct{ request, body, shows string }{
		{"POST /chat/pings", `{"pings":[{"user":"bob"}]}`, `"user":"bob"`},
		{"PUT /chat/users/alice/availability", `{"availability":"invisible"}`, `"left":true`},
		{"DELETE /chat/users/bob", "", `"users":\[\{"user":"alice"[^{]*\]`},
	} {
		method, path, _ := strings.Cut(write.request, " ")
		response, _ := r.read("all", method, path, write.body)
		require.Less(t, response.Status, http.StatusBadRequest, response.Body)
		for request, body := range replicaRequests() {
			method, path, _ := strings.Cut(request, " ")
			response, replica := r.read("all", method, path, body)
			require.Equal(t, http.StatusOK, response.Status, response.Body)
			require.True(t, replica, "%s after %s", request, write.request)
			require.NotContains(t, response.Body, `"bob"`)
			require.NotContains(t, response.Body, `"left":true`)
		}
		page, replica := r.read("all", "GET", "/chat/users?offset=0", "")
		require.False(t, replica)
		require.Regexp(t, write.shows, page.Body)
	}
}

// TestReplicaTooFarBehind: the primary answers, without an age.
func TestReplicaTooFarBehind(t *testing.T) {
	r := newReplicaServer(t)
	r.fromReplica("GET", "/chat/counts", "")
	r.cut()
	r.lag.Store(int64(redisstore.MinLag) + 1)
	for request, body := range replicaRequests() {
		method, path, _ := strings.Cut(request, " ")
		response, replica := r.read("read", method, path, body)
		require.Equal(t, http.StatusOK, response.Status, response.Body)
		require.False(t, replica, request)
	}
}

// TestReplicaFallbackCountsOnce: a lookup that a replica cannot answer is one call in progress.
func TestReplicaFallbackCountsOnce(t *testing.T) {
	r := newReplicaServer(t)
	var most atomic.Int64
	r.Reload(func(c *api.Config) {
		count := func(context.Context, string) error {
			most.Store(max(most.Load(), c.Shared.CallsInProgress()))
			return nil
		}
		behind := c.Store.(behindStore)
		behind.Store = &kit.HookedStore{Store: behind.Store, Before: count}
		c.Store = behind
	})
	r.fromReplica("GET", "/chat/users/alice", "")
	r.cut()
	ctx, client := t.Context(), r.replica.Client(t)
	keys, err := client.Keys(ctx, "presence::heartbeat:*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.NoError(t, client.Set(ctx, keys[0], 0, 0).Err())
	before := r.redis.Replicas().Stats().Behind
	response, replica := r.read("read", "GET", "/chat/users/alice", "")
	require.Equal(t, http.StatusOK, response.Status, response.Body)
	require.False(t, replica)
	require.Equal(t, before+1, r.redis.Replicas().Stats().Behind)
	require.EqualValues(t, 1, most.Load())
}
