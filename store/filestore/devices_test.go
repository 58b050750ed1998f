package filestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
)

func recordDevices(t testing.TB, s *Store, batch ...store.DeviceEvent) {
	t.Helper()
	_, err := s.RecordDevices(context.Background(), "chat", time.Minute, batch)
	require.NoError(t, err)
}

// devicesIn returns what a store has of the devices of users, as text.
func devicesIn(t testing.TB, s *Store, users ...string) (texts []string) {
	t.Helper()
	for _, user := range users {
		d := devices.Of(t, s, user)
		texts = append(texts, fmt.Sprint(user, d))
	}
	return texts
}

// TestUnchangedDevices: what changes nothing is not written.
func TestUnchangedDevices(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0})
	same := devices.On("alice", "a", base)
	same.Meta = "{}"
	recordDevices(t, s, same, devices.On("bob", "b", base))
	size := sizeOf(t, s)
	recordDevices(t, s, same, devices.On("bob", "b", base), devices.On("bob", "late", base.Add(-time.Hour)))
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
	batch := make([]store.DeviceEvent, store.MaxDeviceBatch)
	for i := range batch {
		batch[i] = devices.On("alice", fmt.Sprint("device-", i%100), base+lastseen.Instant(i))
		batch[i].Meta = fmt.Sprintf(`{"n":%d}`, i)
	}
	states, err := s.RecordDevices(context.Background(), "chat", time.Minute, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	for _, state := range states {
		require.Equal(t, lastseen.State{At: base + store.MaxDeviceBatch - 1}, state)
	}
	const writes = store.MaxDeviceBatch/256 + 1 // see RecordDevices
	require.Less(t, sizeOf(t, s), int64(writes*lastseen.MaxDevices*100))
	require.Len(t, truthOf(t, s)["chat"], 1)
}
