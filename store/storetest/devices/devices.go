// Package devices has the conformance tests of the devices of users.
package devices

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests that stores keep the contract of devices. Run includes it. Each subtest opens its own store.
// The model compares the state and all devices of a user after any pings and leaves of devices and of users, and
// deletions, so there are no other cases of what these do.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Results", testDeviceResults},
		{"Late", testDevicesLate},
		{"Plain/LeaveBefore", testDevicesAfterLeave},
		{"Records/Most", testDeviceMostRecords},
		{"Records/IDs", testDeviceIDs},
		{"Meta/Largest", testDeviceMetaLargest},
		{"Batch", testDeviceBatch},
		{"Batch/Large", testDeviceLargeBatch},
		{"Batch/OneUser", testDeviceBatchOfOneUser},
		{"Ahead", testDevicesAhead},
		{"Times", testDeviceTimes},
		{"UserIDs", testDevicesOfUserIDs},
		{"Namespaces", testDeviceNamespaces},
		{"Reads", testDeviceReads},
		{"Trim", testDevicesTrim},
		{"Trim/Silent", testDevicesTrimKeeps},
		{"Delete", testDevicesDelete},
		{"RemoveEmpty", testDevicesRemoveEmpty},
		{"Concurrent", testDevicesConcurrent},
	})
	t.Run("Model", func(t *testing.T) { testDevicesModel(t, open) })
}

// Window is for how long a device counts in these tests, in milliseconds, and windowTime the same.
const (
	Window     = lastseen.Instant(150_000)
	WindowTime = time.Duration(Window) * time.Millisecond
)

// On returns a ping of a device.
func On(user, id string, at lastseen.Instant) store.DeviceEvent {
	return store.DeviceEvent{User: user, ID: id, Kind: lastseen.Other, At: at}
}

// Bye returns a leave of a device.
func Bye(user, id string, at lastseen.Instant) store.DeviceEvent {
	s := On(user, id, at)
	s.Gone = true
	return s
}

// Record records what devices in the namespace ns asserted.
func Record(t require.TestingT, s store.Store, batch ...store.DeviceEvent) []lastseen.State {
	return RecordIn(t, s, kit.Namespace, batch...)
}

