package devices

import (
	"context"
	"fmt"
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

// testDevicesTwoTabs: closing one of two tabs leaves the user present, and the last goodbye counts at once.
func testDevicesTwoTabs(t *testing.T, s store.Store) {
	Record(t, s, On("alice", "a", kit.Base), On("alice", "b", kit.Base+1))
	require.Equal(t, kit.Here(kit.Base+10), RecordOne(t, s, Bye("alice", "a", kit.Base+10)))
	require.Equal(t, []int64{1, 0}, kit.Count(t, s, kit.Everyone()...))
	Require(t, s, "alice", "a", "b")
	requireLive(t, s, "alice", "b")
	require.Equal(t, kit.Here(kit.Base+20), RecordOne(t, s, On("alice", "b", kit.Base+20)))
	require.Equal(t, kit.Left(kit.Base+30), RecordOne(t, s, Bye("alice", "b", kit.Base+30)))
	require.Equal(t, []int64{0, 1}, kit.Count(t, s, kit.Everyone()...))
	require.Equal(t, kit.Left(kit.Base+30), kit.Lookup(t, s, "alice")[0])
	requireLive(t, s, "alice")
	require.Equal(t, kit.Here(kit.Base+31), RecordOne(t, s, On("alice", "c", kit.Base+31)))
	require.Equal(t, kit.Left(kit.Base+32), RecordOne(t, s, Bye("alice", "c", kit.Base+32)), "the others are gone")
}

// testDevicesSilent: a device that does not say goodbye counts for the window, and not for longer.
func testDevicesSilent(t *testing.T, s store.Store) {
	for after, want := range map[lastseen.Instant]lastseen.State{
		Window - 1: kit.Here(kit.Base + Window - 1),
		Window:     kit.Here(kit.Base + Window),
		Window + 1: kit.Left(kit.Base + Window + 1),
	} {
		user := fmt.Sprint("user", after)
		Record(t, s, On(user, "silent", kit.Base), On(user, "a", kit.Base+after-1))
		require.Equal(t, want, RecordOne(t, s, Bye(user, "a", kit.Base+after)), "%d ms", after)
		require.Equal(t, want, kit.Lookup(t, s, user)[0])
	}
}

// testDevicesLate: what arrives late changes who is present, but moves no time back.
func testDevicesLate(t *testing.T, s store.Store) {
	require.Equal(t, kit.Left(kit.Base+100), RecordOne(t, s, Bye("alice", "a", kit.Base+100)))
	require.Equal(t, kit.Here(kit.Base+100), RecordOne(t, s, On("alice", "b", kit.Base+50)),
		"present again, at the same time")
	require.Equal(t, []lastseen.State{kit.Here(kit.Base + 100)}, kit.Lookup(t, s, "alice"))
	require.Equal(t, []int64{1, 0}, kit.Count(t, s, kit.Everyone()...))
	require.Equal(t, kit.Left(kit.Base+100), RecordOne(t, s, Bye("alice", "b", kit.Base+60)),
		"left again, at the same time")
	require.Equal(t, []int64{0, 1}, kit.Count(t, s, kit.Everyone()...))
	require.Equal(t, kit.Left(kit.Base+100), RecordOne(t, s, On("alice", "b", kit.Base+55)), "before its goodbye")
	require.Equal(t, kit.Left(kit.Base+100), RecordOne(t, s, On("alice", "b", kit.Base+60)), "at its goodbye")
	require.Equal(t, kit.Here(kit.Base+100), RecordOne(t, s, On("alice", "b", kit.Base+61)), "after its goodbye")
	require.Equal(t, kit.Left(kit.Base+100), kit.Leave(t, s, "alice", kit.Base+61), "all devices")
	require.Equal(t, kit.Here(kit.Base+100), RecordOne(t, s, On("alice", "b", kit.Base+62)))
	require.Equal(t, kit.Left(kit.Base+100), kit.Leave(t, s, "alice", kit.Base+100), "all devices")
	require.Equal(t, kit.Left(kit.Base+100), RecordOne(t, s, On("alice", "c", kit.Base+100)), "at the leave")
	require.Equal(t, kit.Here(kit.Base+101), RecordOne(t, s, On("alice", "c", kit.Base+101)))
}

// Claim is what somebody asserts about one user.
type Claim struct {
	ID   string // of the device; empty for none
	At   lastseen.Instant
	Gone bool
}

// Sighting returns the claim as one of a user's device.
func (c Claim) Sighting(user string) store.DeviceSighting {
	sighting := On(user, c.ID, c.At)
	sighting.Gone = c.Gone
	return sighting
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

// Alive returns the devices that have not said goodbye and were heard within the window before a time.
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

// testDevicesAndLeaves: a leave without a device is of all devices, up to its time.
func testDevicesAndLeaves(t *testing.T, s store.Store) {
	Record(t, s, On("alice", "a", kit.Base), On("alice", "b", kit.Base+5))
	require.Equal(t, kit.Left(kit.Base+10), kit.Leave(t, s, "alice", kit.Base+10))
	requireLive(t, s, "alice")
	Require(t, s, "alice", "b", "a")
	require.Equal(t, kit.Here(kit.Base+11), kit.Ping(t, s, "alice", kit.Base+11))
	requireLive(t, s, "alice")
	require.Equal(t, kit.Left(kit.Base+12), RecordOne(t, s, Bye("alice", "c", kit.Base+12)), "a and b are gone")
	require.Equal(t, kit.Left(kit.Base+12), RecordOne(t, s, On("alice", "a", kit.Base+9)), "from before the leave")
	require.Equal(t, kit.Here(kit.Base+12), RecordOne(t, s, On("alice", "a", kit.Base+11)), "from after the leave")
	requireLive(t, s, "alice", "a")

	Record(t, s, On("bob", "a", kit.Base), On("bob", "b", kit.Base+5))
	require.Equal(t, kit.Here(kit.Base+5), kit.Leave(t, s, "bob", kit.Base+3), "only a was heard before")
	requireLive(t, s, "bob", "b")
	require.Equal(t, kit.Left(kit.Base+6), RecordOne(t, s, Bye("bob", "b", kit.Base+6)))

	kit.Write(s.Leave).In(t, kit.Namespace, kit.Base+20, "alice", "bob", "carol", "alice")
	require.Equal(t, []lastseen.State{kit.Left(kit.Base + 20), kit.Left(kit.Base + 20), kit.Left(kit.Base + 20)},
		kit.Lookup(t, s, "alice", "bob", "carol"))
	requireLive(t, s, "alice")
	requireLive(t, s, "bob")
	requireLive(t, s, "carol")
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

// testDevicesWindow: an assertion older than the window makes no record, and records are deleted when they are.
func testDevicesWindow(t *testing.T, s store.Store) {
	at := kit.Base + 2*Window
	Record(t, s, On("alice", "a", at))
	require.Equal(t, kit.Here(at), RecordOne(t, s, On("alice", "older", at-Window-1)))
	require.Equal(t, kit.Here(at), RecordOne(t, s, Bye("alice", "older", at-Window-1)))
	Require(t, s, "alice", "a")
	require.Equal(t, kit.Here(at), RecordOne(t, s, On("alice", "at the start", at-Window)))
	Require(t, s, "alice", "a", "at the start")
	require.Equal(t, kit.Here(at), RecordOne(t, s, Bye("alice", "gone", at-Window+1)))
	Require(t, s, "alice", "a", "gone", "at the start")
	require.Equal(t, kit.Here(at+1), RecordOne(t, s, On("alice", "b", at+1)))
	Require(t, s, "alice", "b", "a", "gone")
	require.Equal(t, kit.Here(at+2), RecordOne(t, s, On("alice", "b", at+2)))
	Require(t, s, "alice", "b", "a")
	require.Equal(t, kit.Here(at+2*Window), RecordOne(t, s, On("alice", "c", at+2*Window)))
	Require(t, s, "alice", "c")
}
