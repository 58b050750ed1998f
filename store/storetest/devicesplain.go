package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testDevicesAndPings: a ping without a device raises the user's time and makes no record.
func testDevicesAndPings(t *testing.T, s store.Store) {
	require.Equal(t, here(base), ping(t, s, "alice", base))
	requireNoDevices(t, s, "alice")
	record(t, s, on("alice", "a", base+1))
	require.Equal(t, here(base+10), ping(t, s, "alice", base+10))
	requireDevices(t, s, "alice", "a")
	require.Equal(t, base+1, devicesOf(t, s, "alice").Records[0].At, "the ping is of no device")
	require.Equal(t, here(base+10), recordOne(t, s, bye("alice", "a", base+5)), "before the ping")
	require.Equal(t, left(base+11), recordOne(t, s, bye("alice", "a", base+11)), "nothing else keeps the user present")
	require.Equal(t, left(base+11), ping(t, s, "alice", base+11), "left beats present")
	require.Equal(t, here(base+12), ping(t, s, "alice", base+12))

	record(t, s, on("bob", "a", base))
	ping(t, s, "bob", base+2*window)
	requireDevices(t, s, "bob")
	require.Equal(t, left(base+2*window), recordOne(t, s, bye("bob", "b", base+2*window)),
		"the device was heard too long ago")
	requireDevices(t, s, "bob", "b")
}

// testDevicesAndLeaves: a leave without a device is of all devices, up to its time.
func testDevicesAndLeaves(t *testing.T, s store.Store) {
	record(t, s, on("alice", "a", base), on("alice", "b", base+5))
	require.Equal(t, left(base+10), leave(t, s, "alice", base+10))
	requireLive(t, s, "alice")
	requireDevices(t, s, "alice", "b", "a")
	require.Equal(t, here(base+11), ping(t, s, "alice", base+11))
	requireLive(t, s, "alice")
	require.Equal(t, left(base+12), recordOne(t, s, bye("alice", "c", base+12)), "a and b are gone")
	require.Equal(t, left(base+12), recordOne(t, s, on("alice", "a", base+9)), "from before the leave")
	require.Equal(t, here(base+12), recordOne(t, s, on("alice", "a", base+11)), "from after the leave")
	requireLive(t, s, "alice", "a")

	record(t, s, on("bob", "a", base), on("bob", "b", base+5))
	require.Equal(t, here(base+5), leave(t, s, "bob", base+3), "only a was heard before")
	requireLive(t, s, "bob", "b")
	require.Equal(t, left(base+6), recordOne(t, s, bye("bob", "b", base+6)))

	write(s.Leave).in(t, ns, base+20, "alice", "bob", "carol", "alice")
	require.Equal(t, []lastseen.State{left(base + 20), left(base + 20), left(base + 20)},
		lookup(t, s, "alice", "bob", "carol"))
	requireLive(t, s, "alice")
	requireLive(t, s, "bob")
	requireLive(t, s, "carol")
}

// testDevicesAfterLeave: a leave counts that came before the first device, also before the first of the namespace.
func testDevicesAfterLeave(t *testing.T, s store.Store) {
	leave(t, s, "alice", base+10)
	for _, user := range []string{"alice", "bob"} {
		require.Equal(t, left(base+10), leave(t, s, user, base+10))
		require.Equal(t, left(base+10), recordOne(t, s, on(user, "a", base+5)))
		requireLive(t, s, user)
		require.Equal(t, left(base+10), recordOne(t, s, on(user, "b", base+10)), "at the leave")
		requireLive(t, s, user)
		require.Equal(t, here(base+11), recordOne(t, s, on(user, "b", base+11)))
		requireLive(t, s, user, "b")
		require.Equal(t, left(base+12), recordOne(t, s, bye(user, "b", base+12)), "a is gone")
	}
}

// testDevicesWindow: an assertion older than the window makes no record, and records are deleted when they are.
func testDevicesWindow(t *testing.T, s store.Store) {
	at := base + 2*window
	record(t, s, on("alice", "a", at))
	require.Equal(t, here(at), recordOne(t, s, on("alice", "older", at-window-1)))
	require.Equal(t, here(at), recordOne(t, s, bye("alice", "older", at-window-1)))
	requireDevices(t, s, "alice", "a")
	require.Equal(t, here(at), recordOne(t, s, on("alice", "at the start", at-window)))
	requireDevices(t, s, "alice", "a", "at the start")
	require.Equal(t, here(at), recordOne(t, s, bye("alice", "gone", at-window+1)))
	requireDevices(t, s, "alice", "a", "gone", "at the start")
	require.Equal(t, here(at+1), recordOne(t, s, on("alice", "b", at+1)))
	requireDevices(t, s, "alice", "b", "a", "gone")
	require.Equal(t, here(at+2), recordOne(t, s, on("alice", "b", at+2)))
	requireDevices(t, s, "alice", "b", "a")
	require.Equal(t, here(at+2*window), recordOne(t, s, on("alice", "c", at+2*window)))
	requireDevices(t, s, "alice", "c")
}

// testDevicesOtherWindow: each call has the window of its time. A longer one brings no records back.
func testDevicesOtherWindow(t *testing.T, s store.Store) {
	ctx := context.Background()
	send := func(window time.Duration, sighting store.DeviceSighting) lastseen.State {
		states, err := s.RecordDevices(ctx, ns, window, []store.DeviceSighting{sighting})
		require.NoError(t, err)
		return states[0]
	}
	send(10*time.Second, on("alice", "a", base))
	require.Equal(t, left(base+20_000), send(10*time.Second, bye("alice", "b", base+20_000)))
	require.Equal(t, left(base+20_001), send(time.Hour, bye("alice", "b", base+20_001)))
	requireDevices(t, s, "alice", "b")

	send(time.Hour, on("bob", "a", base))
	require.Equal(t, here(base+20_000), send(time.Hour, bye("bob", "b", base+20_000)))
	require.Equal(t, left(base+20_000), send(10*time.Second, bye("bob", "b", base+20_000)))
	requireDevices(t, s, "bob", "b")
	for _, window := range []time.Duration{time.Millisecond, 21 * 365 * 24 * time.Hour} {
		require.Equal(t, here(base+20_000), send(window, on("carol", "a", base+20_000)))
		requireDevices(t, s, "carol", "a")
	}
}
