package memstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestWithoutDevices: a namespace without devices has nothing of them in memory.
func TestWithoutDevices(t *testing.T) {
	ctx := context.Background()
	for _, staged := range []bool{false, true} {
		s := opened(t, Options{}, staged)
		recordDevices(t, s, devices.On("alice", "a", base))
		kit.Write(s.Ping).Send(t, "other", []store.PresenceEvent{{User: "alice", At: base}})
		kit.Write(s.Leave).Send(t, "other", append(kit.Events(base+1, "alice"), kit.Events(base, "bob")...))
		require.NoError(t, s.Forget(ctx, "other", "bob"))
		_, err := s.RecordDevices(ctx, "other", time.Minute, nil)
		require.NoError(t, err)
		n, _ := s.tables.index.namespaces.Get("other")
		require.Nil(t, n.users.devices)
	}
}

// TestManyLeaves: many users who leave in a namespace with devices do so in several writes, so that reads do not wait
// for all of them.
func TestManyLeaves(t *testing.T) {
	s := opened(t, Options{}, true)
	writes := &s.journal.(*stages).writes
	leaves := make([]store.PresenceEvent, 2*maxDeviceWrite+2)
	for i := range leaves {
		leaves[i] = store.PresenceEvent{User: fmt.Sprint("user-", i), At: base}
	}
	leaves[0] = store.PresenceEvent{User: leaves[len(leaves)-1].User, At: base - 1}
	leave := func(parts int) {
		t.Helper()
		before := writes.Load()
		states := kit.Write(s.Leave).Send(t, "chat", leaves)
		require.Len(t, states, len(leaves))
		for i, state := range states {
			require.Equal(t, lastseen.State{At: leaves[1].At, Left: true}, state, i)
		}
		require.EqualValues(t, parts, writes.Load()-before)
	}
	leave(1)
	recordDevices(t, s, devices.On("alice", "phone", base))
	for i := range leaves {
		leaves[i].At += 2
	}
	leave(3)
}

// TestDevicesOfLargeNamespace: once it is empty, its memory is free.
func TestDevicesOfLargeNamespace(t *testing.T) {
	s := open(t, Options{})
	for n := range 100 {
		event := devices.On("alice", fmt.Sprint("device-", n%30), base+lastseen.Instant(n))
		event.Meta = fmt.Sprintf("%1024d", n)
		recordDevices(t, s, event)
	}
	n, _ := s.tables.index.namespaces.Get("chat")
	require.Greater(t, n.users.devices.texts.Chunks(), 1)
	require.NoError(t, s.Forget(context.Background(), "chat", "alice"))
	require.Nil(t, n.users.devices)
	require.Equal(t, namespaceBytes("chat"), s.tables.index.live)
}
