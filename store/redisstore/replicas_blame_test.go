package redisstore_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

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
			r.ExpireAgreements() // the primary is asked for the namespace
			return context.Background()
		}, store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicated(t, redisstore.Options{Timeout: 2 * time.Second})
			begun := []store.ReplicaReads{r.reads(t), r.reads(t)}
			ctx, before := test.spoil(t, r), r.ReplicaStats()
			_, err := begun[0].Lookup(ctx, "chat", []string{"alice"})
			require.ErrorIs(t, err, test.err)
			_, err = begun[1].List(ctx, "chat", query())
			require.ErrorIs(t, err, test.err)
			require.Equal(t, before, r.ReplicaStats())
			_, ok := r.FromReplica(r.Store, "chat", 0)
			require.True(t, ok, "the replica works")
		})
	}
}

// TestUnreadableReplicaIsLogged: the user of the store URL is not on the replica, a common mistake.
func TestUnreadableReplicaIsLogged(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(primary.Addr)
	require.NoError(t, err)
	replica := redistest.StartProcess(t, "--replicaof", host, port, "--appendonly", "no")
	restrict(t, primary.Client(t))
	log, passed := &logBuffer{}, atomic.Int64{}
	s, err := redisstore.Open(redisstore.Options{
		URL: asApp(primary.URL()), MaxLag: testLag, Timeout: longTimeout, DialTimeout: longTimeout,
		Monotonic: func() time.Duration { return time.Duration(passed.Load()) },
		Logger:    slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.Eventually(t, func() bool {
		passed.Add(int64(testLag) + 1)
		return log.count("cannot read from a replica") > 0
	}, longTimeout, 50*time.Millisecond)
	require.Equal(t, 1, log.count("WRONGPASS"))
	restrict(t, replica.Client(t))
	require.Eventually(t, func() bool { return log.count("a replica can be read from again") == 1 }, longTimeout,
		10*time.Millisecond)
}
