package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func testDeviceResults(t *testing.T, s store.Store) {
	require.Equal(t, here(base), recordOne(t, s, on("alice", "a", base)))
	require.Equal(t, here(base), recordOne(t, s, on("alice", "a", base-1)), "a late ping returns what is stored")
	require.Equal(t, here(base), recordOne(t, s, on("alice", "b", base-1)), "a late ping returns what is stored")
	require.Equal(t, here(base+1), recordOne(t, s, on("alice", "b", base+1)))
	require.Equal(t, here(base+1), recordOne(t, s, on("alice", "b", base+1)), "once more")
	require.Equal(t, left(base), recordOne(t, s, bye("bob", "a", base)), "never seen before")
	require.Equal(t, left(base), recordOne(t, s, bye("bob", "a", base)), "once more")
	require.Equal(t, here(base+1), recordOne(t, s, on("bob", "a", base+1)))

	require.Equal(t, []lastseen.State{here(base + 1), here(base + 1)}, lookup(t, s, "alice", "bob"))
	require.Equal(t, []store.Record{{User: "bob", State: here(base + 1)}, {User: "alice", State: here(base + 1)}},
		list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10}))
	require.Equal(t, []int64{2, 0}, count(t, s, everyone()...))
	newest, err := s.Newest(context.Background(), ns)
	require.NoError(t, err)
	require.Equal(t, base+1, newest)
	require.Empty(t, record(t, s), "a batch without devices")
}

// testDeviceHeartbeats: pings of a device that is known, one in a call, may be recorded in a shorter way.
func testDeviceHeartbeats(t *testing.T, s store.Store) {
	beat := func(at lastseen.Instant) lastseen.State { return recordOne(t, s, on("alice", "a", base+at)) }
	last := func() lastseen.DeviceRecord { return devicesOf(t, s, "alice").Records[0] }
	beat(0)
	require.Equal(t, here(base+10), beat(10))
	require.Equal(t, lastseen.DeviceRecord{ID: "a", Kind: lastseen.Other, Since: base, At: base + 10}, last())
	require.Equal(t, here(base+10), beat(5), "late")
	require.Equal(t, base+10, last().At)

	ping(t, s, "alice", base+100)
	require.Equal(t, here(base+100), beat(50), "the time does not go back")
	require.Equal(t, here(base+100), lookup(t, s, "alice")[0])
	require.Equal(t, base+50, last().At)
	require.Equal(t, here(base+100), beat(100), "at the same time")
	require.Equal(t, here(base+110), beat(110))

	recordOne(t, s, withMeta(on("alice", "a", base+120), `{"n":1}`))
	requireMeta(t, s, "alice", "a", `{"n":1}`)
	beat(130)
	requireMeta(t, s, "alice", "a", `{"n":1}`)
	mobile := on("alice", "a", base+140)
	mobile.Kind = lastseen.Mobile
	recordOne(t, s, mobile)
	require.Equal(t, lastseen.Mobile, last().Kind)

	require.Equal(t, left(base+150), leave(t, s, "alice", base+150))
	require.Equal(t, left(base+150), beat(145), "before the leave")
	require.Equal(t, left(base+150), beat(150), "at the leave")
	require.Equal(t, here(base+160), beat(160))
	require.Equal(t, here(base+170), beat(170))
	require.Equal(t, left(base+180), recordOne(t, s, bye("alice", "a", base+180)))
	require.Equal(t, left(base+180), beat(175), "before the goodbye")
	require.Equal(t, here(base+190), beat(190))
	require.Equal(t, base, last().Since)
	require.Equal(t, here(base+3*window), beat(3*window))
	require.Equal(t, here(base+3*window+1), beat(3*window+1))
	requireDevices(t, s, "alice", "a")
}

// testDeviceHeartbeatsOfOthers: the ping of one device leaves the records of the others as they are.
func testDeviceHeartbeatsOfOthers(t *testing.T, s store.Store) {
	for i, id := range []string{"b", "a", "aa", "ba", "c"} {
		recordOne(t, s, withMeta(on("alice", id, base+lastseen.Instant(i)), `{"of":"`+id+`"}`))
	}
	recordOne(t, s, bye("alice", "c", base+5))
	recordOne(t, s, on("alice", "a", base+20))
	requireDevices(t, s, "alice", "a", "c", "ba", "aa", "b")
	recordOne(t, s, on("alice", "b", base+30))
	requireDevices(t, s, "alice", "b", "a", "c", "ba", "aa")
	recordOne(t, s, on("alice", "ba", base+30))
	requireDevices(t, s, "alice", "b", "ba", "a", "c", "aa")
	recordOne(t, s, on("alice", "aa", base+25))
	requireDevices(t, s, "alice", "b", "ba", "aa", "a", "c")
	requireLive(t, s, "alice", "b", "ba", "aa", "a")
	for _, id := range []string{"b", "a", "aa", "ba", "c"} {
		requireMeta(t, s, "alice", id, `{"of":"`+id+`"}`)
	}
	recordOne(t, s, on("alice", "b", base+20+window))
	requireDevices(t, s, "alice", "b", "ba", "aa", "a")
	recordOne(t, s, on("alice", "b", base+28+window))
	requireDevices(t, s, "alice", "b", "ba")
	require.Equal(t, here(base+29+window), recordOne(t, s, bye("alice", "b", base+29+window)))
	require.Equal(t, left(base+31+window), recordOne(t, s, bye("alice", "b", base+31+window)),
		"ba was heard too long ago")
}

