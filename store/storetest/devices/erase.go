package devices

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testDevicesTrim: Trim deletes the records of the users that it deletes, and no others.
func testDevicesTrim(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	old, fresh := start-60*kit.Minute, start-10*kit.Minute
	var batch []store.DeviceEvent
	names := func(prefix string) (users []string) {
		for i := range 50 {
			users = append(users, fmt.Sprint(prefix, i))
		}
		return users
	}
	for i, user := range names("old") {
		batch = append(batch, On(user, "a", old), WithMeta(On(user, "b", old), "{}"))
		if i%2 == 0 {
			batch = append(batch, Bye(user, "a", old), Bye(user, "b", old))
		}
	}
	for _, user := range names("fresh") {
		batch = append(batch, On(user, "a", fresh-1000), Bye(user, "b", fresh))
	}
	Record(t, s, batch...)
	kit.Ping(t, s, "no device", old)
	require.Equal(t, store.TrimResult{Deleted: 51}, kit.Trim(t, s, kit.Namespace, start-30*kit.Minute, true))
	for _, user := range names("old") {
		RequireNone(t, s, user)
	}
	for _, user := range names("fresh") {
		requireLive(t, s, user, "a")
	}
	require.Equal(t, kit.Left(old), RecordOne(t, s, Bye("old1", "c", old)), "nothing from before counts")
	require.Equal(t, kit.Here(old), RecordOne(t, s, On("old1", "b", old)))
	requireMeta(t, s, "old1", "b", "")

	require.Equal(t, store.TrimResult{Deleted: 51}, kit.Trim(t, s, kit.Namespace, start, true))
	for _, user := range slices.Concat(names("fresh"), names("old")) {
		RequireNone(t, s, user)
	}
	require.Empty(t, kit.Remaining(t, s))
	require.Equal(t, kit.Left(fresh), RecordOne(t, s, Bye("fresh1", "c", fresh)), "nothing from before counts")
}

// testDevicesTrimKeeps: a user whose devices are old stays as long as the user's own time is not.
func testDevicesTrimKeeps(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	Record(t, s, On("alice", "a", start-60*kit.Minute), On("bob", "a", start-60*kit.Minute))
	kit.Ping(t, s, "alice", start-10*kit.Minute)
	require.Equal(t, store.TrimResult{Deleted: 1}, kit.Trim(t, s, kit.Namespace, start-30*kit.Minute, true))
	require.Equal(t, []string{"alice"}, kit.Remaining(t, s))
	require.Equal(t, kit.Here(start-10*kit.Minute), Of(t, s, "alice").State)
	RequireNone(t, s, "bob")
}

// testDevicesDelete: a namespace that exists again after it was deleted has no devices.
func testDevicesDelete(t *testing.T, s store.Store) {
	ctx := context.Background()
	Record(t, s, WithMeta(On("alice", "a", kit.Base), "{}"), On("bob", "a", kit.Base))
	RecordIn(t, s, "other", On("alice", "a", kit.Base))
	require.NoError(t, s.DeleteNamespace(ctx, kit.Namespace))
	require.NoError(t, s.DeleteNamespace(ctx, kit.Namespace))
	RequireNone(t, s, "alice")
	require.Equal(t, []string{"a"}, ids(In(t, s, "other", "alice").Records))
	require.Equal(t, []store.NamespaceInfo{{Name: "other", Newest: kit.Base}}, kit.Namespaces(t, s, 10))

	require.Equal(t, kit.Here(kit.Base-9), kit.Ping(t, s, "alice", kit.Base-9))
	RequireNone(t, s, "alice")
	require.Equal(t, kit.Left(kit.Base-8), kit.Leave(t, s, "alice", kit.Base-8))
	require.Equal(t, kit.Here(kit.Base-7), RecordOne(t, s, On("alice", "a", kit.Base-7)))
	requireMeta(t, s, "alice", "a", "")
	require.Equal(t, kit.Left(kit.Base-6), RecordOne(t, s, Bye("bob", "b", kit.Base-6)), "nothing from before counts")
}

