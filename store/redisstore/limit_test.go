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
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestNamespaceLimit: no ping and no leave makes one namespace more than the limit. Those that exist go on, Register
// is exempt, and one that is removed makes room.
func TestNamespaceLimit(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url, MaxNamespaces: 3})
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, ping(s, name, "alice"))
	}
	before := contents(t, client)
	writes := []func(context.Context, string, []store.Sighting) error{
		func(ctx context.Context, ns string, b []store.Sighting) error {
			_, err := s.Ping(ctx, ns, b)
			return err
		},
		func(ctx context.Context, ns string, b []store.Sighting) error {
			_, err := s.Leave(ctx, ns, b)
			return err
		},
	}
	for _, write := range writes {
		require.ErrorIs(t, write(ctx, "d", []store.Sighting{{User: "alice", At: base}}), store.ErrNamespaceLimit)
	}
	require.Equal(t, before, contents(t, client), "nothing is written")
	_, err := s.Lookup(ctx, "d", []string{"alice"})
	require.NoError(t, err, "reading is not affected")
	require.NoError(t, ping(s, "a", "bob"))
	other := newStore(t, redisstore.Options{URL: url, MaxNamespaces: 3})
	require.NoError(t, ping(other, "a", "bob"), "a server that does not know them yet")

	require.NoError(t, s.Register(ctx, []string{"d", "e"}))
	require.NoError(t, ping(s, "d", "alice"))
	require.ErrorIs(t, ping(s, "f", "alice"), store.ErrNamespaceLimit)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, s.DeleteNamespace(ctx, name))
	}
	require.NoError(t, ping(s, "f", "alice"))
	require.ErrorIs(t, ping(s, "a", "alice"), store.ErrNamespaceLimit)
	require.NoError(t, ping(newStore(t, redisstore.Options{URL: url}), "a", "alice"), "no limit by default")

	require.NoError(t, client.ZAdd(ctx, "presence:there", redis.Z{Member: "alice", Score: float64(base)}).Err())
	require.NoError(t, ping(s, "there", "bob"), "one with users exists, whether or not it is listed")
}

// TestNamespaceLimitOfDevices: it applies to what devices create, too.
func TestNamespaceLimitOfDevices(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, shards := range []int{1, 7} {
		require.NoError(t, newClient(t, url).FlushAll(context.Background()).Err())
		storetest.DeviceLimit(t, newStore(t, redisstore.Options{URL: url, Shards: shards, MaxNamespaces: 1}))
	}
}

// TestNamespaceLimitOfBatch: of several new namespaces in one batch as many are made as there is room for.
func TestNamespaceLimitOfBatch(t *testing.T) {
	url := redistest.Start(t)
	s := newStore(t, redisstore.Options{URL: url, MaxNamespaces: 700})
	batches := make([]*store.Batch[store.Sighting], 1500)
	for i := range batches {
		batches[i] = &store.Batch[store.Sighting]{
			Namespace: fmt.Sprint("n", i),
			Items:     []store.Sighting{{User: "alice", At: base}},
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
		s := newStore(t, redisstore.Options{URL: url, MaxNamespaces: limit})
		wg.Go(func() {
			for i := range 30 {
				err := ping(s, fmt.Sprintf("n%d-%d", k, i), "alice")
				if err != nil && !errors.Is(err, store.ErrNamespaceLimit) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	infos, err := newStore(t, redisstore.Options{URL: url}).Namespaces(context.Background(), "", 100)
	require.NoError(t, err)
	require.Len(t, infos, limit)
}

// TestKnownNamespacesCostNothing: after its first write a namespace is not asked about for a while.
func TestKnownNamespacesCostNothing(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url, MaxNamespaces: 1})
	require.NoError(t, ping(s, "chat", "alice"))
	for _, key := range []string{"presence::meta", "presence::namespaces"} {
		require.NoError(t, client.Set(ctx, key, "reading this key is an error", 0).Err())
	}
	require.NoError(t, ping(s, "chat", "bob"))
	require.Equal(t, base, lookup(t, s, "alice")[0].At)
}

// TestRemoveEmptyBetweenWrites: another server, which believes that the namespace is registered, writes to it between
// any two steps of the removal.
func TestRemoveEmptyBetweenWrites(t *testing.T) {
	for step := range 4 {
		for name, write := range map[string]func(s *redisstore.Store) error{
			"ping":  func(s *redisstore.Store) error { return ping(s, "chat", "alice") },
			"leave": func(s *redisstore.Store) error { return leave(s, "chat", "alice") },
		} {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				ctx, url := context.Background(), redistest.Start(t)
				janitor, writer := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
				require.NoError(t, ping(writer, "chat", "alice"))
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
				removed, err := janitor.RemoveEmpty(ctx, "chat")
				require.NoError(t, err)
				require.False(t, removed, "a user is in it")
				infos, err := janitor.Namespaces(ctx, "", 10)
				require.NoError(t, err)
				require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: base}}, infos)
				require.Len(t, newClient(t, url).HGetAll(ctx, "presence::meta").Val(), 1)
				require.NoError(t, ping(janitor, "chat", "bob"))
			})
		}
	}
}