// RecordIn is record in a namespace.
func RecordIn(
	t require.TestingT, s store.Store, namespace string, batch ...store.DeviceEvent,
) []lastseen.State {
	states, err := s.RecordDevices(context.Background(), namespace, WindowTime, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	return states
}

// RecordOne records what one device asserted and returns the user's state.
func RecordOne(t require.TestingT, s store.Store, event store.DeviceEvent) lastseen.State {
	return Record(t, s, event)[0]
}

// Of returns the devices of a user in the namespace ns.
func Of(t require.TestingT, s store.Store, user string) store.UserDevices {
	return In(t, s, kit.Namespace, user)
}

// In is devicesOf in a namespace.
func In(t require.TestingT, s store.Store, namespace, user string) store.UserDevices {
	d, err := s.ReadDevices(context.Background(), namespace, user)
	require.NoError(t, err)
	require.Len(t, d.Meta, len(d.Records))
	for i, r := range d.Records {
		require.True(t, i == 0 || r.At < d.Records[i-1].At || r.At == d.Records[i-1].At && r.ID > d.Records[i-1].ID,
			"the newest first, and those of one time by ID: %+v", d.Records)
		require.GreaterOrEqual(t, r.At, d.State.At.Add(-d.Window), "older than the window")
		require.LessOrEqual(t, r.Since, r.At)
		require.LessOrEqual(t, r.IdleSince, r.At)
		require.True(t, r.Gone || r.At > d.Left, "from before the leave")
		require.False(t, r.Gone && r.IdleSince != 0, "gone, and idle")
	}
	require.LessOrEqual(t, len(d.Records), lastseen.MaxDevices)
	return d
}

// ids returns the IDs of records.
func ids(records []lastseen.DeviceRecord) []string {
	names := []string{}
	for _, r := range records {
		names = append(names, r.ID)
	}
	return names
}

// Require checks that a user has records of these devices, the newest first.
func Require(t require.TestingT, s store.Store, user string, want ...string) {
	require.Equal(t, append([]string{}, want...), ids(Of(t, s, user).Records), user)
}

// requireLive checks which devices of a user count at the user's time.
func requireLive(t require.TestingT, s store.Store, user string, want ...string) {
	d := Of(t, s, user)
	require.Equal(t, append([]string{}, want...), ids(d.Live(d.State.At)), "%s: %+v", user, d)
}

// RequireNone checks that nothing is kept of a user's devices.
func RequireNone(t require.TestingT, s store.Store, user string) {
	d := Of(t, s, user)
	require.Empty(t, d.Records, user)
	require.Zero(t, d.Left, user)
}

// Methods returns the methods of a store that concern devices.
func Methods(s store.Store, ns string) map[string]kit.Method {
	batch := []store.DeviceEvent{On("alice", "tab", kit.Base)}
	return map[string]kit.Method{
		"RecordDevices": func(ctx context.Context) error {
			return kit.ErrorOf(s.RecordDevices(ctx, ns, WindowTime, batch))
		},
		"ReadDevices": func(ctx context.Context) error { return kit.ErrorOf(s.ReadDevices(ctx, ns, "alice")) },
	}
}

func testDeviceResults(t *testing.T, s store.Store) {
	require.Equal(t, kit.Here(kit.Base), RecordOne(t, s, On("alice", "a", kit.Base)))
	require.Equal(t, kit.Here(kit.Base), RecordOne(t, s, On("alice", "a", kit.Base-1)),
		"a late ping returns what is stored")
	require.Equal(t, kit.Here(kit.Base), RecordOne(t, s, On("alice", "b", kit.Base-1)),
		"a late ping returns what is stored")
	require.Equal(t, kit.Here(kit.Base+1), RecordOne(t, s, On("alice", "b", kit.Base+1)))
	require.Equal(t, kit.Here(kit.Base+1), RecordOne(t, s, On("alice", "b", kit.Base+1)), "once more")
	require.Equal(t, kit.Left(kit.Base), RecordOne(t, s, Bye("bob", "a", kit.Base)), "never seen before")
	require.Equal(t, kit.Left(kit.Base), RecordOne(t, s, Bye("bob", "a", kit.Base)), "once more")
	require.Equal(t, kit.Here(kit.Base+1), RecordOne(t, s, On("bob", "a", kit.Base+1)))

	require.Equal(t, []lastseen.State{kit.Here(kit.Base + 1), kit.Here(kit.Base + 1)}, kit.Lookup(t, s, "alice", "bob"))
	require.Equal(t,
		[]store.Record{{User: "bob", State: kit.Here(kit.Base + 1)}, {User: "alice", State: kit.Here(kit.Base + 1)}},
		kit.List(t, s, store.ListQuery{Ranges: kit.Everyone(), Limit: 10}))
	require.Equal(t, []int64{2, 0}, kit.Count(t, s, kit.Everyone()...))
	newest, err := s.Newest(context.Background(), kit.Namespace)
	require.NoError(t, err)
	require.Equal(t, kit.Base+1, newest)
	require.Empty(t, Record(t, s), "a batch without devices")
}

// Claim is what somebody asserts about one user.
type Claim struct {
	ID   string // of the device; empty for none
	At   lastseen.Instant
	Gone bool
}

// Event returns the claim as one of a user's device.
func (c Claim) Event(user string) store.DeviceEvent {
	event := On(user, c.ID, c.At)
	event.Gone = c.Gone
	return event
}

// State returns the state by the rule: it knows all claims, and nothing of their order.
func State(claims []Claim) (s lastseen.State) {
	var everywhere lastseen.Instant // the newest leave without a device
	devices := map[string]Claim{}
	for _, c := range claims {
		s.At = max(s.At, c.At)
		last, known := devices[c.ID]
		switch {
		case c.ID == "" && c.Gone:
			everywhere = max(everywhere, c.At)
		case c.ID != "" && (!known || c.At > last.At || c.At == last.At && c.Gone):
			devices[c.ID] = c
		}
	}
	s.Left = everywhere == s.At && s.Known()
	for _, last := range devices {
		s.Left = s.Left || last.Gone && last.At == s.At
	}
	return lastseen.State{At: s.At, Left: s.Left && len(Alive(claims, s.At)) == 0}
}

// Alive returns the devices that have not left and were active within the window before a time.
func Alive(claims []Claim, at lastseen.Instant) map[string]Claim {
	devices, everywhere := map[string]Claim{}, lastseen.Instant(0)
	for _, c := range claims {
		if c.ID == "" && c.Gone {
			everywhere = max(everywhere, c.At)
		}
		if last, known := devices[c.ID]; !known || c.At > last.At || c.At == last.At && c.Gone {
			devices[c.ID] = c
		}
	}
	delete(devices, "")
	for id, last := range devices {
		if last.Gone || last.At <= everywhere || last.At < at-Window {
			delete(devices, id)
		}
	}
	return devices
}

// testDevicesLate: what arrives late changes who is present, but moves no time back. A leave is one of all devices.
func testDevicesLate(t *testing.T, s store.Store) {
	here, left := kit.Here(kit.Base+100), kit.Left(kit.Base+100)
	require.Equal(t, left, RecordOne(t, s, Bye("alice", "a", kit.Base+100)))
	require.Equal(t, here, RecordOne(t, s, On("alice", "b", kit.Base+50)), "present again, at the same time")
	require.Equal(t, left, RecordOne(t, s, Bye("alice", "b", kit.Base+60)), "left again, at the same time")
	require.Equal(t, left, RecordOne(t, s, On("alice", "b", kit.Base+60)), "at its leave")
	require.Equal(t, here, RecordOne(t, s, On("alice", "b", kit.Base+61)), "after its leave")
	require.Equal(t, left, kit.Leave(t, s, "alice", kit.Base+61), "all devices")
	require.Equal(t, here, RecordOne(t, s, On("alice", "b", kit.Base+62)))
	require.Equal(t, left, kit.Leave(t, s, "alice", kit.Base+100), "all devices")
	require.Equal(t, left, RecordOne(t, s, On("alice", "c", kit.Base+100)), "at the leave")
}

// testDevicesAfterLeave: a leave counts that came before the first device, also before the first of the namespace.
func testDevicesAfterLeave(t *testing.T, s store.Store) {
	kit.Leave(t, s, "alice", kit.Base+10)
	for _, user := range []string{"alice", "bob"} {
		require.Equal(t, kit.Left(kit.Base+10), kit.Leave(t, s, user, kit.Base+10))
		require.Equal(t, kit.Left(kit.Base+10), RecordOne(t, s, On(user, "a", kit.Base+5)))
		requireLive(t, s, user)
		require.Equal(t, kit.Left(kit.Base+10), RecordOne(t, s, On(user, "b", kit.Base+10)), "at the leave")
		requireLive(t, s, user)
		require.Equal(t, kit.Here(kit.Base+11), RecordOne(t, s, On(user, "b", kit.Base+11)))
		requireLive(t, s, user, "b")
		require.Equal(t, kit.Left(kit.Base+12), RecordOne(t, s, Bye(user, "b", kit.Base+12)), "a is gone")
	}
}