// testDevicesRemoveEmpty: a namespace whose users are forgotten can be removed, and used again.
func testDevicesRemoveEmpty(t *testing.T, s store.Store) {
	Record(t, s, WithMeta(On("alice", "a", kit.Base), "{}"), On("bob", "a", kit.Base))
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	kit.Forget(t, s, "alice", "bob")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Empty(t, kit.Existing(t, s))
	require.Equal(t, kit.Left(kit.Base-1), RecordOne(t, s, Bye("alice", "b", kit.Base-1)), "nothing from before counts")
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace, Newest: kit.Base - 1}}, kit.Namespaces(t, s, 10))
	Require(t, s, "alice", "b")
}

// Survive checks that everything about devices is there after a restart of the store, however often.
func Survive(t *testing.T, b kit.Breakable) {
	t.Helper()
	Record(t, b, WithMeta(On("alice", "a", kit.Base), `{"name":"é"}`), Bye("alice", "b", kit.Base+1))
	Record(t, b, store.DeviceEvent{
		User: "bob", ID: "x", Kind: lastseen.Mobile, At: kit.Base, Idle: kit.Base - 1, Meta: `{"app":1}`,
	})
	Record(t, b, On("carol", "a", kit.Base), On("left", "a", kit.Base), On("gone", "a", kit.Base),
		On("back", "a", kit.Base))
	kit.Leave(t, b, "left", kit.Base+5)
	kit.Forget(t, b, "gone", "back")
	Record(t, b, On("back", "b", kit.Base+1))
	kit.Ping(t, b, "plain", kit.Base)
	names := []string{"alice", "bob", "carol", "left", "gone", "back", "plain"}
	want, states := map[string]store.UserDevices{}, kit.Lookup(t, b, names...)
	for _, user := range names {
		want[user] = Of(t, b, user)
	}
	for n := range 3 {
		b.Store = b.Restart()
		require.Equal(t, states, kit.Lookup(t, b, names...))
		for _, user := range names {
			require.Equal(t, want[user], Of(t, b, user), "%s after restart %d", user, n+1)
		}
		require.Equal(t, kit.Left(kit.Base+5), RecordOne(t, b, On("left", "c", kit.Base+5-lastseen.Instant(n))),
			"the leave counts")
		requireLive(t, b, "left")
		want["left"] = Of(t, b, "left")
	}
	require.Equal(t, kit.Here(kit.Base+10), RecordOne(t, b, Bye("alice", "b", kit.Base+10)), "a counts")
	require.Equal(t, kit.Left(kit.Base+10), RecordOne(t, b, Bye("carol", "a", kit.Base+10)))
}

// NamespaceLimit checks that writes make no namespaces beyond the limit of a store, which is new and holds two.
// Register is exempt, and a namespace that is deleted makes room.
func NamespaceLimit(t *testing.T, s store.Store) {
	t.Helper()
	ctx := context.Background()
	writes := func(namespace string, want error) {
		t.Helper()
		devices := func(batch ...store.DeviceEvent) error {
			return kit.ErrorOf(s.RecordDevices(ctx, namespace, WindowTime, batch))
		}
		for i, err := range []error{
			kit.ErrorOf(s.Ping(ctx, namespace, kit.Events(kit.Base, "alice"))),
			kit.ErrorOf(s.Leave(ctx, namespace, kit.Events(kit.Base, "alice"))),
			devices(On("alice", "a", kit.Base)), devices(Bye("alice", "a", kit.Base)),
			devices(WithMeta(On("alice", "a", kit.Base), "{}"), On("bob", "a", kit.Base)),
		} {
			require.ErrorIs(t, err, want, i)
		}
	}
	require.NoError(t, s.Register(ctx, []string{"configured"}))
	writes("first", nil)
	writes("second", store.ErrNamespaceLimit)
	require.Equal(t, []string{"configured", "first"}, kit.Existing(t, s))
	require.Zero(t, In(t, s, "second", "alice").State)
	writes("first", nil)
	writes("configured", nil)
	require.NoError(t, s.Register(ctx, []string{"also configured", "and this"}))
	writes("second", store.ErrNamespaceLimit)
	for _, name := range []string{"first", "also configured", "and this"} {
		require.NoError(t, s.DeleteNamespace(ctx, name))
	}
	writes("second", nil)
	writes("third", store.ErrNamespaceLimit)
	require.NoError(t, s.Forget(ctx, "third", "alice"))
	for _, user := range []string{"alice", "bob"} {
		require.NoError(t, s.Forget(ctx, "second", user))
	}
	require.True(t, kit.RemoveEmpty(t, s, "second"))
	writes("third", nil)
}
