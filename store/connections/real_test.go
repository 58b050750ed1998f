package connections

import (
	"context"
	"fmt"
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
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestOnStores: connections of one user on a store, from the first ping to the last goodbye.
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
			testMoves(t, s)
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
	eventually("the goodbye of the tab", func(d store.UserDevices) bool { return len(d.Live(d.State.At)) == 2 })
	require.False(t, user().State.Left)
	_, err := second.Leave(t.Context())
	require.NoError(t, err)
	require.False(t, user().State.Left)
	state, err := phone.Leave(t.Context())
	require.NoError(t, err)
	require.True(t, state.Left, "the last goodbye")
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

// testMoves: users who are idle move from one server to the next, as when servers are restarted. Followers see nothing
// of it, whether clients say again that they are idle or not, and whether they had a connection or pinged before.
func testMoves(t *testing.T, s store.Store) {
	const users, moved = 100, "moved"
	settings := newFakeStore().settings
	require.NoError(t, s.Register(t.Context(), []string{moved}))
	require.NoError(t, s.RecordChanges(t.Context(), moved, settings.Thresholds))
	begun := time.Now()
	var batch []store.DeviceSighting
	for i := range users {
		now := kit.Now(t, s)
		batch = append(batch, store.DeviceSighting{User: fmt.Sprint(i), ID: "tab", At: now, Idle: now.Add(-time.Hour)})
	}
	_, err := s.RecordDevices(t.Context(), moved, settings.window(), batch)
	require.NoError(t, err)
	read := func(after []store.Place) *store.ChangesRead {
		r := &store.ChangesRead{Namespace: moved, After: after, Limit: store.MaxChangesRead}
		s.ReadChanges(t.Context(), []*store.ChangesRead{r})
		require.NoError(t, r.Err)
		return r
	}
	places := read(nil).Places
	end := func() {}
	for range 3 {
		r := New(Options{
			Store: s, Settings: func(string) Settings { return settings }, Logger: slog.New(slog.DiscardHandler),
		})
		var open []*Connection
		for i := range users {
			o := Opening{Namespace: moved, User: fmt.Sprint(i), Device: "tab", Close: func(Reason) {}}
			if i%2 == 0 {
				o.Activity = &Activity{Idle: true, For: time.Hour + time.Since(begun)}
			}
			c, err := r.Open(t.Context(), o)
			require.NoError(t, err)
			open = append(open, c)
		}
		end()
		end = func() {
			for _, c := range open {
				c.End(Gone)
			}
			r.Stop(t.Context())
		}
	}
	end()
	require.Empty(t, read(places).Changes)
	batch[0].At, batch[0].Idle = batch[0].At+1, 0
	_, err = s.RecordDevices(t.Context(), moved, settings.window(), batch[:1])
	require.NoError(t, err)
	require.Len(t, read(places).Changes, 1, "one uses the device")
}
