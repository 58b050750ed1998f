package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testDeviceMostRecords: of too many devices, those that left are deleted first, and of these the oldest.
func testDeviceMostRecords(t *testing.T, s store.Store) {
	const all = lastseen.MaxDevices + 8
	name := func(i int) string { return fmt.Sprintf("device-%02d", i) }
	for i := range all {
		event := On("alice", name(i), kit.Base+lastseen.Instant(i))
		event.Meta = fmt.Sprintf(`{"n":%d}`, i)
		event.Gone = i >= 4
		require.Equal(t, kit.Here(event.At), RecordOne(t, s, event), "the first four are still open")
	}
	d := Of(t, s, "alice")
	var want []string
	for i := range lastseen.MaxDevices {
		n := all - 1 - i
		if i >= lastseen.MaxDevices-4 {
			n = lastseen.MaxDevices - 1 - i
		}
		want = append(want, name(n))
		require.Equal(t, fmt.Sprintf(`{"n":%d}`, n), d.Meta[i])
	}
	require.Equal(t, want, ids(d.Records))
	requireLive(t, s, "alice", name(3), name(2), name(1), name(0))

	Record(t, s, On("alice", name(4), kit.Base+100))
	d = Of(t, s, "alice")
	require.Equal(t,
		lastseen.DeviceRecord{ID: name(4), Kind: lastseen.Other, Since: kit.Base + 100, At: kit.Base + 100},
		d.Records[0])
	require.Empty(t, d.Meta[0], "the record was deleted meanwhile")
	require.Len(t, d.Records, lastseen.MaxDevices)

	for i := range all { // of devices that are live, the oldest is deleted
		Record(t, s, On("alice", name(i), kit.Base+200+lastseen.Instant(i)))
	}
	require.NotContains(t, ids(Of(t, s, "alice").Records), name(7))
	require.Equal(t, kit.Here(kit.Base+200+all-1), RecordOne(t, s, On("alice", name(0), kit.Base)),
		"older than the others")
	require.Len(t, Of(t, s, "alice").Live(kit.Base+200+all), lastseen.MaxDevices)
	require.Equal(t, kit.Left(kit.Base+300), kit.Leave(t, s, "alice", kit.Base+300))
	requireLive(t, s, "alice")
}

// oddDeviceIDs returns IDs of records that look like something else to a store. Those of connections are longer than
// those of devices.
func oddDeviceIDs() []string {
	all := []string{
		"a", "A", "a ", " a", "a/b", "a:b", "a|b", "a,b", "a;b", "a\\b", `a"b`, "a'b",
		"{a}", "[a]", "1", "-1", "1e3", "0x1",
		"nil", "null", "true", "%s", "%2F", "é", "e\u0301", "日本", "🙂", "\u00a0",
		strings.Repeat("x", lastseen.MaxDeviceLen),
		strings.Repeat("🙂", lastseen.MaxDeviceLen/4), "\u202e", "\ufffd", "\U0010ffff", "...", "~",
		strings.Repeat("é", lastseen.MaxDeviceLen/2) + "~12345678",
	}
	slices.Sort(all)
	return all
}

// testDeviceIDs: any ID of a device arrives as it was written, and IDs are compared byte for byte.
func testDeviceIDs(t *testing.T, s store.Store) {
	all := oddDeviceIDs()
	for n, page := range slices.Collect(slices.Chunk(all, lastseen.MaxDevices)) {
		user := fmt.Sprint("user", n)
		var batch []store.DeviceEvent
		for i, id := range page {
			batch = append(batch, On(user, id, kit.Base+lastseen.Instant(i)))
		}
		Record(t, s, batch...)
		got := ids(Of(t, s, user).Records)
		slices.Sort(got)
		require.Equal(t, page, got)
		for _, id := range page {
			require.Equal(t, id != page[len(page)-1], !RecordOne(t, s, Bye(user, id, kit.Base+100)).Left, "%q", id)
		}
	}
}

// testDevicesOfUserIDs: any user can have devices, and users with similar IDs have others.
func testDevicesOfUserIDs(t *testing.T, s store.Store) {
	users := kit.OddIDs()
	var batch []store.DeviceEvent
	for i, user := range users {
		batch = append(batch, On(user, fmt.Sprint("device", i), kit.Base))
	}
	Record(t, s, batch...)
	for i, user := range users {
		Require(t, s, user, fmt.Sprint("device", i))
		require.Equal(t, kit.Left(kit.Base+1), RecordOne(t, s, Bye(user, fmt.Sprint("device", i), kit.Base+1)), "%q",
			user)
	}
	for _, user := range users {
		kit.Forget(t, s, user)
		RequireNone(t, s, user)
	}
}

// testDeviceTimes: a device may be active at any time.
func testDeviceTimes(t *testing.T, s store.Store) {
	for _, at := range []lastseen.Instant{
		lastseen.MinInstant, 2, 999, 1000, 100_123_000, kit.Base - 1, kit.Base, kit.Base + 1,
	} {
		user := at.String()
		require.Equal(t, kit.Here(at), RecordOne(t, s, On(user, "a", at)))
		require.Equal(t, kit.Left(at), RecordOne(t, s, Bye(user, "a", at)))
		require.Equal(t, at, Of(t, s, user).Records[0].At)
		require.Equal(t, kit.Here(at), RecordOne(t, s, On(user, "b", at)))
		require.Equal(t, []lastseen.State{kit.Here(at)}, kit.Lookup(t, s, user))
	}
}

// WithMeta returns an event with what the client sent about the device.
func WithMeta(d store.DeviceEvent, meta string) store.DeviceEvent {
	d.Meta = meta
	return d
}

// meta returns what a client sent about a device of a user, and whether there is a record of it.
func meta(t require.TestingT, s store.Store, user, id string) (string, bool) {
	d := Of(t, s, user)
	for i, r := range d.Records {
		if r.ID == id {
			return d.Meta[i], true
		}
	}
	return "", false
}

func requireMeta(t require.TestingT, s store.Store, user, id, want string) {
	got, found := meta(t, s, user, id)
	require.True(t, found, "%s has no device %s", user, id)
	require.Equal(t, want, got, "%s of %s", id, user)
}

// testDeviceMetaLargest: all records of a user can have the largest meta, of any text.
func testDeviceMetaLargest(t *testing.T, s store.Store) {
	all := oddDeviceIDs()[:lastseen.MaxDevices]
	want := map[string]string{}
	var batch []store.DeviceEvent
	for i, id := range all {
		text := []string{"x", "🙂", `\"`, "\u2028", `\u0000`}[i%5]
		room := lastseen.MaxMetaLen - len(`{"":""}`)
		value := strings.Repeat(text, room/len(text))
		want[id] = `{"` + strings.Repeat("k", room-len(value)) + `":"` + value + `"}`
		require.Len(t, want[id], lastseen.MaxMetaLen)
		batch = append(batch, WithMeta(On("alice", id, kit.Base), want[id]))
	}
	Record(t, s, batch...)
	d := Of(t, s, "alice")
	require.Len(t, d.Records, lastseen.MaxDevices)
	for i, r := range d.Records {
		require.Equal(t, want[r.ID], d.Meta[i], "%q", r.ID)
	}
}
