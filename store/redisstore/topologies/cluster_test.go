package topologies

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestUnavailableShards checks that calls fail instead of leaving out users.
func TestUnavailableShards(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), redistest.StartCluster(t, 0)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Shards: 16, Timeout: time.Second})
	users := stores.Numbered("u", 64)
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", users...) })
	away := c.Owner(t, "presence:chat:1")
	away.Stop(t)
	stores.RequireUnavailable(t, map[string]func() error{
		"Lookup": func() error { _, _, err := s.Describe(ctx, "chat", users); return err },
		"Count":  stores.Calls(s)["Count"],
		"List":   stores.Calls(s)["List"],
		"Newest": stores.Calls(s)["Newest"],
		"Ping":   func() error { return stores.Ping(s, "chat", users...) },
		"Trim":   stores.Calls(s)["Trim"],
		"Delete": stores.Calls(s)["DeleteNamespace"],
	})
	for _, primary := range c.Primaries {
		if primary != away {
			primary.Stop(t)
		}
	}
	require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable, "no primary is left")
	for _, primary := range c.Primaries {
		primary.Start(t)
	}
	stores.UntilSuccess(t, func() error { return cmp.Or(stores.Ping(s, "chat", users...), s.Ready(ctx)) })
}

// TestReplicaTakesOver: when a replica replaces a dead primary, pings go on by themselves.
func TestReplicaTakesOver(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, redistest.QuickToFail)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Timeout: 500 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	owner := c.Owner(t, "presence:chat")
	replica := c.Replicas[slices.Index(c.Primaries, owner)].Client(t)
	stores.Eventually(t, func() bool { // alice is there, too
		info := replica.Info(context.Background(), "replication").Val()
		return strings.Contains(info, "master_link_status:up") && replica.DBSize(context.Background()).Val() > 0
	})
	owner.Stop(t)
	require.ErrorIs(t, stores.Ping(s, "chat", "bob"), store.ErrUnavailable)
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
	requireBoth(t, s)
}
