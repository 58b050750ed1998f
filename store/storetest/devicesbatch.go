package storetest

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
)

// testDeviceBatch: a user named several times has the final state several times.
func testDeviceBatch(t *testing.T, s store.Store) {
	batch := []store.DeviceSighting{
		on("alice", "a", base+5),
		on("bob", "a", base+1),
		bye("alice", "a", base+9),
		on("alice", "b", base+7),
		bye("bob", "a", base+2),
		withMeta(on("carol", "a", base), "{}"),
		on("alice", "a", base+6),
	}
	given := slices.Clone(batch)
	require.Equal(t, []lastseen.State{
		here(base + 9), left(base + 2), here(base + 9), here(base + 9), left(base + 2), here(base), here(base + 9),
	}, record(t, s, batch...))
	require.Equal(t, given, batch, "the batch passed in was changed")
	require.Equal(t, []lastseen.State{here(base + 9), left(base + 2), here(base)},
		lookup(t, s, "alice", "bob", "carol"))
	requireDevices(t, s, "alice", "a", "b")
	requireLive(t, s, "alice", "b")
	record(t, s, withMeta(on("carol", "a", base+1), `{"n":1}`), withMeta(on("carol", "a", base+1), `{"n":2}`))
	requireMeta(t, s, "carol", "a", `{"n":2}`)
}

// testDeviceLargeBatch records as many devices as one call may, and says goodbye for half of them.
func testDeviceLargeBatch(t *testing.T, s store.Store) {
	const users = store.MaxDeviceBatch / 2
	batch := make([]store.DeviceSighting, store.MaxDeviceBatch)
	for i := range batch {
		batch[i] = on(fmt.Sprint("u", i%users), fmt.Sprint("device", i/users), base+lastseen.Instant(i))
	}
	for i, state := range record(t, s, batch...) {
		require.Equal(t, here(batch[users+i%users].At), state)
	}
	for i := range batch {
		batch[i].Gone = i/users == 1 || i%2 == 0
		batch[i].At += users
	}
	for i, state := range record(t, s, batch...) {
		require.Equal(t, lastseen.State{At: base + lastseen.Instant(2*users+i%users), Left: i%2 == 0}, state, "%d", i)
	}
	requireDevices(t, s, "u7", "device1", "device0")
	requireLive(t, s, "u7", "device0")
}

// testDeviceBatchOfOneUser: a batch may be about one user alone.
func testDeviceBatchOfOneUser(t *testing.T, s store.Store) {
	batch := make([]store.DeviceSighting, store.MaxDeviceBatch)
	for i := range batch {
		batch[i] = on("alice", fmt.Sprint("device", i), base+lastseen.Instant(i))
	}
	for _, state := range record(t, s, batch...) {
		require.Equal(t, here(base+store.MaxDeviceBatch-1), state)
	}
	d := devicesOf(t, s, "alice")
	require.Len(t, d.Records, lastseen.MaxDevices)
	require.Equal(t, "device9999", d.Records[0].ID)
	require.Equal(t, fmt.Sprint("device", store.MaxDeviceBatch-lastseen.MaxDevices), d.Records[31].ID)
}

// testDevicesAhead: a time further ahead than MaxAhead is replaced by that of the store's own clock.
func testDevicesAhead(t *testing.T, s store.Store) {
	for i, ahead := range []time.Duration{store.MaxAhead + 2*time.Second, time.Hour, 20 * 365 * 24 * time.Hour} {
		before := now(t, s)
		user := fmt.Sprint("user", i)
		states := record(t, s, on(user, "a", before.Add(ahead)), bye("gone"+user, "a", lastseen.MaxInstant),
			on("past"+user, "a", base))
		for _, state := range states[:2] {
			require.InDelta(t, int64(before), int64(state.At), float64(store.MaxAhead/time.Millisecond)-1, "%s ahead",
				ahead)
		}
		require.Equal(t, []bool{false, true}, []bool{states[0].Left, states[1].Left})
		require.Equal(t, here(base), states[2], "a time too far ahead changes nothing for others")
		require.Equal(t, states, lookup(t, s, user, "gone"+user, "past"+user))
		for k, name := range []string{user, "gone" + user} {
			d := devicesOf(t, s, name)
			require.Equal(t, states[k].At, d.Records[0].At, "a record has the time that was recorded")
			require.Equal(t, states[k].At, d.Records[0].Since)
		}
	}
	at := now(t, s).Add(store.MaxAhead - time.Second)
	require.Equal(t, here(at), recordOne(t, s, on("near", "a", at)))
	require.Equal(t, here(at), recordOne(t, s, on("near", "b", lastseen.MaxInstant)), "what is stored is later")
}

