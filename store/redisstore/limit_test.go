package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestNamespaceLimit: what would exceed it writes nothing. It is that of each server.
func TestNamespaceLimit(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		require.NoError(t, client.FlushAll(ctx).Err())
		devices.NamespaceLimit(t, stores.New(t, redisstore.Options{URL: url, Shards: shards, MaxNamespaces: 2}))
	}
	require.NoError(t, client.FlushAll(ctx).Err())
	o := redisstore.Options{URL: url, MaxNamespaces: 1}
	s := stores.New(t, o)
	require.NoError(t, stores.Ping(s, "a", "alice"))
	before := stores.Contents(t, client)
	require.ErrorIs(t, stores.Ping(s, "b", "alice"), store.ErrNamespaceLimit)
	require.ErrorIs(t, leave(s, "b", "alice"), store.ErrNamespaceLimit)
	_, err := s.StartCall(ctx, "b", newCallers(t, s).Call("alice", "bob"))
	require.ErrorIs(t, err, store.ErrNamespaceLimit)
	require.Equal(t, before, stores.Contents(t, client))
	require.NoError(t, stores.Ping(stores.New(t, o), "a", "bob"), "a server that does not know it yet")
	require.NoError(t, stores.Ping(stores.New(t, redisstore.Options{URL: url}), "b", "alice"), "no limit by default")
	require.NoError(t, client.ZAdd(ctx, "presence:there", redis.Z{Member: "alice", Score: float64(kit.Base)}).Err())
	require.NoError(t, stores.Ping(s, "there", "bob"), "one with users exists, whether or not it is listed")
}

// TestNamespaceLimitOfBatch: of several new namespaces in one batch as many are made as there is room for.
func TestNamespaceLimitOfBatch(t *testing.T) {
	url := redistest.Start(t)
	s := stores.New(t, redisstore.Options{URL: url, MaxNamespaces: 700})
	batches := make([]*store.Batch[store.PresenceEvent], 1500)
	for i := range batches {
		batches[i] = &store.Batch[store.PresenceEvent]{
			Namespace: fmt.Sprint("n", i),
			Items:     []store.PresenceEvent{{User: "alice", At: kit.Base}},
		}
	}
	s.PingBatches(context.Background(), batches)
	for i, b := range batches {
		require.Equal(t, i >= 700, errors.Is(b.Err, store.ErrNamespaceLimit), "%d: %v", i, b.Err)
		require.Equal(t, i < 700, b.Err == nil)
	}
}

// TestNamespaceLimitOfSeveralServers: the limit holds however many servers make namespaces at once.
func TestNamespaceLimitOfSeveralServers(t *testing.T) {
	const limit = 10
	url := redistest.Start(t)
	var wg sync.WaitGroup
	for k := range 4 {
		s := stores.New(t, redisstore.Options{URL: url, MaxNamespaces: limit})
		wg.Go(func() {
			for i := range 30 {
				err := stores.Ping(s, fmt.Sprintf("n%d-%d", k, i), "alice")
				if err != nil && !errors.Is(err, store.ErrNamespaceLimit) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	infos, err := stores.New(t, redisstore.Options{URL: url}).Namespaces(context.Background(), "", 100)
	require.NoError(t, err)
	require.Len(t, infos, limit)
}

// TestKnownNamespacesCostNothing: after its first write a namespace is not asked about for a while.
func TestKnownNamespacesCostNothing(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url, MaxNamespaces: 1})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	for _, key := range []string{"presence::meta", "presence::namespaces"} {
		require.NoError(t, client.Set(ctx, key, "reading this key is an error", 0).Err())
	}
	require.NoError(t, stores.Ping(s, "chat", "bob"))
	require.Equal(t, kit.Base, kit.Lookup(t, s, "alice")[0].At)
}

// TestRemoveEmptyBetweenWrites: another server, which believes that the namespace is registered, writes to it between
// any two steps of the removal.
func TestRemoveEmptyBetweenWrites(t *testing.T) {
	for step := range 4 {
		for name, write := range map[string]func(s *redisstore.Store) error{
			"ping":  func(s *redisstore.Store) error { return stores.Ping(s, "chat", "alice") },
			"leave": func(s *redisstore.Store) error { return leave(s, "chat", "alice") },
			"user who is forgotten": func(s *redisstore.Store) error {
				return errors.Join(stores.Ping(s, "chat", "alice"), s.Forget(context.Background(), "chat", "alice"))
			},
		} {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				ctx, url := context.Background(), redistest.Start(t)
				o := redisstore.Options{URL: url}
				janitor, writer := stores.New(t, o), stores.New(t, o)
				require.NoError(t, stores.Ping(writer, "chat", "alice"))
				require.NoError(t, writer.Forget(ctx, "chat", "alice"))
				comes := func(now int) func() {
					return func() {
						if now == step {
							require.NoError(t, write(writer))
						}
					}
				}
				janitor.Around("hdel", comes(0), comes(1))
				janitor.Around("zrem", comes(2), comes(3))
				removed := kit.RemoveEmpty(t, janitor, "chat")
				if name == "user who is forgotten" {
					metas := stores.NewClient(t, url).HKeys(ctx, "presence::meta").Val()
					require.Len(t, kit.Namespaces(t, janitor, 10), len(metas), "one with a meta is listed")
					require.NoError(t, stores.Ping(writer, "chat", "alice"))
				} else {
					require.False(t, removed, "a user is in it")
				}
				require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: kit.Base}},
					kit.Namespaces(t, janitor, 10))
				require.Len(t, stores.NewClient(t, url).HGetAll(ctx, "presence::meta").Val(), 1)
				require.NoError(t, stores.Ping(janitor, "chat", "bob"))
			})
		}
	}
}

