// Package availability has the conformance tests of the availability of users, and of invisible users.
package availability

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests that stores keep the contract of availability, but for feeds. Each subtest opens a store of its
// own. The model compares what others see of users after anything that they say, are seen doing, or are hidden from.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Set", testAvailability},
		{"Set/NeverSeen", testAvailabilityOfNeverSeen},
		{"Set/Notes", testAvailabilityNotes},
		{"Set/UserIDs", testAvailabilityOfUserIDs},
		{"Set/EndAlone", testAvailabilityEndAlone},
		{"Set/Namespaces", testAvailabilityNamespaces},
		{"Set/Many", testAvailabilityMany},
		{"Until", testAvailabilityEnds},
		{"Until/Past", testAvailabilityEndedBefore},
		{"Until/Ahead", testAvailabilityAhead},
		{"Until/WrongTimes", testAvailabilityWithWrongTimes},
		{"Describe", testDescribe},
		{"Idle", testIdle},
		{"Invisible/Ahead", testInvisibleAhead},
		{"Invisible/Batch", testInvisibleInBatch},
		{"Invisible/Until", testInvisibleUntil},
		{"Invisible/ClockAhead", testInvisibleAndClocksAhead},
		{"Invisible/Late", testInvisibleLate},
		{"Equal", testInvisibleEqualsLeft},
		{"Equal/Devices", testInvisibleEqualsLeftWithDevices},
		{"Equal/NewNamespace", testInvisibleEqualsLeftInNewNamespace},
		{"RemoveEmpty/Invisible", testInvisibleRemoveEmpty},
		{"Delete", testAvailabilityDelete},
		{"Concurrent", testAvailabilityConcurrent},
	})
	t.Run("Model", func(t *testing.T) {
		RunFaulty(t, func(t testing.TB) kit.Breakable { return kit.Breakable{Store: open(t)} })
	})
}

// The tests cannot set the store's clock, and do not wait for it. Time passes in them because callers pass earlier
// times: an availability set an hour ago, until half an hour ago, has ended. Where a ping has to count after a hidden
// time, that ends a minute ago: Now may be ahead of the clock that a write reads.

// State is an availability with a note.
func State(a lastseen.Availability, note string) lastseen.AvailabilityState {
	return lastseen.AvailabilityState{Availability: a, Note: note}
}

// Until is an availability with an end.
func Until(end lastseen.Instant, s lastseen.AvailabilityState) lastseen.AvailabilityState {
	s.Until = end
	return s
}

// busy, away, invisible and nothing are the availability of users in most tests.
var (
	Busy      = State(lastseen.Busy, "in a meeting")
	Away      = State(lastseen.Away, "")
	Invisible = State(lastseen.Invisible, "not here")
	Nothing   lastseen.AvailabilityState
)

// Set records a user's availability now.
func Set(t require.TestingT, s store.Store, user string, what lastseen.AvailabilityState) lastseen.State {
	return SetAt(t, s, user, what, kit.Now(t, s))
}

// SetAt records a user's availability at a time.
func SetAt(
	t require.TestingT, s store.Store, user string, what lastseen.AvailabilityState, at lastseen.Instant,
) lastseen.State {
	return SetIn(t, s, kit.Namespace, user, what, at)
}

// SetIn records a user's availability.
func SetIn(
	t require.TestingT, s store.Store, namespace, user string, what lastseen.AvailabilityState, at lastseen.Instant,
) lastseen.State {
	state, err := s.SetAvailability(context.Background(), namespace, user, what, at)
	require.NoError(t, err)
	return state
}

