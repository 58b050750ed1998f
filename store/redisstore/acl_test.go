package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// rights is what docs/operations.md says a Redis user needs.
const rights = "~presence:* +@sortedset +@scripting +@hash +@string +@connection " +
	"+unlink +exists +pttl +pexpire +info +time +cluster|slots +asking +@stream +publish +subscribe &presence::signals*"

// restrict makes the user app, who has only these rights.
func restrict(t *testing.T, client *redis.Client) {
	t.Helper()
	rule := append([]any{"ACL", "SETUSER", "app", "on", ">secret"}, words(rights)...)
	require.NoError(t, client.Do(context.Background(), rule...).Err())
}

func words(text string) (all []any) {
	for _, word := range strings.Fields(text) {
		all = append(all, word)
	}
	return all
}

// asApp is the URL for the user app.
func asApp(url string) string { return strings.Replace(url, "://", "://app:secret@", 1) }

// everything calls every method, except those of devices and of calls.
func everything(t *testing.T, s *redisstore.Store) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, s.Ready(ctx))
	require.NoError(t, s.Register(ctx, []string{"chat"}))
	granted, err := s.Lease(ctx, "sweep", time.Minute)
	require.NoError(t, err)
	require.True(t, granted)
	_, err = s.Now(ctx)
	require.NoError(t, err)
	for name, call := range calls(s, "chat") {
		require.NoError(t, call(), name)
	}
	for name, call := range contactCalls(s, "chat") {
		require.NoError(t, call(), name)
	}
	_, err = s.CallNamespaces(ctx, "", 10)
	require.NoError(t, err)
	_, err = s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.NoError(t, s.CloseConnections(ctx, "chat", "alice"))
	_, _, err = s.Closings(ctx, "")
	require.NoError(t, err)
	require.NoError(t, s.Signal(ctx, store.Signal{Kind: "k", Namespace: "chat", User: "alice"}))
}

// TestLeastRights: they are enough for everything.
func TestLeastRights(t *testing.T) {
	url := redistest.Start(t)
	restrict(t, newClient(t, url))
	s := newStore(t, redisstore.Options{URL: asApp(url)})
	everything(t, s)
	for name, call := range allCalls(s, "chat") {
		require.NoError(t, call(), name)
	}
}

// TestForbiddenNamespace: a key that the user may not read makes its namespace fail, and hides no other.
func TestForbiddenNamespace(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	restrict(t, newClient(t, url))
	layouts := map[string]redisstore.Layout{"elsewhere": {Key: "elsewhere"}}
	require.NoError(t, ping(newStore(t, redisstore.Options{URL: url, Layouts: layouts}), "elsewhere", "alice"))
	s := newStore(t, redisstore.Options{URL: asApp(url), Layouts: layouts})
	require.NoError(t, ping(s, "chat", "alice"))
	require.ErrorIs(t, ping(s, "elsewhere", "alice"), store.ErrUnavailable)
	infos, err := s.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: base}, {Name: "elsewhere"}}, infos)
}

// testLeastRightsInCluster: they are, also when slots move.
func testLeastRightsInCluster(t *testing.T, c *redistest.Cluster) {
	for _, primary := range c.Primaries {
		restrict(t, primary.Client(t))
	}
	s := newStore(t, redisstore.Options{URL: asApp(c.URL()), Shards: 16})
	for name, call := range allCalls(s, "chat") {
		require.NoError(t, call(), name)
	}
	// Scripts with several keys fail while slots move.
	require.NoError(t, s.DeleteNamespace(context.Background(), "chat"))
	everything(t, s)
	for _, key := range []string{"presence:chat:1", "presence::namespaces"} {
		slot, owner := c.Slot(t, key), c.Owner(t, key)
		to := c.Primaries[0]
		if owner == to {
			to = c.Primaries[1]
		}
		c.MoveSlot(t, slot, to, func() { everything(t, s) })
	}
}
