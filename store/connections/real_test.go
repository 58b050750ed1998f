package connections

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestOnStores: connections of one user on a store, from the first ping to the last leave.
func TestOnStores(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for name, open := range map[string]func(testing.TB) (store.Store, error){
		"file": func(testing.TB) (store.Store, error) {
			return filestore.Open(filestore.Options{Path: storetest.DataFile(t), Logger: quiet})
		},
		"Redis": func(t testing.TB) (store.Store, error) {
			return redisstore.Open(redisstore.Options{
				URL: redistest.Start(t), Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Logger: quiet,
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			testOnStore(t, s)
		})
	}
}

func testOnStore(t *testing.T, s store.Store) {
	settings := newFakeStore().settings
	r := New(Options{
		Store: s, Settings: func(string) Settings { return settings }, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()

	closed := make(chan Reason, 10)
	open := func(device string) *Connection {
		c, err := r.Open(t.Context(), Opening{
			Namespace: ns, User: "alice", Device: device, Kind: lastseen.Web,
			Close: func(reason Reason) { closed <- reason },
		})
		require.NoError(t, err)
		return c
	}
	user := func() store.UserDevices {
		devices, err := s.ReadDevices(t.Context(), ns, "alice")
		require.NoError(t, err)
		return devices
	}
	eventually := func(what string, condition func(store.UserDevices) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return condition(user()) }, time.Minute, 10*time.Millisecond, what)
	}

	tab, second, phone := open("tab"), open("tab"), open("phone")
	require.Len(t, user().Records, 3, "two tabs with one device ID are two records")
	tab.End(Gone) // with a grace of 0
	eventually("the leave of the tab", func(d store.UserDevices) bool { return len(d.Live(d.State.At)) == 2 })
	require.False(t, user().State.Left)
	_, err := second.Leave(t.Context())
	require.NoError(t, err)
	require.False(t, user().State.Left)
	state, err := phone.Leave(t.Context())
	require.NoError(t, err)
	require.True(t, state.Left, "the last leave")
	require.Equal(t, state, user().State)
	for _, c := range []*Connection{second, phone} {
		c.End(Left)
	}

	again := open("tab")
	require.False(t, user().State.Left)
	require.NoError(t, s.CloseConnections(t.Context(), ns, "alice"))
	require.NoError(t, s.Forget(t.Context(), ns, "alice"))
	require.Eventually(t, func() bool { return len(closed) == 1 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, Closed, <-closed)
	again.End(Gone)
	r.Stop(t.Context())
	require.Zero(t, user().State, "a forgotten user does not come back")
	require.Empty(t, user().Records)
}