func leave(s store.Store, namespace, user string) error {
	_, err := s.Leave(context.Background(), namespace, []store.Sighting{{User: user, At: base}})
	return err
}

// TestRemoveEmptyBeforeACall: another server removes the name of a namespace that a server is creating for a call,
// before its meta is written.
func TestRemoveEmptyBeforeACall(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	janitor, writer := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	require.NoError(t, ping(writer, "other", "alice")) // Redis knows the script that adds names
	var once sync.Once
	writer.Around("evalsha", func() {}, func() {
		once.Do(func() {
			removed, err := janitor.RemoveEmpty(ctx, "chat")
			require.NoError(t, err)
			require.True(t, removed)
		})
	})
	c := newCallers(t, writer)
	c.start(c.newCall("alice", "bob"))
	infos, err := janitor.Namespaces(ctx, "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.NamespaceInfo{{Name: "chat"}, {Name: "other", Newest: base}}, infos)
}

// TestRemoveEmptyWhileOthersWrite: one server removes a namespace again and again, while another one, which believes
// that it is registered, writes to it and empties it. After each round it is listed if a user is in it.
func TestRemoveEmptyWhileOthersWrite(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) { removeEmptyWhileOthersWrite(t, shards) })
	}
}

func removeEmptyWhileOthersWrite(t *testing.T, shards int) {
	const rounds = 300
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	o := redisstore.Options{URL: url, Shards: shards}
	janitor, writer := newStore(t, o), newStore(t, o)
	removed := 0
	for round := range rounds {
		var both sync.WaitGroup
		if round%10 == 0 { // so that some are removed, however the others meet
			gone, err := janitor.RemoveEmpty(ctx, "chat")
			require.NoError(t, err)
			require.Equal(t, round > 0, gone, "it is empty after each round")
			removed++
		}
		both.Go(func() {
			for range round % 3 {
				_ = client.Ping(ctx).Err() // begins later
			}
			gone, err := janitor.RemoveEmpty(ctx, "chat")
			if err != nil {
				t.Error(err)
			}
			if gone {
				removed++
			}
		})
		both.Go(func() {
			write := writer.Ping
			if round%2 == 0 {
				write = writer.Leave
			}
			if _, err := write(ctx, "chat", []store.Sighting{{User: "alice", At: base}}); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		infos, err := janitor.Namespaces(ctx, "", 10)
		require.NoError(t, err)
		require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: base}}, infos, "round %d", round)
		require.Len(t, client.HGetAll(ctx, "presence::meta").Val(), 1)
		require.Equal(t, base, lookup(t, writer, "alice")[0].At)
		require.NoError(t, writer.Forget(ctx, "chat", "alice"))
	}
	require.GreaterOrEqual(t, removed, rounds/10)
	require.True(t, func() bool { ok, err := janitor.RemoveEmpty(ctx, "chat"); return ok && err == nil }())
	require.Empty(t, client.Keys(ctx, "presence:*").Val(), "nothing is left behind")
}
