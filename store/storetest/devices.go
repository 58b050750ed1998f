package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RunDevices tests that stores keep the contract of devices. Run includes it. Each subtest opens a store of its own.
func RunDevices(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Results", testDeviceResults},
		{"Heartbeats", testDeviceHeartbeats},
		{"Heartbeats/Others", testDeviceHeartbeatsOfOthers},
		{"TwoTabs", testDevicesTwoTabs},
		{"Silent", testDevicesSilent},
		{"Late", testDevicesLate},
		{"AnyOrder", testDevicesAnyOrder},
		{"Plain/Ping", testDevicesAndPings},
		{"Plain/Leave", testDevicesAndLeaves},
		{"Plain/LeaveBefore", testDevicesAfterLeave},
		{"Window", testDevicesWindow},
		{"Windows", testDevicesOtherWindow},
		{"Records", testDeviceRecords},
		{"Records/Since", testDeviceSince},
		{"Records/Latest", testDeviceLatest},
		{"Records/Idle", testDeviceIdle},
		{"Records/Most", testDeviceMostRecords},
		{"Records/IDs", testDeviceIDs},
		{"Kind", testDeviceKind},
		{"Meta", testDeviceMeta},
		{"Meta/Deleted", testDeviceMetaDeleted},
		{"Meta/Largest", testDeviceMetaLargest},
		{"Batch", testDeviceBatch},
		{"Batch/Large", testDeviceLargeBatch},
		{"Batch/OneUser", testDeviceBatchOfOneUser},
		{"Ahead", testDevicesAhead},
		{"Times", testDeviceTimes},
		{"UserIDs", testDevicesOfUserIDs},
		{"Namespaces", testDeviceNamespaces},
		{"Reads", testDeviceReads},
		{"Forget", testDevicesForget},
		{"Trim", testDevicesTrim},
		{"Trim/Silent", testDevicesTrimKeeps},
		{"Delete", testDevicesDelete},
		{"RemoveEmpty", testDevicesRemoveEmpty},
		{"CancelledContext", testDevicesCancelled},
		{"Close", testDevicesClosed},
		{"Concurrent", testDevicesConcurrent},
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) { testDevicesModel(t, open) })
}

// window is for how long a device counts in these tests, in milliseconds, and windowTime the same.
const (
	window     = lastseen.Instant(150_000)
	windowTime = time.Duration(window) * time.Millisecond
)

// on returns a ping of a device.
func on(user, id string, at lastseen.Instant) store.DeviceSighting {
	return store.DeviceSighting{User: user, ID: id, Kind: lastseen.Other, At: at}
}

// bye returns a goodbye of a device.
func bye(user, id string, at lastseen.Instant) store.DeviceSighting {
	s := on(user, id, at)
	s.Gone = true
	return s
}

// record records what devices in the namespace ns asserted.
func record(t require.TestingT, s store.Store, batch ...store.DeviceSighting) []lastseen.State {
	return recordIn(t, s, ns, batch...)
}

func recordIn(
	t require.TestingT, s store.Store, namespace string, batch ...store.DeviceSighting,
) []lastseen.State {
	states, err := s.RecordDevices(context.Background(), namespace, windowTime, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	return states
}

// recordOne records what one device asserted and returns the user's state.
func recordOne(t require.TestingT, s store.Store, sighting store.DeviceSighting) lastseen.State {
	return record(t, s, sighting)[0]
}

// devicesOf returns the devices of a user in the namespace ns.
func devicesOf(t require.TestingT, s store.Store, user string) store.UserDevices {
	return devicesIn(t, s, ns, user)
}

func devicesIn(t require.TestingT, s store.Store, namespace, user string) store.UserDevices {
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

// requireDevices checks that a user has records of these devices, the newest first.
func requireDevices(t require.TestingT, s store.Store, user string, want ...string) {
	require.Equal(t, append([]string{}, want...), ids(devicesOf(t, s, user).Records), user)
}

// requireLive checks which devices of a user count at the user's time.
func requireLive(t require.TestingT, s store.Store, user string, want ...string) {
	d := devicesOf(t, s, user)
	require.Equal(t, append([]string{}, want...), ids(d.Live(d.State.At)), "%s: %+v", user, d)
}

// requireNoDevices checks that nothing is kept of a user's devices.
func requireNoDevices(t require.TestingT, s store.Store, user string) {
	d := devicesOf(t, s, user)
	require.Empty(t, d.Records, user)
	require.Zero(t, d.Left, user)
}