// testDevicesTwoTabs: closing one of two tabs leaves the user present, and the last goodbye counts at once.
func testDevicesTwoTabs(t *testing.T, s store.Store) {
	record(t, s, on("alice", "a", base), on("alice", "b", base+1))
	require.Equal(t, here(base+10), recordOne(t, s, bye("alice", "a", base+10)))
	require.Equal(t, []int64{1, 0}, count(t, s, everyone()...))
	requireDevices(t, s, "alice", "a", "b")
	requireLive(t, s, "alice", "b")
	require.Equal(t, here(base+20), recordOne(t, s, on("alice", "b", base+20)))
	require.Equal(t, left(base+30), recordOne(t, s, bye("alice", "b", base+30)))
	require.Equal(t, []int64{0, 1}, count(t, s, everyone()...))
	require.Equal(t, left(base+30), lookup(t, s, "alice")[0])
	requireLive(t, s, "alice")
	require.Equal(t, here(base+31), recordOne(t, s, on("alice", "c", base+31)))
	require.Equal(t, left(base+32), recordOne(t, s, bye("alice", "c", base+32)), "the others are gone")
}

// testDevicesSilent: a device that does not say goodbye counts for the window, and not for longer.
func testDevicesSilent(t *testing.T, s store.Store) {
	for after, want := range map[lastseen.Instant]lastseen.State{
		window - 1: here(base + window - 1),
		window:     here(base + window),
		window + 1: left(base + window + 1),
	} {
		user := fmt.Sprint("user", after)
		record(t, s, on(user, "silent", base), on(user, "a", base+after-1))
		require.Equal(t, want, recordOne(t, s, bye(user, "a", base+after)), "%d ms", after)
		require.Equal(t, want, lookup(t, s, user)[0])
	}
}

// testDevicesLate: what arrives late changes who is present, but moves no time back.
func testDevicesLate(t *testing.T, s store.Store) {
	require.Equal(t, left(base+100), recordOne(t, s, bye("alice", "a", base+100)))
	require.Equal(t, here(base+100), recordOne(t, s, on("alice", "b", base+50)), "present again, at the same time")
	require.Equal(t, []lastseen.State{here(base + 100)}, lookup(t, s, "alice"))
	require.Equal(t, []int64{1, 0}, count(t, s, everyone()...))
	require.Equal(t, left(base+100), recordOne(t, s, bye("alice", "b", base+60)), "left again, at the same time")
	require.Equal(t, []int64{0, 1}, count(t, s, everyone()...))
	require.Equal(t, left(base+100), recordOne(t, s, on("alice", "b", base+55)), "before its goodbye")
	require.Equal(t, left(base+100), recordOne(t, s, on("alice", "b", base+60)), "at its goodbye")
	require.Equal(t, here(base+100), recordOne(t, s, on("alice", "b", base+61)), "after its goodbye")
	require.Equal(t, left(base+100), leave(t, s, "alice", base+61), "all devices")
	require.Equal(t, here(base+100), recordOne(t, s, on("alice", "b", base+62)))
	require.Equal(t, left(base+100), leave(t, s, "alice", base+100), "all devices")
	require.Equal(t, left(base+100), recordOne(t, s, on("alice", "c", base+100)), "at the leave")
	require.Equal(t, here(base+101), recordOne(t, s, on("alice", "c", base+101)))
}

// claim is what somebody asserts about one user.
type claim struct {
	id   string // of the device; empty for none
	at   lastseen.Instant
	gone bool
}

// send makes a claim about a user of the namespace ns and returns the resulting state.
func (c claim) send(t require.TestingT, s store.Store, user string) lastseen.State {
	switch {
	case c.id != "":
		return recordOne(t, s, c.sighting(user))
	case c.gone:
		return leave(t, s, user, c.at)
	default:
		return ping(t, s, user, c.at)
	}
}

func (c claim) sighting(user string) store.DeviceSighting {
	sighting := on(user, c.id, c.at)
	sighting.Gone = c.gone
	return sighting
}

