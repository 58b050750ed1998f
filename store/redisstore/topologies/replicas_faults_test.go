package topologies

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// requirePrimary checks that a request reads from the primary now, and gets an answer.
func (r *replicated) requirePrimary(t *testing.T, reads store.ReplicaReads) {
	t.Helper()
	require.Equal(t, []lastseen.State{{}, {At: kit.Base}}, kit.Lookup(t, reads, markerUser, "alice"))
	_, ok := reads.Age()
	require.False(t, ok)
}

func moveBoth(r *replicated) {
	r.mono.Add(int64(testLag) + 1)
	r.wall.Add(int64(testLag) + 1)
}

// TestLag: once the replica is too far behind by either clock, it is not read from, also in requests that have begun.
func TestLag(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour)
	for name, move := range map[string]func(*replicated){
		"time passes":                  moveBoth,
		"the machine is suspended":     func(r *replicated) { r.wall.Add(int64(testLag) + 1) },
		"the clock is set back":        func(r *replicated) { r.mono.Add(int64(testLag) + 1); r.wall.Add(-hour) },
		"the clock is set forward":     func(r *replicated) { r.wall.Add(hour) },
		"only the monotonic one moves": func(r *replicated) { r.mono.Add(int64(testLag) + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t, redisstore.Options{})
			begun := r.reads(t)
			r.detach(t)
			move(r)
			r.requirePrimary(t, begun)
			require.False(t, r.readsMarker(t))
			require.NotZero(t, r.Replicas().Stats().Behind+r.Replicas().Stats().Failed)
			host, port, err := net.SplitHostPort(r.primary.Addr)
			require.NoError(t, err)
			require.NoError(t, r.replica.Client(t).Do(context.Background(), "REPLICAOF", host, port).Err())
			r.waitForMarker(t) // it is read from again once it has caught up
		})
	}
}

// TestNotTooOld: up to the lag that is allowed, a replica answers, and says how far behind it may be.
func TestNotTooOld(t *testing.T) {
	r := newReplicated(t, redisstore.Options{})
	begun := r.reads(t)
	r.detach(t)
	r.mono.Add(int64(testLag))
	require.True(t, kit.Lookup(t, begun, markerUser)[0].Known())
	age, ok := begun.Age()
	require.True(t, ok)
	require.Equal(t, testLag, age)
}

// TestOlderServerAtTheAddress: what is at a replica's address now has to prove its age in each round trip.
func TestOlderServerAtTheAddress(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, text := range map[string]any{"none": nil, "old": 0, "of another process": "999999999", "garbage": "x"} {
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t, redisstore.Options{})
			begun, client := r.reads(t), r.replica.Client(t)
			r.detach(t)
			keys, err := client.Keys(ctx, "presence::heartbeat:*").Result()
			require.NoError(t, err)
			require.Len(t, keys, 1)
			if text == nil {
				require.NoError(t, client.Del(ctx, keys...).Err())
			} else {
				require.NoError(t, client.Set(ctx, keys[0], text, 0).Err())
			}
			r.requirePrimary(t, begun)
		})
	}
}

// TestReplicaFails: no request fails because of a replica, and it is read from again when it is back.
func TestReplicaFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		breakIt, repair func(*redistest.Process, testing.TB)
	}{
		"dies":    {(*redistest.Process).Stop, (*redistest.Process).Start},
		"freezes": {(*redistest.Process).Freeze, (*redistest.Process).Thaw},
	} {
		t.Run(name, func(t *testing.T) {
			var calls replicaCalls
			r := newReplicated(t, redisstore.Options{Timeout: 2 * time.Second, ObserveReplica: calls.observe})
			begun := r.reads(t)
			calls.take()
			fault.breakIt(r.replica, t)
			r.requirePrimary(t, begun)
			require.Contains(t, calls.take(), "lookup failed")
			require.False(t, r.readsMarker(t))
			fault.repair(r.replica, t)
			stores.Eventually(t, func() bool {
				return r.replica.Client(t).ConfigSet(context.Background(), "replica-read-only", "no").Err() == nil
			})
			r.waitForMarker(t)
		})
	}
}

// TestPrimaryFails: without the primary, nobody knows how old replicas are, so they soon answer nothing.
func TestPrimaryFails(t *testing.T) {
	r := newReplicated(t, redisstore.Options{Timeout: 2 * time.Second})
	begun := r.reads(t)
	r.primary.Stop(t)
	r.mono.Add(int64(testLag) + 1)
	_, _, err := begun.Describe(context.Background(), "chat", []string{"alice"})
	require.ErrorIs(t, err, store.ErrUnavailable, "unknown is not offline")
}

