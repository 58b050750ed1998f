package filestore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

func onDevice(user, id string, at lastseen.Instant) store.DeviceSighting {
	return store.DeviceSighting{User: user, ID: id, Kind: lastseen.Web, At: at}
}

func recordDevices(t testing.TB, s *Store, batch ...store.DeviceSighting) {
	t.Helper()
	_, err := s.RecordDevices(context.Background(), "chat", time.Minute, batch)
	require.NoError(t, err)
}

// devicesIn returns what a store has of the devices of users, as text.
func devicesIn(t testing.TB, s *Store, users ...string) (texts []string) {
	t.Helper()
	for _, user := range users {
		d, err := s.ReadDevices(context.Background(), "chat", user)
		require.NoError(t, err)
		texts = append(texts, fmt.Sprint(user, d))
	}
	return texts
}

// TestWithoutDevices: a namespace without devices has nothing of them in memory or in the file.
func TestWithoutDevices(t *testing.T) {
	ctx := context.Background()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		recordDevices(t, s, onDevice("alice", "a", base))
		_, err := s.Ping(ctx, "other", []store.Sighting{{User: "alice", At: base}})
		require.NoError(t, err)
		_, err = s.Leave(ctx, "other", []store.Sighting{{User: "alice", At: base + 1}, {User: "bob", At: base}})
		require.NoError(t, err)
		require.NoError(t, s.Forget(ctx, "other", "bob"))
		_, err = s.RecordDevices(ctx, "other", time.Minute, nil)
		require.NoError(t, err)
		n, _ := s.index.namespaces.Get("other")
		require.Nil(t, n.users.devices)
	}
}

// TestUnchangedDevices: what changes nothing is not written.
func TestUnchangedDevices(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0})
	same := onDevice("alice", "a", base)
	same.Meta = "{}"
	recordDevices(t, s, same, onDevice("bob", "b", base))
	size := sizeOf(t, s)
	recordDevices(t, s, same, onDevice("bob", "b", base), onDevice("bob", "late", base.Add(-time.Hour)))
	require.Equal(t, size, sizeOf(t, s))
	same.Meta = "[]"
	recordDevices(t, s, same)
	require.Greater(t, sizeOf(t, s), size)
}

// TestBatchOfOneUser: a batch returns the last state for each item, and a write of many items writes the devices of a
// user once.
func TestBatchOfOneUser(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	s := open(t, Options{Path: newPath(t), Sync: 0})
	batch := make([]store.DeviceSighting, store.MaxDeviceBatch)
	for i := range batch {
		batch[i] = onDevice("alice", fmt.Sprint("device-", i%100), base+lastseen.Instant(i))
		batch[i].Meta = fmt.Sprintf(`{"n":%d}`, i)
	}
	states, err := s.RecordDevices(context.Background(), "chat", time.Minute, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	for _, state := range states {
		require.Equal(t, lastseen.State{At: base + store.MaxDeviceBatch - 1}, state)
	}
	const writes = store.MaxDeviceBatch/maxDeviceWrite + 1
	require.Less(t, sizeOf(t, s), int64(writes*lastseen.MaxDevices*100))
	n, _ := s.index.namespaces.Get("chat")
	require.Equal(t, 1, n.users.len())
}

// TestManyLeaves: many users who leave in a namespace with devices do so in several writes, so that reads do not wait
// for all of them.
func TestManyLeaves(t *testing.T) {
	var flushes atomic.Int64
	s := open(t, Options{Path: newPath(t), Sync: 0, ObserveFlush: func(time.Duration) { flushes.Add(1) }})
	leaves := make([]store.Sighting, 2*maxDeviceWrite+2)
	for i := range leaves {
		leaves[i] = store.Sighting{User: fmt.Sprint("user-", i), At: base}
	}
	leaves[0] = store.Sighting{User: leaves[len(leaves)-1].User, At: base - 1}
	leave := func(parts int) {
		t.Helper()
		before := flushes.Load()
		states, err := s.Leave(context.Background(), "chat", leaves)
		require.NoError(t, err)
		require.Len(t, states, len(leaves))
		for i, state := range states {
			require.Equal(t, lastseen.State{At: leaves[1].At, Left: true}, state, i)
		}
		require.EqualValues(t, parts, flushes.Load()-before)
	}
	leave(1)
	recordDevices(t, s, onDevice("alice", "phone", base))
	for i := range leaves {
		leaves[i].At += 2
	}
	leave(3)
}

// TestDevicesOfLargeNamespace: once it is empty, its memory is free.
func TestDevicesOfLargeNamespace(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: time.Hour})
	for n := range 100 {
		sighting := onDevice("alice", fmt.Sprint("device-", n%30), base+lastseen.Instant(n))
		sighting.Meta = fmt.Sprintf("%1024d", n)
		recordDevices(t, s, sighting)
	}
	n, _ := s.index.namespaces.Get("chat")
	require.Greater(t, len(n.users.devices.texts.chunks), 1)
	require.NoError(t, s.Forget(context.Background(), "chat", "alice"))
	require.Nil(t, n.users.devices)
	require.Equal(t, namespaceBytes("chat"), s.index.live)
}