// state returns the state by the rule: it knows all claims, and nothing of their order.
func state(claims []claim) (s lastseen.State) {
	var everywhere lastseen.Instant // the newest leave without a device
	devices := map[string]claim{}
	for _, c := range claims {
		s.At = max(s.At, c.at)
		last, known := devices[c.id]
		switch {
		case c.id == "" && c.gone:
			everywhere = max(everywhere, c.at)
		case c.id != "" && (!known || c.at > last.at || c.at == last.at && c.gone):
			devices[c.id] = c
		}
	}
	s.Left = everywhere == s.At && s.Known()
	for _, last := range devices {
		s.Left = s.Left || last.gone && last.at == s.At
	}
	return lastseen.State{At: s.At, Left: s.Left && len(alive(claims, s.At)) == 0}
}

// alive returns the devices that have not said goodbye and were heard within the window before a time.
func alive(claims []claim, at lastseen.Instant) map[string]claim {
	devices, everywhere := map[string]claim{}, lastseen.Instant(0)
	for _, c := range claims {
		if c.id == "" && c.gone {
			everywhere = max(everywhere, c.at)
		}
		if last, known := devices[c.id]; !known || c.at > last.at || c.at == last.at && c.gone {
			devices[c.id] = c
		}
	}
	delete(devices, "")
	for id, last := range devices {
		if last.gone || last.at <= everywhere || last.at < at-window {
			delete(devices, id)
		}
	}
	return devices
}

// testDevicesAnyOrder: claims end in the same state in every order.
func testDevicesAnyOrder(t *testing.T, s store.Store) {
	recordOne(t, s, on("first", "a", base)) // from here on, leaves concern devices
	here, left := func(at lastseen.Instant) lastseen.State { return here(base + at) },
		func(at lastseen.Instant) lastseen.State { return left(base + at) }
	sets := []struct {
		why    string
		claims []claim
		want   lastseen.State
	}{
		{"a ping and a goodbye at one time", []claim{{"a", 5, false}, {"a", 5, true}}, left(5)},
		{"another device at the goodbye", []claim{{"a", 5, true}, {"b", 5, false}}, here(5)},
		{"both say goodbye at one time", []claim{{"a", 5, true}, {"b", 5, true}, {"b", 5, false}}, left(5)},
		{"a ping of no device at the goodbye", []claim{{"a", 5, true}, {"", 5, false}}, left(5)},
		{"a leave and a device at one time", []claim{{"", 5, true}, {"b", 5, false}}, left(5)},
		{"a leave, and a device after it", []claim{{"", 5, true}, {"b", 6, false}, {"a", 6, true}}, here(6)},
		{"a leave between a device and the goodbye", []claim{{"", 5, true}, {"b", 4, false}, {"a", 6, true}}, left(6)},
		{"a leave, a ping, and the goodbye", []claim{
			{"b", 3, false}, {"", 4, true}, {"", 5, false}, {"a", 6, true},
		}, left(6)},
		{"a ping of no device after the goodbye", []claim{{"b", 3, false}, {"a", 5, true}, {"", 6, false}}, here(6)},
		{"a goodbye, and the device again", []claim{
			{"a", 3, true}, {"a", 4, false}, {"b", 5, true}, {"c", 2, true},
		}, here(5)},
		{"the device that counts says goodbye earlier", []claim{
			{"a", 2, false}, {"a", 3, true}, {"b", 5, true}, {"b", 1, false},
		}, left(5)},
		{"at the end of the window", []claim{{"a", 1, false}, {"b", window + 1, true}}, here(window + 1)},
		{"after the window", []claim{{"a", 1, false}, {"b", window + 2, true}}, left(window + 2)},
		{"after the window, by a ping", []claim{
			{"a", 1, false}, {"", window + 5, false}, {"b", window + 6, true}, {"b", 2, false},
		}, left(window + 6)},
		{"a leave before the window", []claim{
			{"", 1, true}, {"a", 2, false}, {"b", window + 2, true}, {"", window, false},
		}, here(window + 2)},
	}
	for n, set := range sets {
		for i := range set.claims {
			set.claims[i].at += base
		}
		require.Equal(t, set.want, state(set.claims), "%s: the model", set.why)
		order := 0
		permutations(set.claims, func(claims []claim) {
			order++
			user := fmt.Sprintf("user-%d-%d", n, order)
			for i, c := range claims {
				require.Equal(t, state(claims[:i+1]), c.send(t, s, user), "%s: %d of %+v", set.why, i+1, claims)
			}
			require.Equal(t, []lastseen.State{set.want}, lookup(t, s, user), "%s: %+v", set.why, claims)
		})
	}
}
