package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testDeviceRecords: everything about a device arrives as it was written.
func testDeviceRecords(t *testing.T, s store.Store) {
	for i, kind := range lastseen.DeviceKinds() {
		at := base + lastseen.Instant(i)
		user := string(kind)
		sighting := store.DeviceSighting{
			User: user, ID: "a", Kind: kind, At: at, Idle: at - 500, Meta: `{"app":"` + user + `"}`,
		}
		recordOne(t, s, sighting)
		want := lastseen.DeviceRecord{ID: "a", Kind: kind, Since: at, At: at, IdleSince: at - 500}
		requireDevice(t, s, user, want, sighting.Meta)

		sighting.At, sighting.Idle, sighting.Gone, sighting.Meta = at+1000, 0, true, ""
		recordOne(t, s, sighting)
		want.At, want.IdleSince, want.Gone = at+1000, 0, true
		requireDevice(t, s, user, want, `{"app":"`+user+`"}`)
		require.Equal(t, left(at+1000), devicesOf(t, s, user).State)
	}
}

// requireDevice checks the only device of a user.
func requireDevice(t require.TestingT, s store.Store, user string, want lastseen.DeviceRecord, meta string) {
	d := devicesOf(t, s, user)
	require.Equal(t, []lastseen.DeviceRecord{want}, d.Records)
	require.Equal(t, []string{meta}, d.Meta)
	require.Equal(t, windowTime, d.Window)
}

// testDeviceSince: a record has the time at which it was heard first, as long as it is kept.
func testDeviceSince(t *testing.T, s store.Store) {
	since := func() lastseen.Instant { return devicesOf(t, s, "alice").Records[0].Since }
	record(t, s, on("alice", "a", base))
	record(t, s, on("alice", "a", base+10))
	require.Equal(t, base, since())
	record(t, s, on("alice", "a", base-10))
	require.Equal(t, base-10, since(), "heard earlier, and reported later")
	record(t, s, bye("alice", "a", base+20))
	record(t, s, on("alice", "a", base+30))
	require.Equal(t, base-10, since(), "a goodbye ends no record")
	record(t, s, on("alice", "b", base+2*window))
	record(t, s, on("alice", "a", base+2*window+1))
	require.Equal(t, base+2*window+1, since(), "the record was deleted meanwhile")
}

// testDeviceLatest: a record has what its newest assertion said. At the same time, a goodbye counts.
func testDeviceLatest(t *testing.T, s store.Store) {
	kinds := func(kind lastseen.DeviceKind, idle lastseen.Instant, d store.DeviceSighting) store.DeviceSighting {
		d.Kind, d.Idle = kind, idle
		return d
	}
	latest := func() lastseen.DeviceRecord {
		d := devicesOf(t, s, "alice")
		require.Len(t, d.Records, 1)
		return d.Records[0]
	}
	record(t, s, kinds(lastseen.Web, base-5, on("alice", "a", base)))
	record(t, s, kinds(lastseen.Mobile, base-9, on("alice", "a", base-1)))
	require.Equal(t, lastseen.DeviceRecord{
		ID: "a", Kind: lastseen.Web, Since: base - 1, At: base, IdleSince: base - 9,
	}, latest())
	record(t, s, kinds(lastseen.Desktop, 0, bye("alice", "a", base)))
	want := lastseen.DeviceRecord{ID: "a", Kind: lastseen.Desktop, Since: base - 1, At: base, Gone: true}
	require.Equal(t, want, latest())
	record(t, s, kinds(lastseen.Web, base-5, on("alice", "a", base)))
	require.Equal(t, want, latest())
	record(t, s, kinds(lastseen.Service, 0, on("alice", "a", base+1)))
	want.Kind, want.At, want.Gone = lastseen.Service, base+1, false
	require.Equal(t, want, latest())
}