// Get returns a user's availability at a time.
func Get(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.AvailabilityState {
	return getIn(t, s, kit.Namespace, user, at)
}

func getIn(
	t require.TestingT, s store.Store, namespace, user string, at lastseen.Instant,
) lastseen.AvailabilityState {
	what, err := s.ReadAvailability(context.Background(), namespace, user, at)
	require.NoError(t, err)
	return what.At(at)
}

// Details returns what others see of users besides their states, without what has ended. It checks that Describe and
// ReadDetails agree.
func Details(t require.TestingT, s store.Store, users ...string) map[string]store.Details {
	return DetailsIn(t, s, kit.Namespace, users...)
}

// DetailsIn is details in a namespace.
func DetailsIn(t require.TestingT, s store.Store, namespace string, users ...string) map[string]store.Details {
	ctx := context.Background()
	states, described, err := s.Describe(ctx, namespace, users)
	require.NoError(t, err)
	require.Len(t, states, len(users))
	records := make([]store.Record, len(users))
	for i, user := range users {
		records[i] = store.Record{User: user, State: states[i]}
	}
	read, err := s.ReadDetails(ctx, namespace, records)
	require.NoError(t, err)
	at := kit.Now(t, s)
	shown := inEffect(t, described, users, at)
	require.Equal(t, shown, inEffect(t, read, users, at), "ReadDetails differs from Describe")
	return shown
}

// inEffect returns details without what has ended. It checks that they are those of users who were asked for.
func inEffect(
	t require.TestingT, all map[string]store.Details, users []string, at lastseen.Instant,
) map[string]store.Details {
	require.True(t, all == nil || len(all) > 0, "the map is nil if no user has details")
	shown := map[string]store.Details{}
	for user, d := range all {
		require.Contains(t, users, user)
		require.NotEqual(t, lastseen.Invisible, d.Availability.Availability, "others see that %q is invisible", user)
		if d.Availability = d.Availability.At(at); d != (store.Details{}) {
			shown[user] = d
		}
	}
	return shown
}

// Require checks a user's availability, and that others see it.
func Require(t require.TestingT, s store.Store, user string, want lastseen.AvailabilityState) {
	require.Equal(t, want, Get(t, s, user, kit.Now(t, s)), user)
	requireSeen(t, s, user, want)
}

// requireSeen checks what others see of a user's availability.
func requireSeen(t require.TestingT, s store.Store, user string, want lastseen.AvailabilityState) {
	require.Equal(t, want, Details(t, s, user)[user].Availability, user)
}

// requireInvisible checks that a user is invisible, and what others see: a state, and the availability before.
func requireInvisible(
	t require.TestingT, s store.Store, user string,
	want lastseen.AvailabilityState, state lastseen.State, seen lastseen.AvailabilityState,
) {
	require.Equal(t, want, Get(t, s, user, kit.Now(t, s)), user)
	require.Equal(t, state, kit.Lookup(t, s, user)[0], user)
	requireSeen(t, s, user, seen)
}

// IdleAt is a device that a user has not used for 10 ms.
func IdleAt(user, id string, at lastseen.Instant) store.DeviceEvent {
	d := devices.On(user, id, at)
	d.Idle = at - 10
	return d
}

// testDescribe: others see each user's details with the state of the same moment.
func testDescribe(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	kit.Ping(t, s, "here", start)
	kit.Leave(t, s, "left", start)
	for _, user := range []string{"here", "left", "unknown"} {
		Set(t, s, user, State(lastseen.Busy, user))
	}
	names := []string{"unknown", "nobody", "left", "here", "nobody else"}
	want := map[string]store.Details{}
	for _, user := range []string{"here", "left", "unknown"} {
		want[user] = store.Details{Availability: State(lastseen.Busy, user)}
	}
	require.Equal(t, want, Details(t, s, names...))
	page := kit.List(t, s, store.ListQuery{Ranges: kit.Everyone(), Limit: 10})
	read, err := s.ReadDetails(context.Background(), kit.Namespace, page)
	require.NoError(t, err)
	delete(want, "unknown")
	require.Equal(t, want, read, "the users of a page")
}

// testIdle: a user is idle who uses none of the devices that are live, since they stopped using the last one.
func testIdle(t *testing.T, s store.Store) {
	idle := func(id string, at, since lastseen.Instant) store.DeviceEvent {
		d := devices.On("alice", id, kit.Base+at)
		if since != 0 {
			d.Idle = kit.Base + since
		}
		return d
	}
	for i, step := range []struct {
		event store.DeviceEvent
		want  lastseen.Instant
	}{
		{idle("a", 100, 0), 0},
		{idle("a", 200, 150), 150},
		{idle("a", 300, 300), 150}, // still idle
		{idle("b", 310, 0), 0},     // another device is used
		{idle("a", 320, 320), 0},
		{idle("b", 330, 325), 325}, // the later of both
		{idle("b", 340, 0), 0},
		{idle("a", 335, 0), 0},
		{idle("a", 350, 345), 0},
		{idle("b", 351, 348), 348},
		{idle("c", 20, 10), 348},
		{idle("b", 349, 0), 348}, // late
		{idle("a", 360, 0), 0},
		{devices.Bye("alice", "a", kit.Base+370), 348}, // a device that left is not used
		{devices.Bye("alice", "b", kit.Base+371), 10},
		{devices.Bye("alice", "c", kit.Base+372), 0}, // no device is live
	} {
		devices.RecordOne(t, s, step.event)
		want := map[string]store.Details{}
		if step.want != 0 {
			want["alice"] = store.Details{IdleSince: kit.Base + step.want}
		}
		require.Equal(t, want, Details(t, s, "alice", "bob"), "%d: %+v", i, step.event)
	}
}

// testAvailabilityConcurrent: of availabilities set at the same time, one counts, as a whole; and no ping of a hidden
// time is seen.
func testAvailabilityConcurrent(t *testing.T, s store.Store) {
	const users, writers = 5, 8
	start := kit.Now(t, s)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range 20 {
				user := fmt.Sprint("user", i%users)
				what := Until(start+60*kit.Minute+lastseen.Instant(w), State(lastseen.Busy, fmt.Sprint(w)))
				if _, err := s.SetAvailability(context.Background(), kit.Namespace, user, what, start); err != nil {
					t.Error(err)
				}
				batch := kit.Events(start+lastseen.Instant(i), user)
				if _, err := s.Ping(context.Background(), kit.Namespace, batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range users {
		user := fmt.Sprint("user", i)
		got := Get(t, s, user, start)
		require.Equal(t, fmt.Sprint(int(got.Until-start-60*kit.Minute)), got.Note)
		Require(t, s, user, got)
		SetAt(t, s, user, Invisible, start+kit.Minute/60)
	}
	want := kit.Lookup(t, s, "user0", "user1", "user2", "user3", "user4")
	for w := range writers {
		wg.Go(func() {
			user := fmt.Sprint("user", w%users)
			for range 20 {
				if states, err := s.Ping(context.Background(), kit.Namespace,
					kit.Events(lastseen.MaxInstant, user)); err != nil ||
					states[0] != want[w%users] {
					t.Errorf("%v, %v", states, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, want, kit.Lookup(t, s, "user0", "user1", "user2", "user3", "user4"))
}

// Methods returns the methods of a store that concern availability.
func Methods(s store.Store, ns string) map[string]kit.Method {
	set := func(what lastseen.AvailabilityState) kit.Method {
		return func(ctx context.Context) error {
			return kit.ErrorOf(s.SetAvailability(ctx, ns, "alice", what, kit.Base))
		}
	}
	bob := []store.Record{{User: "bob", State: kit.Here(kit.Base)}}
	return map[string]kit.Method{
		"SetAvailability":           set(Busy),
		"SetAvailability/Invisible": set(Invisible),
		"SetAvailability/Nothing":   set(Nothing),
		"ReadAvailability": func(ctx context.Context) error {
			return kit.ErrorOf(s.ReadAvailability(ctx, ns, "alice", kit.Base))
		},
		"Describe": func(ctx context.Context) error {
			_, _, err := s.Describe(ctx, ns, []string{"alice", "bob"})
			return err
		},
		"ReadDetails": func(ctx context.Context) error { return kit.ErrorOf(s.ReadDetails(ctx, ns, bob)) },
	}
}
