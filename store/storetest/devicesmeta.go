package storetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// withMeta returns a sighting with what the client sent about the device.
func withMeta(d store.DeviceSighting, meta string) store.DeviceSighting {
	d.Meta = meta
	return d
}

// meta returns what a client sent about a device of a user, and whether there is a record of it.
func meta(t require.TestingT, s store.Store, user, id string) (string, bool) {
	d := devicesOf(t, s, user)
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

// testDeviceMeta: meta stays until the device sends another.
func testDeviceMeta(t *testing.T, s store.Store) {
	record(t, s, on("alice", "a", base), withMeta(on("alice", "b", base), `{"name":"b"}`))
	requireMeta(t, s, "alice", "a", "")
	requireMeta(t, s, "alice", "b", `{"name":"b"}`)
	record(t, s, withMeta(on("alice", "a", base+1), `{"name":"a"}`), on("alice", "b", base+1))
	requireMeta(t, s, "alice", "a", `{"name":"a"}`)
	requireMeta(t, s, "alice", "b", `{"name":"b"}`)
	record(t, s, bye("alice", "a", base+2), withMeta(bye("alice", "b", base+2), `{}`))
	requireMeta(t, s, "alice", "a", `{"name":"a"}`)
	requireMeta(t, s, "alice", "b", `{}`)
	ping(t, s, "alice", base+3)
	leave(t, s, "alice", base+4)
	record(t, s, on("alice", "a", base+5), withMeta(on("bob", "a", base), `{"of":"bob"}`))
	requireMeta(t, s, "alice", "a", `{"name":"a"}`)
	requireMeta(t, s, "bob", "a", `{"of":"bob"}`)
}

// testDeviceKind: an assertion without a kind leaves what is stored as it is. A record made without one is Other.
func testDeviceKind(t *testing.T, s store.Store) {
	say := func(item store.DeviceSighting, kind, want lastseen.DeviceKind) {
		t.Helper()
		item.Kind = kind
		record(t, s, item)
		for _, r := range devicesOf(t, s, item.User).Records {
			if r.ID == item.ID {
				require.Equal(t, want, r.Kind)
			}
		}
	}
	for _, id := range []string{"a", "x a"} { // one ends in the other
		say(on("alice", id, base), "", lastseen.Other)
		say(on("alice", id, base+1), lastseen.Desktop, lastseen.Desktop)
		say(on("alice", id, base+2), "", lastseen.Desktop)
		say(bye("alice", id, base+3), "", lastseen.Desktop)
		say(on("alice", id, base+4), "", lastseen.Desktop)
	}
	say(on("alice", "a", base+5), "", lastseen.Desktop)
	say(on("alice", "a", base+6), lastseen.Mobile, lastseen.Mobile)
	say(on("alice", "x a", base+7), "", lastseen.Desktop)
	say(bye("bob", "a", base), "", lastseen.Other)
}

// testDeviceMetaDeleted: what is not in a record any more does not come back with another one of the same ID.
func testDeviceMetaDeleted(t *testing.T, s store.Store) {
	record(t, s, withMeta(on("alice", "a", base), `{"old":1}`))
	record(t, s, on("alice", "b", base+window+1))
	record(t, s, on("alice", "a", base+window+2))
	requireMeta(t, s, "alice", "a", "")

	record(t, s, withMeta(on("alice", "late", base), `{"old":1}`))
	_, found := meta(t, s, "alice", "late")
	require.False(t, found, "older than the window")
	record(t, s, on("alice", "late", base+window+3))
	requireMeta(t, s, "alice", "late", "")

	record(t, s, withMeta(on("carol", "a", base), `{"old":1}`))
	record(t, s, withMeta(on("carol", "c", base), `{"old":1}`), on("carol", "b", base+window+1),
		on("carol", "a", base+window+2), on("carol", "c", base+window+3))
	requireMeta(t, s, "carol", "a", "")
	requireMeta(t, s, "carol", "c", "")

	record(t, s, withMeta(on("bob", "a", base), `{"old":1}`))
	forget(t, s, "bob")
	record(t, s, on("bob", "a", base))
	requireMeta(t, s, "bob", "a", "")
}

// testDeviceMetaLargest: all records of a user can have the largest meta, of any text.
func testDeviceMetaLargest(t *testing.T, s store.Store) {
	all := oddDeviceIDs()[:lastseen.MaxDevices]
	want := map[string]string{}
	var batch []store.DeviceSighting
	for i, id := range all {
		text := []string{"x", "🙂", `\"`, "\u2028", `\u0000`}[i%5]
		room := lastseen.MaxMetaLen - len(`{"":""}`)
		value := strings.Repeat(text, room/len(text))
		want[id] = `{"` + strings.Repeat("k", room-len(value)) + `":"` + value + `"}`
		require.Len(t, want[id], lastseen.MaxMetaLen)
		batch = append(batch, withMeta(on("alice", id, base), want[id]))
	}
	record(t, s, batch...)
	d := devicesOf(t, s, "alice")
	require.Len(t, d.Records, lastseen.MaxDevices)
	for i, r := range d.Records {
		require.Equal(t, want[r.ID], d.Meta[i], "%q", r.ID)
	}
}