// testDeviceIdle: a device is idle since it first said so, until it says that it is not.
func testDeviceIdle(t *testing.T, s store.Store) {
	steps := []struct {
		at, idle, want lastseen.Instant
		why            string
	}{
		{10, 9, 9, "idle"},
		{20, 20, 9, "still idle"},
		{30, 0, 0, "active"},
		{25, 8, 0, "late"},
		{40, 38, 38, "idle again"},
		{50, 45, 38, "still idle"},
		{49, 30, 30, "idle for longer, as was reported late"},
		{60, 70, 30, "idle since later than now"},
		{70, 0, 0, "active"},
		{80, 90, 80, "idle since later than now"},
	}
	for _, step := range steps {
		sighting := on("alice", "a", base+step.at)
		if step.idle != 0 {
			sighting.Idle = base + step.idle
		}
		recordOne(t, s, sighting)
		want := step.want
		if want != 0 {
			want += base
		}
		require.Equal(t, want, devicesOf(t, s, "alice").Records[0].IdleSince, "%s: %+v", step.why, step)
	}
	leave(t, s, "alice", base+100)
	require.Zero(t, devicesOf(t, s, "alice").Records[0].IdleSince)
	require.True(t, devicesOf(t, s, "alice").Records[0].Gone)
}

// testDeviceMostRecords: of too many devices, those that were heard last are kept.
func testDeviceMostRecords(t *testing.T, s store.Store) {
	const extra = 8
	name := func(i int) string { return fmt.Sprintf("device-%02d", i) }
	for i := range lastseen.MaxDevices + extra {
		sighting := on("alice", name(i), base+lastseen.Instant(i))
		sighting.Meta = fmt.Sprintf(`{"n":%d}`, i)
		sighting.Gone = i%5 == 0
		record(t, s, sighting)
	}
	d := devicesOf(t, s, "alice")
	require.Len(t, d.Records, lastseen.MaxDevices)
	for k, r := range d.Records {
		i := lastseen.MaxDevices + extra - 1 - k
		require.Equal(t, name(i), r.ID)
		require.Equal(t, base+lastseen.Instant(i), r.At)
		require.Equal(t, i%5 == 0, r.Gone, "devices that are gone are kept, too")
		require.Equal(t, fmt.Sprintf(`{"n":%d}`, i), d.Meta[k])
	}

	require.Equal(t, here(base+39), recordOne(t, s, on("alice", name(0), base)), "older than the others")
	require.NotContains(t, ids(devicesOf(t, s, "alice").Records), name(0))
	record(t, s, on("alice", name(1), base+100))
	d = devicesOf(t, s, "alice")
	require.Equal(t, lastseen.DeviceRecord{ID: name(1), Kind: lastseen.Other, Since: base + 100, At: base + 100},
		d.Records[0])
	require.Empty(t, d.Meta[0], "the record was deleted meanwhile")
	require.Len(t, d.Records, lastseen.MaxDevices)
	require.NotContains(t, ids(d.Records), name(extra))
	require.Equal(t, left(base+101), leave(t, s, "alice", base+101))
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
		var batch []store.DeviceSighting
		for i, id := range page {
			batch = append(batch, on(user, id, base+lastseen.Instant(i)))
		}
		record(t, s, batch...)
		got := ids(devicesOf(t, s, user).Records)
		slices.Sort(got)
		require.Equal(t, page, got)
		for _, id := range page {
			require.Equal(t, id != page[len(page)-1], !recordOne(t, s, bye(user, id, base+100)).Left, "%q", id)
		}
	}
}

// testDevicesOfUserIDs: any user can have devices, and users with similar IDs have others.
func testDevicesOfUserIDs(t *testing.T, s store.Store) {
	users := oddIDs()
	var batch []store.DeviceSighting
	for i, user := range users {
		batch = append(batch, on(user, fmt.Sprint("device", i), base))
	}
	record(t, s, batch...)
	for i, user := range users {
		requireDevices(t, s, user, fmt.Sprint("device", i))
		require.Equal(t, left(base+1), recordOne(t, s, bye(user, fmt.Sprint("device", i), base+1)), "%q", user)
	}
	for _, user := range users {
		forget(t, s, user)
		requireNoDevices(t, s, user)
	}
}

// testDeviceTimes: a device may be heard at any time.
func testDeviceTimes(t *testing.T, s store.Store) {
	for _, at := range []lastseen.Instant{lastseen.MinInstant, 2, 999, 1000, 100_123_000, base - 1, base, base + 1} {
		user := at.String()
		require.Equal(t, here(at), recordOne(t, s, on(user, "a", at)))
		require.Equal(t, left(at), recordOne(t, s, bye(user, "a", at)))
		require.Equal(t, at, devicesOf(t, s, user).Records[0].At)
		require.Equal(t, here(at), recordOne(t, s, on(user, "b", at)))
		require.Equal(t, []lastseen.State{here(at)}, lookup(t, s, user))
	}
}
