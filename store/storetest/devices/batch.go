package devices

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testDeviceBatch: a user named several times has the final state several times.
func testDeviceBatch(t *testing.T, s store.Store) {
	batch := []store.DeviceEvent{
		On("alice", "a", kit.Base+5),
		On("bob", "a", kit.Base+1),
		Bye("alice", "a", kit.Base+9),
		On("alice", "b", kit.Base+7),
		Bye("bob", "a", kit.Base+2),
		WithMeta(On("carol", "a", kit.Base), "{}"),
		On("alice", "a", kit.Base+6),
	}
	given := slices.Clone(batch)
	require.Equal(t, []lastseen.State{
		kit.Here(kit.Base + 9), kit.Left(kit.Base + 2), kit.Here(kit.Base + 9), kit.Here(kit.Base + 9),
		kit.Left(kit.Base + 2), kit.Here(kit.Base), kit.Here(kit.Base + 9),
	}, Record(t, s, batch...))
	require.Equal(t, given, batch, "the batch passed in was changed")
	require.Equal(t, []lastseen.State{kit.Here(kit.Base + 9), kit.Left(kit.Base + 2), kit.Here(kit.Base)},
		kit.Lookup(t, s, "alice", "bob", "carol"))
	Require(t, s, "alice", "a", "b")
	requireLive(t, s, "alice", "b")
	Record(t, s, WithMeta(On("carol", "a", kit.Base+1), `{"n":1}`), WithMeta(On("carol", "a", kit.Base+1), `{"n":2}`))
	requireMeta(t, s, "carol", "a", `{"n":2}`)
	old := kit.Base + 1 - Window - 1 // makes no record
	Record(t, s, WithMeta(On("carol", "b", old), `{"n":3}`), On("carol", "b", kit.Base+1))
	requireMeta(t, s, "carol", "b", "")
}

// testDeviceLargeBatch records as many devices as one call may, and has half of them leave.
func testDeviceLargeBatch(t *testing.T, s store.Store) {
	const users = store.MaxDeviceBatch / 2
	batch := make([]store.DeviceEvent, store.MaxDeviceBatch)
	for i := range batch {
		batch[i] = On(fmt.Sprint("u", i%users), fmt.Sprint("device", i/users), kit.Base+lastseen.Instant(i))
	}
	for i, state := range Record(t, s, batch...) {
		require.Equal(t, kit.Here(batch[users+i%users].At), state)
	}
	for i := range batch {
		batch[i].Gone = i/users == 1 || i%2 == 0
		batch[i].At += users
	}
	for i, state := range Record(t, s, batch...) {
		require.Equal(t, lastseen.State{At: kit.Base + lastseen.Instant(2*users+i%users), Left: i%2 == 0}, state, "%d",
			i)
	}
	Require(t, s, "u7", "device1", "device0")
	requireLive(t, s, "u7", "device0")
}

// testDeviceBatchOfOneUser: a batch may be about one user alone.
func testDeviceBatchOfOneUser(t *testing.T, s store.Store) {
	batch := make([]store.DeviceEvent, store.MaxDeviceBatch)
	for i := range batch {
		batch[i] = On("alice", fmt.Sprint("device", i), kit.Base+lastseen.Instant(i))
	}
	for _, state := range Record(t, s, batch...) {
		require.Equal(t, kit.Here(kit.Base+store.MaxDeviceBatch-1), state)
	}
	d := Of(t, s, "alice")
	require.Len(t, d.Records, lastseen.MaxDevices)
	require.Equal(t, "device9999", d.Records[0].ID)
	require.Equal(t, fmt.Sprint("device", store.MaxDeviceBatch-lastseen.MaxDevices), d.Records[31].ID)
}

// testDevicesAhead: a time further ahead than MaxAhead is replaced by that of the store's own clock.
func testDevicesAhead(t *testing.T, s store.Store) {
	for i, ahead := range []time.Duration{store.MaxAhead + 2*time.Second, time.Hour, 20 * 365 * 24 * time.Hour} {
		before := kit.Now(t, s)
		user := fmt.Sprint("user", i)
		states := Record(t, s, On(user, "a", before.Add(ahead)), Bye("gone"+user, "a", lastseen.MaxInstant),
			On("past"+user, "a", kit.Base))
		for _, state := range states[:2] {
			require.InDelta(t, int64(before), int64(state.At), float64(store.MaxAhead/time.Millisecond)-1, "%s ahead",
				ahead)
		}
		require.Equal(t, []bool{false, true}, []bool{states[0].Left, states[1].Left})
		require.Equal(t, kit.Here(kit.Base), states[2], "a time too far ahead changes nothing for others")
		require.Equal(t, states, kit.Lookup(t, s, user, "gone"+user, "past"+user))
		for k, name := range []string{user, "gone" + user} {
			d := Of(t, s, name)
			require.Equal(t, states[k].At, d.Records[0].At, "a record has the time that was recorded")
			require.Equal(t, states[k].At, d.Records[0].Since)
		}
	}
	at := kit.Now(t, s).Add(store.MaxAhead - time.Second)
	require.Equal(t, kit.Here(at), RecordOne(t, s, On("near", "a", at)))
	require.Equal(t, kit.Here(at), RecordOne(t, s, On("near", "b", lastseen.MaxInstant)), "what is stored is later")
}

