package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testDevicesForget: devices of a user who is forgotten do not keep the next user of that name present.
func testDevicesForget(t *testing.T, s store.Store) {
	record(t, s, on("alice", "a", base), on("alice", "b", base), on("bob", "a", base))
	leave(t, s, "carol", base+50)
	forget(t, s, "alice", "carol", "nobody")
	require.Zero(t, devicesOf(t, s, "alice").State)
	for _, user := range []string{"alice", "carol", "nobody"} {
		requireNoDevices(t, s, user)
	}
	requireDevices(t, s, "bob", "a")

	require.Equal(t, left(base-9), recordOne(t, s, bye("alice", "c", base-9)), "nothing from before counts")
	requireDevices(t, s, "alice", "c")
	require.Equal(t, here(base-9), recordOne(t, s, on("carol", "a", base-9)), "nothing from before counts")
	require.Equal(t, left(base-8), recordOne(t, s, bye("carol", "a", base-8)), "nothing from before counts")
	ping(t, s, "alice", base)
	requireLive(t, s, "alice")
}

// testDevicesTrim: Trim deletes the records of the users that it deletes, and no others.
func testDevicesTrim(t *testing.T, s store.Store) {
	start := now(t, s)
	old, fresh := start-60*minute, start-10*minute
	var batch []store.DeviceSighting
	names := func(prefix string) (users []string) {
		for i := range 50 {
			users = append(users, fmt.Sprint(prefix, i))
		}
		return users
	}
	for i, user := range names("old") {
		batch = append(batch, on(user, "a", old), withMeta(on(user, "b", old), "{}"))
		if i%2 == 0 {
			batch = append(batch, bye(user, "a", old), bye(user, "b", old))
		}
	}
	for _, user := range names("fresh") {
		batch = append(batch, on(user, "a", fresh-1000), bye(user, "b", fresh))
	}
	record(t, s, batch...)
	ping(t, s, "no device", old)
	require.Equal(t, store.TrimResult{Deleted: 51}, trim(t, s, ns, start-30*minute, true))
	for _, user := range names("old") {
		requireNoDevices(t, s, user)
	}
	for _, user := range names("fresh") {
		requireLive(t, s, user, "a")
	}
	require.Equal(t, left(old), recordOne(t, s, bye("old1", "c", old)), "nothing from before counts")
	require.Equal(t, here(old), recordOne(t, s, on("old1", "b", old)))
	requireMeta(t, s, "old1", "b", "")

	require.Equal(t, store.TrimResult{Deleted: 51}, trim(t, s, ns, start, true))
	for _, user := range slices.Concat(names("fresh"), names("old")) {
		requireNoDevices(t, s, user)
	}
	require.Empty(t, remaining(t, s))
	require.Equal(t, left(fresh), recordOne(t, s, bye("fresh1", "c", fresh)), "nothing from before counts")
}

// testDevicesTrimKeeps: a user whose devices are old stays as long as the user's own time is not.
func testDevicesTrimKeeps(t *testing.T, s store.Store) {
	start := now(t, s)
	record(t, s, on("alice", "a", start-60*minute), on("bob", "a", start-60*minute))
	ping(t, s, "alice", start-10*minute)
	require.Equal(t, store.TrimResult{Deleted: 1}, trim(t, s, ns, start-30*minute, true))
	require.Equal(t, []string{"alice"}, remaining(t, s))
	require.Equal(t, here(start-10*minute), devicesOf(t, s, "alice").State)
	requireNoDevices(t, s, "bob")
}

// testDevicesDelete: a namespace that exists again after it was deleted has no devices.
func testDevicesDelete(t *testing.T, s store.Store) {
	ctx := context.Background()
	record(t, s, withMeta(on("alice", "a", base), "{}"), on("bob", "a", base))
	recordIn(t, s, "other", on("alice", "a", base))
	require.NoError(t, s.DeleteNamespace(ctx, ns))
	require.NoError(t, s.DeleteNamespace(ctx, ns))
	requireNoDevices(t, s, "alice")
	require.Equal(t, []string{"a"}, ids(devicesIn(t, s, "other", "alice").Records))
	require.Equal(t, []store.NamespaceInfo{{Name: "other", Newest: base}}, namespaces(t, s, 10))

	require.Equal(t, here(base-9), ping(t, s, "alice", base-9))
	requireNoDevices(t, s, "alice")
	require.Equal(t, left(base-8), leave(t, s, "alice", base-8))
	require.Equal(t, here(base-7), recordOne(t, s, on("alice", "a", base-7)))
	requireMeta(t, s, "alice", "a", "")
	require.Equal(t, left(base-6), recordOne(t, s, bye("bob", "b", base-6)), "nothing from before counts")
}

