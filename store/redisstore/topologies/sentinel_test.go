package topologies

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

func TestConformanceOnSentinel(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	storetest.RunCore(t, stores.Opener(redistest.StartSentinel(t).URL(), 1))
}

// requireBoth checks that alice and bob are still there. A short timeout may pass meanwhile on a busy machine.
func requireBoth(t *testing.T, s store.Store) {
	t.Helper()
	var states []lastseen.State
	stores.UntilSuccess(t, func() (err error) {
		states, _, err = s.Describe(context.Background(), "chat", []string{"alice", "bob"})
		return err
	})
	require.Equal(t, []lastseen.State{{At: kit.Base}, {At: kit.Base}}, states)
}

// TestFailover: while there is no primary, calls fail as unavailable; once a replica took over, they go on
// by themselves, with what it has.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *redistest.Process){
		"dead":   func(t *testing.T, p *redistest.Process) { p.Stop(t) },
		"frozen": func(t *testing.T, p *redistest.Process) { p.Freeze(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, watched := context.Background(), redistest.StartSentinel(t)
			s := stores.New(t, redisstore.Options{URL: watched.URL(), Timeout: 250 * time.Millisecond})
			stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
			stores.ReplicateAll(t, watched.Nodes[0].Client(t))
			leave(t, watched.Nodes[0])
			require.ErrorIs(t, stores.Ping(s, "chat", "bob"), store.ErrUnavailable)
			stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
			require.Eventually(t, func() bool { return watched.Primary() == watched.Nodes[1] }, stores.FailoverTimeout,
				time.Millisecond,
				"the Sentinels agree a little later than the first one says so")
			stores.Eventually(t, func() bool { return s.Ready(ctx) == nil })
			requireBoth(t, s)
		})
	}
}

// TestOldPrimaryComesBack: the primary that comes back from a freeze takes itself for one until a Sentinel tells it.
// Once the store has written to the new one, nothing goes to the old one any longer.
func TestOldPrimaryComesBack(t *testing.T) {
	t.Parallel()
	watched := redistest.StartSentinel(t)
	s := stores.New(t, redisstore.Options{URL: watched.URL(), Timeout: 250 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	stores.ReplicateAll(t, watched.Nodes[0].Client(t))
	watched.Nodes[0].Freeze(t)
	stores.Eventually(t, func() bool { return watched.Primary() == watched.Nodes[1] })
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
	watched.Nodes[0].Thaw(t)
	for i := range 50 {
		user := fmt.Sprintf("u%d", i)
		stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", user) })
		require.InDelta(t, float64(kit.Base),
			watched.Nodes[1].Client(t).ZScore(context.Background(), "presence:chat", user).Val(), 0)
	}
}

// TestFrozenSentinel: one Sentinel that hangs, even the one that was asked last, does not keep us from the
// primary.
func TestFrozenSentinel(t *testing.T) {
	t.Parallel()
	ctx, watched := context.Background(), redistest.StartSentinel(t)
	s := stores.New(t, redisstore.Options{URL: watched.URL(), Timeout: 250 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	frozen := 0
	for _, sentinel := range watched.Sentinels {
		clients := sentinel.Client(t).Do(ctx, "PUBSUB", "NUMPAT").String() + sentinel.Client(t).ClientList(ctx).Val()
		if strings.Contains(clients, "cmd=subscribe") {
			sentinel.Freeze(t)
			defer sentinel.Thaw(t)
			frozen++
		}
	}
	require.Equal(t, 1, frozen, "the one that it listens to")
	require.NoError(t, watched.Nodes[0].Client(t).ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
	require.NoError(t, watched.Nodes[0].Client(t).ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
}

// TestSentinelPasswords: the Sentinels have one, and the servers another.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	ctx, watched := context.Background(), redistest.StartSentinel(t)
	for _, sentinel := range watched.Sentinels {
		require.NoError(t, sentinel.Client(t).Do(ctx, "ACL", "SETUSER", "dot", "on", ">ge/heim", "&*", "-@all",
			"+ping", "+hello", "+auth", "+subscribe", "+sentinel|get-master-addr-by-name", "+sentinel|sentinels").Err())
		require.NoError(t, sentinel.Client(t).Do(ctx, "ACL", "SETUSER", "default", "off").Err())
	}
	require.NoError(t, watched.Nodes[0].Client(t).Do(ctx, "ACL", "SETUSER", "app", "on", ">geheim", "~presence:*",
		"+@all").Err())
	url := strings.Replace(watched.URL(), "://", "://app:geheim@", 1)
	url = strings.Replace(url, "?", "/2?", 1)
	s := stores.New(t, redisstore.Options{URL: url + "&sentinel-user=dot&sentinel-password=ge%2Fheim"})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.NoError(t, s.Ready(ctx))
	admin := stores.NewClient(t, watched.Nodes[0].URL()+"/2")
	require.Equal(t, []string{"alice"}, admin.ZRange(ctx, "presence:chat", 0, -1).Val(), "in the database of the URL")
	for _, wrong := range []string{url, url + "&sentinel-user=dot&sentinel-password=falsch"} {
		s := stores.New(t, redisstore.Options{URL: wrong})
		err := stores.Ping(s, "chat", "alice")
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.NotContains(t, err.Error(), "falsch")
	}
}