// TestReplicasAfterFailover: the store reads from the replicas of the new primary.
func TestReplicasAfterFailover(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	ctx, watched := context.Background(), redistest.StartSentinelWith(t, 2)
	s := stores.New(t, redisstore.Options{URL: watched.URL(), MaxLag: redisstore.MaxLag, Timeout: 2 * time.Second})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	fromReplica := func() bool {
		reads, ok := s.FromReplica(s, "chat")
		if !ok {
			return false
		}
		states, _, err := reads.Describe(ctx, "chat", []string{"alice"})
		_, aged := reads.Age()
		if err == nil {
			require.Equal(t, []lastseen.State{{At: kit.Base}}, states)
		}
		return err == nil && aged
	}
	require.Eventually(t, fromReplica, stores.FailoverTimeout, 10*time.Millisecond)
	old := watched.Nodes[0]
	require.Equal(t, int64(2), old.Client(t).Wait(ctx, 2, stores.LongTimeout).Val())
	old.Stop(t)
	stores.Eventually(t, func() bool {
		primary := watched.Primary()
		return primary != nil && primary != old
	})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
	before := s.Replicas().Stats().Replica
	stores.Eventually(t, func() bool { return fromReplica() && s.Replicas().Stats().Replica > before })
}

// TestReplicasWithLeastRights: the documented rights are enough, on the primary and on the replica.
func TestReplicasWithLeastRights(t *testing.T) {
	r := newReplicated(t, redisstore.Options{})
	stores.Restrict(t, r.primary.Client(t))
	stores.Restrict(t, r.replica.Client(t))
	r.Store = stores.New(t, redisstore.Options{URL: stores.AsApp(r.primary.URL()), MaxLag: redisstore.MaxLag})
	r.waitForMarker(t)
}

// TestReplicaOptions: a Cluster and lags that are out of range are refused.
func TestReplicaOptions(t *testing.T) {
	for _, o := range []redisstore.Options{
		{URL: "redis+cluster://localhost", MaxLag: time.Second},
		{URL: "redis://localhost", MaxLag: redisstore.MinLag - 1},
		{URL: "redis://localhost", MaxLag: redisstore.MaxLag + 1},
		{URL: "redis://localhost", MaxLag: -1},
	} {
		require.Error(t, o.Validate(), "%+v", o)
	}
	require.NoError(t, redisstore.Options{URL: "rediss+sentinel://h?master=m", MaxLag: time.Second}.Validate())
}

// TestNoReplicas: without replicas, and without the setting, the primary answers.
func TestNoReplicas(t *testing.T) {
	url := redistest.Start(t)
	for _, lag := range []time.Duration{0, time.Second} {
		s := stores.New(t, redisstore.Options{URL: url, MaxLag: lag})
		require.NoError(t, stores.Ping(s, "chat", "alice"))
		_, ok := s.FromReplica(s, "chat")
		require.False(t, ok)
		_, known := s.Replicas().Age()
		require.False(t, known)
	}
}

// TestReplicaIsNotBlamed: callers who do not wait any longer, and a primary that fails, are no failures of a replica,
// which is read from on.
func TestReplicaIsNotBlamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*testing.T, *replicated) context.Context
		err   error
	}{
		"the caller goes": {func(*testing.T, *replicated) context.Context {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx
		}, context.Canceled},
		"the primary fails": {func(t *testing.T, r *replicated) context.Context {
			r.primary.Stop(t)
			return context.Background()
		}, store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t, redisstore.Options{Timeout: 2 * time.Second})
			begun := []store.ReplicaReads{r.reads(t), r.reads(t)}
			ctx, before := test.spoil(t, r), r.Replicas().Stats()
			_, _, err := begun[0].Describe(ctx, "new", []string{"alice"}) // of which the primary is asked
			require.ErrorIs(t, err, test.err)
			_, err = begun[1].List(ctx, "new", query())
			require.ErrorIs(t, err, test.err)
			require.Equal(t, before, r.Replicas().Stats())
			_, ok := r.FromReplica(r.Store, "chat")
			require.True(t, ok, "the replica works")
		})
	}
}

// TestUnreadableReplicaIsLogged: the user of the store URL is not on the replica, a common mistake.
func TestUnreadableReplicaIsLogged(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, primary, "--appendonly", "no")
	stores.Restrict(t, primary.Client(t))
	passed := atomic.Int64{}
	_, log := stores.NewLogged(t, redisstore.Options{
		URL: stores.AsApp(primary.URL()), MaxLag: testLag,
		Monotonic: func() time.Duration { return time.Duration(passed.Load()) },
	})
	stores.Eventually(t, func() bool {
		passed.Add(int64(testLag) + 1)
		return log.Count("cannot read from a replica") > 0
	})
	require.Equal(t, 1, log.Count("WRONGPASS"))
	stores.Restrict(t, replica.Client(t))
	stores.Eventually(t, func() bool { return log.Count("a replica can be read from again") == 1 })
}