// testDeviceNamespaces: a namespace exists from its first device on, and has devices of its own.
func testDeviceNamespaces(t *testing.T, s store.Store) {
	recordIn(t, s, "a", on("alice", "a", base))
	recordIn(t, s, "b", bye("alice", "a", base+1))
	require.Equal(t, []store.NamespaceInfo{{Name: "a", Newest: base}, {Name: "b", Newest: base + 1}},
		namespaces(t, s, 10))
	require.Equal(t, here(base), devicesIn(t, s, "a", "alice").State)
	require.Equal(t, left(base+1), devicesIn(t, s, "b", "alice").State)
	require.Equal(t, left(base+2), recordIn(t, s, "a", bye("alice", "a", base+2))[0])
	require.Equal(t, here(base+3), recordIn(t, s, "b", on("alice", "b", base+3))[0])
	require.Equal(t, []string{"a"}, ids(devicesIn(t, s, "a", "alice").Records))
	require.Equal(t, []string{"b", "a"}, ids(devicesIn(t, s, "b", "alice").Records))
}

// testDeviceReads: reading about users without devices returns none, and makes nothing exist.
func testDeviceReads(t *testing.T, s store.Store) {
	require.Zero(t, devicesOf(t, s, "nobody").State)
	requireNoDevices(t, s, "nobody")
	require.Empty(t, namespaces(t, s, 10))
	ping(t, s, "alice", base)
	leave(t, s, "bob", base+1)
	for range 2 { // without devices in the namespace, and with some
		for user, want := range map[string]lastseen.State{"alice": here(base), "bob": left(base + 1), "nobody": {}} {
			d := devicesOf(t, s, user)
			require.Equal(t, want, d.State, user)
			require.Empty(t, d.Records, user)
		}
		record(t, s, on("carol", "a", base))
	}
	require.Equal(t, here(base), devicesOf(t, s, "carol").State)
}

// testDevicesConcurrent: writers at the same time end in the state of all that they asserted.
func testDevicesConcurrent(t *testing.T, s store.Store) {
	const writers, writes, users = 12, 40, 6
	recordOne(t, s, on("first", "a", base))
	said := make([]map[string][]claim, writers)
	var wg sync.WaitGroup
	for w := range writers {
		said[w] = map[string][]claim{}
		random := rand.New(rand.NewPCG(uint64(w), 3))
		wg.Go(func() {
			for range writes {
				user := fmt.Sprint("u", random.IntN(users))
				c := claim{
					id: []string{"", "a", "b", "c"}[random.IntN(4)], gone: random.IntN(2) == 0,
					at: base + lastseen.Instant(random.IntN(40))*window/20,
				}
				if err := c.try(s, user); err != nil {
					t.Error(err)
					return
				}
				said[w][user] = append(said[w][user], c)
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	for n := range users {
		user := fmt.Sprint("u", n)
		var all []claim
		for w := range writers {
			all = append(all, said[w][user]...)
		}
		require.Equal(t, state(all), lookup(t, s, user)[0], "%s: %+v", user, all)
		require.Equal(t, state(all), devicesOf(t, s, user).State)
	}
}

// try makes a claim, and checks that the user's time is not before it.
func (c claim) try(s store.Store, user string) error {
	ctx, plain := context.Background(), []store.Sighting{{User: user, At: c.at}}
	var states []lastseen.State
	var err error
	switch {
	case c.id != "":
		states, err = s.RecordDevices(ctx, ns, windowTime, []store.DeviceSighting{c.sighting(user)})
	case c.gone:
		states, err = s.Leave(ctx, ns, plain)
	default:
		states, err = s.Ping(ctx, ns, plain)
	}
	if err == nil && states[0].At < c.at {
		err = fmt.Errorf("%+v: %+v", c, states)
	}
	return err
}
