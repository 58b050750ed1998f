package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (f *feed) device(batch ...store.DeviceSighting) {
	recordIn(f.t, f.s, f.namespace, batch...)
}

// testChangesOfDevices: what devices assert is a change when it changes what is published of the user.
func testChangesOfDevices(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start
	f.device(on("alice", "a", at))
	require.Equal(t, []store.Change{entry("alice", neverSeen(), isHere(at, lastseen.Green))}, f.read())
	f.device(on("alice", "b", at+1))
	f.device(on("alice", "a", at-1))
	f.device(bye("alice", "a", at+2))
	f.device(on("alice", "b", at+3))
	require.Empty(t, f.read(), "one of two tabs")
	f.device(bye("alice", "b", at+4))
	require.Equal(t, []store.Change{entry("alice", isHere(at+3, lastseen.Green), hasLeft(at+4))}, f.read())
	require.Equal(t, hasLeft(at+4), f.published("alice"))
	f.device(bye("alice", "b", at+4), bye("alice", "a", at+3))
	f.ping("alice", at+4)
	require.Empty(t, f.read(), "she left already")
	f.device(on("alice", "b", at+5))
	require.Equal(t, []store.Change{entry("alice", hasLeft(at+4), isHere(at+5, lastseen.Green))}, f.read())
	f.leave("alice", at+6)
	require.Equal(t, []store.Change{entry("alice", isHere(at+5, lastseen.Green), hasLeft(at+6))}, f.read())

	f.device(bye("bob", "a", at))
	require.Empty(t, f.read(), "a goodbye of a user who was never seen")
	require.Equal(t, hasLeft(at), f.published("bob"))
	f.device(on("bob", "a", at+1))
	require.Equal(t, []store.Change{entry("bob", hasLeft(at), isHere(at+1, lastseen.Green))}, f.read())
	f.device(on("carol", "a", f.decaysGrey(0)))
	require.Empty(t, f.read(), "she was grey, and is")
	forget(t, s, "alice")
	require.Equal(t, []store.Change{entry("alice", hasLeft(at+6), neverSeen())}, f.read())
	f.device(bye("alice", "b", at+7))
	require.Empty(t, f.read(), "a goodbye of a user who was never seen")
}

// testChangesOfHeartbeats: pings of a device that is known are changes, too.
func testChangesOfHeartbeats(t *testing.T, s store.Store) {
	f := begin(t, s)
	yellow, grey := f.decaysGrey(500), f.decaysGrey(-500)
	for user, at := range map[string]lastseen.Instant{"green": f.start, "yellow": yellow, "grey": grey, "old": base} {
		f.device(on(user, "a", at))
		f.read()
		f.device(on(user, "a", at+1))
		require.Empty(t, f.read(), "the time alone changed")
		f.device(on(user, "a", f.start+2))
		if user == "green" {
			require.Empty(t, f.read(), "the time alone changed")
			continue
		}
		was := isHere(at+1, normal.Presence("", here(at+1), f.start).Status)
		require.Equal(t, []store.Change{entry(user, was, isHere(f.start+2, lastseen.Green))}, f.read())
	}
	decays := f.decaysYellow(100)
	f.device(on("decays", "a", decays))
	f.read()
	require.Equal(t, 1, f.sweep(100))
	f.read()
	f.device(on("decays", "a", decays+1))
	require.Equal(t, []store.Change{entry("decays", isHere(decays, lastseen.Yellow), isHere(decays+1, lastseen.Green))},
		f.read())
	require.Equal(t, 1, f.sweep(101))
	f.read()
	f.device(on("decays", "a", f.start))
	require.Equal(t, []store.Change{
		entry("decays", isHere(decays+1, lastseen.Yellow), isHere(f.start, lastseen.Green)),
	}, f.read())
}