// testDevicesRemoveEmpty: a namespace whose users are forgotten can be removed, and used again.
func testDevicesRemoveEmpty(t *testing.T, s store.Store) {
	record(t, s, withMeta(on("alice", "a", base), "{}"), on("bob", "a", base))
	require.False(t, removeEmpty(t, s, ns))
	forget(t, s, "alice", "bob")
	require.True(t, removeEmpty(t, s, ns))
	require.Empty(t, existing(t, s))
	require.Equal(t, left(base-1), recordOne(t, s, bye("alice", "b", base-1)), "nothing from before counts")
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: base - 1}}, namespaces(t, s, 10))
	requireDevices(t, s, "alice", "b")
}

// deviceCalls is every method of devices, of the namespace ns.
func deviceCalls(s store.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"RecordDevices": func(ctx context.Context) error {
			batch := []store.DeviceSighting{on("alice", "a", base)}
			return errorOf(s.RecordDevices(ctx, ns, windowTime, batch))
		},
		"ReadDevices": func(ctx context.Context) error { return errorOf(s.ReadDevices(ctx, ns, "alice")) },
	}
}

func testDevicesCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 { // without devices, and with some
		for name, call := range deviceCalls(s) {
			require.ErrorIs(t, call(ctx), context.Canceled, name)
		}
		require.Zero(t, lookup(t, s, "alice")[0], "nothing happened")
		record(t, s, on("bob", "a", base))
		_, err := s.Leave(ctx, ns, sightings(base+1, "bob"))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, here(base), lookup(t, s, "bob")[0], "nothing happened")
	}
	requireDevices(t, s, "bob", "a")
}

func testDevicesClosed(t *testing.T, s store.Store) {
	record(t, s, on("alice", "a", base))
	require.NoError(t, s.Close())
	for name, call := range deviceCalls(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
}

// testNoDevices: a namespace that cannot have devices says so, and works.
func testNoDevices(t *testing.T, s store.Store) {
	for range 2 {
		for name, call := range deviceCalls(s) {
			require.ErrorIs(t, call(context.Background()), store.ErrNoDevices, name)
		}
		require.Equal(t, []lastseen.State{{}}, lookup(t, s, "alice"), "nothing is recorded")
		require.Equal(t, here(base), ping(t, s, "bob", base))
		require.Equal(t, left(base), leave(t, s, "carol", base))
	}
	forget(t, s, "bob", "carol")
	require.Empty(t, remaining(t, s))
}

// DevicesSurvive checks that everything about devices is there after a restart of the store, however often.
func DevicesSurvive(t *testing.T, b Breakable) {
	t.Helper()
	record(t, b, withMeta(on("alice", "a", base), `{"name":"é"}`), bye("alice", "b", base+1))
	record(t, b, store.DeviceSighting{
		User: "bob", ID: "x", Kind: lastseen.Mobile, At: base, Idle: base - 1, Meta: `{"app":1}`,
	})
	record(t, b, on("carol", "a", base), on("left", "a", base), on("gone", "a", base), on("back", "a", base))
	leave(t, b, "left", base+5)
	forget(t, b, "gone", "back")
	record(t, b, on("back", "b", base+1))
	ping(t, b, "plain", base)
	names := []string{"alice", "bob", "carol", "left", "gone", "back", "plain"}
	want, states := map[string]store.UserDevices{}, lookup(t, b, names...)
	for _, user := range names {
		want[user] = devicesOf(t, b, user)
	}
	for n := range 3 {
		b.Store = b.Restart()
		require.Equal(t, states, lookup(t, b, names...))
		for _, user := range names {
			require.Equal(t, want[user], devicesOf(t, b, user), "%s after restart %d", user, n+1)
		}
		require.Equal(t, left(base+5), recordOne(t, b, on("left", "c", base+5-lastseen.Instant(n))), "the leave counts")
		requireLive(t, b, "left")
		want["left"] = devicesOf(t, b, "left")
	}
	require.Equal(t, here(base+10), recordOne(t, b, bye("alice", "b", base+10)), "a counts")
	require.Equal(t, left(base+10), recordOne(t, b, bye("carol", "a", base+10)))
}

// DeviceLimit checks that devices make no namespaces beyond the limit of a store, which is new and holds one.
func DeviceLimit(t *testing.T, s store.Store) {
	t.Helper()
	recordIn(t, s, "first", on("alice", "a", base))
	for _, batch := range [][]store.DeviceSighting{
		{on("alice", "a", base)},
		{bye("alice", "a", base)},
		{withMeta(on("alice", "a", base), "{}"), on("bob", "a", base)},
	} {
		_, err := s.RecordDevices(context.Background(), "second", windowTime, batch)
		require.ErrorIs(t, err, store.ErrNamespaceLimit)
		require.Equal(t, []string{"first"}, existing(t, s))
		require.Equal(t, here(base+1), recordIn(t, s, "first", on("alice", "a", base+1))[0])
	}
	d := devicesIn(t, s, "second", "alice")
	require.Zero(t, d.State)
	require.Empty(t, d.Records)
	require.NoError(t, s.DeleteNamespace(context.Background(), "first"))
	require.Equal(t, left(base), recordIn(t, s, "second", bye("alice", "a", base))[0], "there is room again")
	require.Equal(t, []string{"second"}, existing(t, s))
}
