package devices

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

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