// testChangesOfLateDevices: a device that arrives late makes a user present again, or leave again, at the same time.
func testChangesOfLateDevices(t *testing.T, s store.Store) {
	f := begin(t, s)
	for user, at := range map[string]lastseen.Instant{
		"green": f.start, "yellow": f.decaysGrey(100), "grey": f.decaysGrey(-100), "long ago": base,
	} {
		status := normal.Presence("", here(at), f.start).Status
		f.device(on(user, "a", at-1), bye(user, "a", at))
		f.read()
		require.Equal(t, hasLeft(at), f.published(user))
		for n := range lastseen.Instant(3) {
			f.device(on(user, "b", at-20+2*n))
			require.Equal(t, []store.Change{entry(user, hasLeft(at), isHere(at, status))}, f.read(), user)
			require.Equal(t, isHere(at, status), f.published(user))
			f.device(on(user, "b", at-20+2*n))
			require.Empty(t, f.read(), "once more")
			f.device(bye(user, "b", at-19+2*n))
			require.Equal(t, []store.Change{entry(user, isHere(at, status), hasLeft(at))}, f.read(), user)
			require.Equal(t, hasLeft(at), f.published(user))
		}
		f.device(on(user, "b", at-1))
		require.Equal(t, []store.Change{entry(user, hasLeft(at), isHere(at, status))}, f.read(), user)
		f.leave(user, at-1)
		require.Equal(t, []store.Change{entry(user, isHere(at, status), hasLeft(at))}, f.read(), user)
	}
}

// testChangesOfDeviceDecays: users with devices decay by their own time, whatever records they have.
func testChangesOfDeviceDecays(t *testing.T, s store.Store) {
	f := begin(t, s)
	yellow, grey := f.decaysYellow(100), f.decaysGrey(200)
	f.device(on("yellow", "a", yellow), on("left", "a", yellow), bye("left", "a", yellow),
		on("grey", "a", grey), bye("again", "a", grey))
	f.device(on("again", "b", grey-5), bye("grey", "b", grey-1))
	f.read()
	require.Equal(t, 1, f.sweep(150))
	require.Equal(t, []store.Change{entry("yellow", isHere(yellow, lastseen.Green), isHere(yellow, lastseen.Yellow))},
		f.read())
	require.Equal(t, 2, f.sweep(300))
	require.Equal(t, map[string][]store.Change{
		"grey":  {entry("grey", isHere(grey, lastseen.Yellow), isHere(grey, lastseen.Grey))},
		"again": {entry("again", isHere(grey, lastseen.Yellow), isHere(grey, lastseen.Grey))},
	}, byUser(f.read()), "one that is present again decays")
	f.device(bye("yellow", "a", yellow+1), bye("again", "b", grey-4), on("grey", "c", f.start))
	require.Equal(t, map[string][]store.Change{
		"yellow": {entry("yellow", isHere(yellow, lastseen.Yellow), hasLeft(yellow+1))},
		"again":  {entry("again", isHere(grey, lastseen.Grey), hasLeft(grey))},
		"grey":   {entry("grey", isHere(grey, lastseen.Grey), isHere(f.start, lastseen.Green))},
	}, byUser(f.read()))
	require.Zero(t, f.sweep(maxPlayed))
	require.Empty(t, f.read(), "users who left do not decay")
}

// testChangesOfDeviceBatch: the entries of one call continue from each other.
func testChangesOfDeviceBatch(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start
	f.device(on("alice", "a", at), on("bob", "a", at), on("carol", "a", at), on("bob", "b", at))
	got := byUser(f.read())
	require.Len(t, got, 3)
	for user, entries := range got {
		require.Equal(t, []store.Change{entry(user, neverSeen(), isHere(at, lastseen.Green))}, entries)
	}
	f.device(
		bye("alice", "a", at+1), on("bob", "a", at+1), bye("carol", "a", at+1), on("alice", "b", at),
		bye("bob", "b", at+1), bye("alice", "b", at+2), on("alice", "c", at+3),
	)
	got = byUser(f.read())
	require.Equal(t, []store.Change{entry("carol", isHere(at, lastseen.Green), hasLeft(at+1))}, got["carol"])
	require.Empty(t, got["bob"])
	requireChain(t, isHere(at, lastseen.Green), got["alice"])
	require.Equal(t, isHere(at+3, lastseen.Green), f.published("alice"))

	const users = 1500
	batch := make([]store.DeviceSighting, 0, 2*users)
	for i := range users {
		user := fmt.Sprint("user", i)
		batch = append(batch, on(user, "a", at), bye(user, "b", at+1))
	}
	f.device(batch...)
	got = byUser(f.read())
	require.Len(t, got, users)
	for user, entries := range got {
		requireChain(t, neverSeen(), entries)
		require.Equal(t, lastseen.Green, entries[len(entries)-1].Status, user)
	}
}
