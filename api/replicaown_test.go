package api

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestReplicaLookupsOfWriters: a key that writes all the time looks others up in replicas. Its lists and counts come
// from the primary because of its own writes, and are counted like this. Those of a key that cannot ping do not,
// although it shares its place with another key: it would see when that key writes.
func TestReplicaLookupsOfWriters(t *testing.T) {
	r := newReplicaServer(t)
	places := &r.config.Shared.ownWrites.places
	for i := range places {
		places[i].going.Add(1)
	}
	for _, path := range []string{"/chat/users/zoe", "/chat/users/zoe/dot.svg", "/chat/lookup?user=zoe"} {
		r.fromReplica("GET", path, "")
	}
	for _, path := range []string{"/chat/users", "/chat/counts"} {
		require.Eventually(t, func() bool {
			before := r.redis.ReplicaStats().Own
			response, _ := r.read("all", "GET", path, "")
			require.Equal(t, http.StatusOK, response.status, response.body)
			return r.redis.ReplicaStats().Own > before
		}, 30*time.Second, 10*time.Millisecond, path)
		r.fromReplica("GET", path, "")
	}
}

// TestReplicaLookupsHaveSockets: what a key writes through a WebSocket is in lookups at once.
func TestReplicaLookupsHaveSockets(t *testing.T) {
	r := newReplicaServer(t)
	r.fromReplica("GET", "/chat/counts", "")
	require.NoError(t, r.replica.Client(t).Do(context.Background(), "REPLICAOF", "NO", "ONE").Err())
	s, welcome := r.hello(`{"user":"dave"}`, "Authorization: "+r.keys["all"])
	require.NotNil(t, welcome)
	user, _ := r.read("all", "GET", "/chat/users/dave", "")
	require.NotContains(t, user.body, `"last_seen":null`)
	s.asks(`{"leave":{}}`, frameOK)
	user, _ = r.read("read", "GET", "/chat/users/dave", "")
	require.Contains(t, user.body, `"left":true`)
}

// TestReplicaOffsets: pages with an offset are read from the primary, like those with a cursor.
func TestReplicaOffsets(t *testing.T) {
	r := newReplicaServer(t)
	for range 10 {
		r.fromReplica("GET", "/chat/users", "")
		for offset := range 2 {
			page, replica := r.read("read", "GET", fmt.Sprintf("/chat/users?offset=%d", offset), "")
			require.Equal(t, http.StatusOK, page.status, page.body)
			require.False(t, replica)
		}
	}
}

// busyStore notes how many calls are in progress when it describes users.
type busyStore struct {
	behindStore
	overload *overload
	most     *atomic.Int64
}

func (s busyStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	s.most.Store(max(s.most.Load(), s.overload.calls.Load()))
	return s.behindStore.Describe(ctx, namespace, users)
}

// TestReplicaFallbackCountsOnce: a lookup that a replica cannot answer is one call in progress.
func TestReplicaFallbackCountsOnce(t *testing.T) {
	r := newReplicaServer(t)
	var most atomic.Int64
	r.reload(func(c *Config) {
		c.Store = busyStore{c.Store.(behindStore), c.Shared.overload, &most}
	})
	require.Eventually(t, func() bool {
		before := r.redis.ReplicaStats().Own
		r.redisPing("alice")
		response, _ := r.read("read", "GET", "/chat/users/alice", "")
		require.Equal(t, http.StatusOK, response.status, response.body)
		return r.redis.ReplicaStats().Own > before
	}, 30*time.Second, time.Millisecond, "what was written just now is read from the primary")
	require.EqualValues(t, 1, most.Load())
}