// testDeviceNamespaces: a namespace exists from its first device on, and has its own devices.
func testDeviceNamespaces(t *testing.T, s store.Store) {
	RecordIn(t, s, "a", On("alice", "a", kit.Base))
	RecordIn(t, s, "b", Bye("alice", "a", kit.Base+1))
	require.Equal(t, []store.NamespaceInfo{{Name: "a", Newest: kit.Base}, {Name: "b", Newest: kit.Base + 1}},
		kit.Namespaces(t, s, 10))
	require.Equal(t, kit.Here(kit.Base), In(t, s, "a", "alice").State)
	require.Equal(t, kit.Left(kit.Base+1), In(t, s, "b", "alice").State)
	require.Equal(t, kit.Left(kit.Base+2), RecordIn(t, s, "a", Bye("alice", "a", kit.Base+2))[0])
	require.Equal(t, kit.Here(kit.Base+3), RecordIn(t, s, "b", On("alice", "b", kit.Base+3))[0])
	require.Equal(t, []string{"a"}, ids(In(t, s, "a", "alice").Records))
	require.Equal(t, []string{"b", "a"}, ids(In(t, s, "b", "alice").Records))
}

// testDeviceReads: reading about users without devices returns none, and makes nothing exist.
func testDeviceReads(t *testing.T, s store.Store) {
	require.Zero(t, Of(t, s, "nobody").State)
	RequireNone(t, s, "nobody")
	require.Empty(t, kit.Namespaces(t, s, 10))
	kit.Ping(t, s, "alice", kit.Base)
	kit.Leave(t, s, "bob", kit.Base+1)
	for range 2 { // without devices in the namespace, and with some
		for user, want := range map[string]lastseen.State{
			"alice": kit.Here(kit.Base), "bob": kit.Left(kit.Base + 1), "nobody": {},
		} {
			d := Of(t, s, user)
			require.Equal(t, want, d.State, user)
			require.Empty(t, d.Records, user)
		}
		Record(t, s, On("carol", "a", kit.Base))
	}
	require.Equal(t, kit.Here(kit.Base), Of(t, s, "carol").State)
}

// testDevicesConcurrent: writers at the same time end in the state of all that they asserted.
func testDevicesConcurrent(t *testing.T, s store.Store) {
	const writers, writes, users = 12, 40, 6
	RecordOne(t, s, On("first", "a", kit.Base))
	claims := make([]map[string][]Claim, writers)
	var wg sync.WaitGroup
	for w := range writers {
		claims[w] = map[string][]Claim{}
		random := rand.New(rand.NewPCG(uint64(w), 3))
		wg.Go(func() {
			for range writes {
				user := fmt.Sprint("u", random.IntN(users))
				c := Claim{
					ID: []string{"", "a", "b", "c"}[random.IntN(4)], Gone: random.IntN(2) == 0,
					At: kit.Base + lastseen.Instant(random.IntN(40))*Window/20,
				}
				if err := c.Try(s, user); err != nil {
					t.Error(err)
					return
				}
				claims[w][user] = append(claims[w][user], c)
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	for n := range users {
		user := fmt.Sprint("u", n)
		var all []Claim
		for w := range writers {
			all = append(all, claims[w][user]...)
		}
		require.Equal(t, State(all), kit.Lookup(t, s, user)[0], "%s: %+v", user, all)
		require.Equal(t, State(all), Of(t, s, user).State)
	}
}

// Try makes a claim, and checks that the user's time is not before it.
func (c Claim) Try(s store.Store, user string) error {
	ctx, plain := context.Background(), []store.PresenceEvent{{User: user, At: c.At}}
	var states []lastseen.State
	var err error
	switch {
	case c.ID != "":
		states, err = s.RecordDevices(ctx, kit.Namespace, WindowTime, []store.DeviceEvent{c.Event(user)})
	case c.Gone:
		states, err = s.Leave(ctx, kit.Namespace, plain)
	default:
		states, err = s.Ping(ctx, kit.Namespace, plain)
	}
	if err == nil && states[0].At < c.At {
		err = fmt.Errorf("%+v: %+v", c, states)
	}
	return err
}