func leave(s store.Store, namespace, user string) error {
	_, err := s.Leave(context.Background(), namespace, []store.PresenceEvent{{User: user, At: kit.Base}})
	return err
}

// TestRemoveEmptyBeforeACall: another server removes the name of a namespace that a server is creating for a call,
// before its meta is written.
func TestRemoveEmptyBeforeACall(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	janitor, writer := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	require.NoError(t, stores.Ping(writer, "other", "alice")) // Redis knows the script that adds names
	var once sync.Once
	writer.Around("evalsha", func() {}, func() {
		once.Do(func() {
			require.True(t, kit.RemoveEmpty(t, janitor, "chat"))
		})
	})
	c := newCallers(t, writer)
	c.Begin(c.Call("alice", "bob"))
	require.Equal(t, []store.NamespaceInfo{{Name: "chat"}, {Name: "other", Newest: kit.Base}},
		kit.Namespaces(t, janitor, 10))
}

// TestNamespaceIsListedAgain: another server deleted the namespace, or Redis lost everything, and this one still thinks
// that it is there. What it writes next lists it again, also what devices and contacts are.
func TestNamespaceIsListedAgain(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		s, other := stores.New(t, o), stores.New(t, o)
		device := stores.OnDevice("alice", "tab", kit.Base)
		device.Meta = "{}"
		contacts := []string{"bob"}
		for name, write := range map[string]func() error{
			"ping": func() error { return stores.Ping(s, "chat", "alice") },
			"device": func() error {
				return kit.ErrorOf(s.RecordDevices(ctx, "chat", stores.Window, []store.DeviceEvent{device}))
			},
			"contacts": func() error { return s.SetContacts(ctx, "chat", "alice", contacts) },
		} {
			for range 3 {
				require.NoError(t, write(), name)
				require.Len(t, kit.Namespaces(t, s, 10), 1, name)
				require.NoError(t, stores.Ping(other, "chat", "bob"))
				require.NoError(t, other.DeleteNamespace(ctx, "chat"))
				require.Empty(t, client.Keys(ctx, "*").Val(), name)
				require.NoError(t, write(), name)
				require.Len(t, kit.Namespaces(t, s, 10), 1, name)
				require.NoError(t, client.FlushAll(ctx).Err())
				require.Zero(t, kit.Lookup(t, s, "alice")[0], name)
			}
			require.NoError(t, s.ChangeContacts(ctx, "chat", "alice", nil, contacts))
			require.Empty(t, kit.Namespaces(t, s, 10), "what changes nothing does not")
		}
	}
}

// TestLostNames: servers list the namespaces again that they use and whose names Redis lost, in bulk, but not those
// that another server has deleted.
func TestLostNames(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	testLostNames(t, url, stores.NewClient(t, url))
}

func testLostNames(t *testing.T, url string, client redis.UniversalClient) {
	ctx := context.Background()
	const prefix, listed = "lost:", "lost::namespaces"
	s := stores.New(t, redisstore.Options{URL: url, Prefix: prefix})
	other := stores.New(t, redisstore.Options{URL: url, Prefix: prefix})
	var names []string
	for i := range 1100 {
		names = append(names, fmt.Sprintf("room%04d", i))
		require.NoError(t, stores.Ping(s, names[i], "alice"))
	}
	require.NoError(t, other.DeleteNamespace(ctx, names[0]))
	list := func() []string { return client.ZRange(ctx, listed, 0, -1).Val() }
	confirm := func() {
		s.ConfirmAll() // so many pings may take more than a minute
		s.ConfirmNames(ctx)
	}
	confirm()
	require.Equal(t, names[1:], list())
	for _, lost := range [][]any{{names[7]}, {names[8], names[1099]}} {
		require.NoError(t, client.ZRem(ctx, listed, lost...).Err())
		confirm()
		require.Equal(t, names[1:], list())
	}
	client.Del(ctx, listed)
	confirm()
	require.Equal(t, names[1:], list())
	for range 10 { // not used for more than a minute: another server may know better
		s.ExpireMetaCache()
	}
	client.Del(ctx, listed)
	require.NoError(t, stores.Ping(s, names[5], "alice"))
	s.ConfirmNames(ctx)
	require.Equal(t, names[5:6], list())
}
