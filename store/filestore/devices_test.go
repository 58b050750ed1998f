package filestore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
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

func TestDevicesSurvive(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Sync: DefaultSync}, {Sync: 0}, {Sync: time.Millisecond, CompactAfter: 1}} {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			o.Path = newPath(t)
			s := open(t, o)
			storetest.DevicesSurvive(t, storetest.Breakable{Store: s, Restart: func() store.Store {
				require.NoError(t, s.Close())
				s = open(t, o)
				return s
			}})
		})
	}
}

// TestDevicesInOneFlush: writes of one flush see each other, and what is in the file is what is in memory.
func TestDevicesInOneFlush(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	said := func(s store.DeviceSighting, meta string) store.DeviceSighting {
		s.Meta = meta
		return s
	}
	bye := func(user, id string, at lastseen.Instant) store.DeviceSighting {
		s := onDevice(user, id, at)
		s.Gone = true
		return s
	}
	late := base.Add(2 * time.Minute)
	chat := func(batch ...store.DeviceSighting) func(*Store) error { return devicesOf("chat", batch...) }
	on := onDevice
	for name, writes := range map[string][]func(s *Store) error{
		"first and leave": {
			chat(on("alice", "a", base)),
			leaveOf("alice", base+1),
			chat(on("alice", "b", base)),
		},
		"leave before the first": {leaveOf("bob", base+1), chat(on("bob", "b", base))},
		"forgotten": {
			chat(said(on("alice", "a", base), "{}")),
			forgetOf("alice"),
			chat(on("alice", "a", base)),
		},
		"old: forgotten": {forgetOf("old"), chat(on("old", "a", base))},
		"forgotten last": {chat(said(on("alice", "a", base), "{}")), forgetOf("alice")},
		"old: forgotten, then a leave": {
			forgetOf("old"), leaveOf("old", base-5), chat(bye("old", "z", base-5)),
		},
		"deleted and back": {
			chat(said(on("alice", "a", base), "{}")), chat(on("alice", "b", late)),
			chat(on("alice", "a", late)),
		},
		"old: deleted and back": {
			chat(on("old", "b", late)),
			chat(on("old", "a", late)),
		},
		"old: deleted and back in one batch": {
			chat(on("old", "b", late), on("old", "a", late)),
		},
		"meta of both": {
			chat(said(on("alice", "a", base), "1"), said(on("alice", "b", base), "2")),
			chat(said(on("alice", "a", base+1), "3")), chat(on("alice", "b", base+1)),
		},
		"the last goodbye": {
			chat(on("alice", "a", base), on("alice", "b", base)),
			chat(bye("alice", "a", base+1)), chat(bye("alice", "b", base+2)),
		},
		"another namespace": {
			devicesOf("other", on("alice", "a", base)),
			leaveOf("alice", base+1),
			leaveOf("old", base+1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results := map[time.Duration][]string{}
			for _, sync := range []time.Duration{0, time.Hour} {
				s := open(t, Options{Path: newPath(t), Sync: sync})
				if strings.HasPrefix(name, "old") {
					recordDevices(t, s, said(onDevice("old", "a", base), "old"))
				}
				if sync > 0 {
					for _, write := range writes {
						require.NoError(t, write(s))
					}
				} else {
					inOneFlush(t, s, writes)
				}
				require.NoError(t, s.writer.do(ctx, write{durable: true, op: opFunc(func(*transaction) {})}))
				users := []string{"alice", "bob", "old"}
				results[sync] = devicesIn(t, s, users...)
				size := s.index.live
				require.NoError(t, s.Close())
				s = open(t, Options{Path: s.Path(), Sync: sync})
				require.Equal(t, results[sync], devicesIn(t, s, users...), "after a restart")
				require.InDelta(t, size, s.index.live, 10)
			}
			require.Equal(t, results[time.Hour], results[0])
		})
	}
}

func devicesOf(namespace string, batch ...store.DeviceSighting) func(*Store) error {
	return func(s *Store) error {
		_, err := s.RecordDevices(context.Background(), namespace, time.Minute, batch)
		return err
	}
}

func leaveOf(user string, at lastseen.Instant) func(*Store) error {
	return func(s *Store) error {
		_, err := s.Leave(context.Background(), "chat", []store.Sighting{{User: user, At: at}})
		return err
	}
}

func forgetOf(user string) func(*Store) error {
	return func(s *Store) error { return s.Forget(context.Background(), "chat", user) }
}

// inOneFlush makes writes to a store with Sync zero, while another flush is in progress: they are the next one.
func inOneFlush(t *testing.T, s *Store, writes []func(*Store) error) {
	t.Helper()
	g := hold(s)
	errs := make(chan error, len(writes)+1)
	go func() { errs <- s.Register(context.Background(), []string{"held"}) }()
	<-g.entered
	for n, write := range writes {
		go func() { errs <- write(s) }()
		require.Eventually(t, func() bool { return len(s.writer.requests) == n+1 }, time.Minute, time.Millisecond)
	}
	close(g.open)
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.Len(t, g.entered, 1, "one flush")
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

// TestMetaOfDeletedRecord: what was said about a record is deleted with it, also if it is back at once and the flush
// has another write to its user.
func TestMetaOfDeletedRecord(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0})
	sighting := onDevice("alice", "a", base)
	sighting.Meta = "{}"
	recordDevices(t, s, sighting)
	log := changes{}
	group := &transaction{
		index: &s.index, log: &log, staged: map[userKey]lastseen.State{}, adds: map[string]struct{}{},
	}
	minute := lastseen.Instant(time.Minute.Milliseconds())
	for _, batch := range [][]store.DeviceSighting{
		{onDevice("alice", "a", base+1)},
		{onDevice("alice", "b", base+minute+2), onDevice("alice", "a", base+minute+3)},
	} {
		a := &deviceAssertions{namespace: "chat", window: time.Minute, batch: batch, now: s.readClock}
		a.do(group)
		require.NoError(t, a.err)
	}
	s.mu.Lock()
	group.apply()
	s.mu.Unlock()
	d, err := s.ReadDevices(context.Background(), "chat", "alice")
	require.NoError(t, err)
	require.Equal(t, "a", d.Records[0].ID)
	require.Equal(t, []string{"", ""}, d.Meta)
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
