package coalesce_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestPrimariesDoNotWaitForEachOther: while one primary of a Cluster hangs, what is on the others is
// pinged and looked up, and the calls to the hanging one complete afterwards.
func TestPrimariesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel() // it waits for the Cluster to form
	ctx, c := context.Background(), redistest.StartCluster(t, 0)
	redis := openRedis(t, redisstore.Options{URL: c.URL()}, time.Minute)
	s := coalesce.New(redis, coalesce.Options{Timeout: time.Minute})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	ping := func(namespace, user string) error {
		_, err := s.Ping(ctx, namespace, []store.Sighting{{User: user, At: 1}})
		return err
	}
	byOwner := map[*redistest.Process]string{}
	for i := 0; len(byOwner) < len(c.Primaries); i++ {
		namespace := fmt.Sprintf("n%d", i)
		byOwner[c.Owner(t, "presence:"+namespace)] = namespace
		require.Eventually(t, func() bool { return ping(namespace, "alice") == nil }, time.Minute, time.Millisecond)
	}
	hangs := c.Primaries[0]
	require.NotEqual(t, redis.NodeOf(byOwner[hangs])("alice"), redis.NodeOf(byOwner[c.Primaries[1]])("alice"))
	hangs.Freeze(t)
	waiting := make(chan error, 2)
	for range cap(waiting) {
		go func() { waiting <- ping(byOwner[hangs], "bob") }()
	}
	for _, primary := range c.Primaries[1:] {
		require.NoError(t, ping(byOwner[primary], "bob"))
		states, err := s.Lookup(ctx, byOwner[primary], []string{"alice", "bob"})
		require.NoError(t, err)
		require.Len(t, states, 2)
	}
	require.Empty(t, waiting, "one of them was answered by a server that hangs")
	hangs.Thaw(t)
	for range cap(waiting) {
		require.NoError(t, <-waiting)
	}
}
