package devices

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// testDeviceMostRecords: of too many devices, those that left are deleted first, and of these the oldest.
func testDeviceMostRecords(t *testing.T, s store.Store) {
	const all = lastseen.MaxDevices + 8
	name := func(i int) string { return fmt.Sprintf("device-%02d", i) }
	for i := range all {
		event := On("alice", name(i), kit.Base+lastseen.Instant(i))
		event.Meta = fmt.Sprintf(`{"n":%d}`, i)
		event.Gone = i >= 4
		require.Equal(t, kit.Here(event.At), RecordOne(t, s, event), "the first four are still open")
	}
	d := Of(t, s, "alice")
	var want []string
	for i := range lastseen.MaxDevices {
		n := all - 1 - i
		if i >= lastseen.MaxDevices-4 {
			n = lastseen.MaxDevices - 1 - i
		}
		want = append(want, name(n))
		require.Equal(t, fmt.Sprintf(`{"n":%d}`, n), d.Meta[i])
	}
	require.Equal(t, want, ids(d.Records))
	requireLive(t, s, "alice", name(3), name(2), name(1), name(0))

	Record(t, s, On("alice", name(4), kit.Base+100))
	d = Of(t, s, "alice")
	require.Equal(t,
		lastseen.DeviceRecord{ID: name(4), Kind: lastseen.Other, Since: kit.Base + 100, At: kit.Base + 100},
		d.Records[0])
	require.Empty(t, d.Meta[0], "the record was deleted meanwhile")
	require.Len(t, d.Records, lastseen.MaxDevices)

	for i := range all { // of devices that are live, the oldest is deleted
		Record(t, s, On("alice", name(i), kit.Base+200+lastseen.Instant(i)))
	}
	require.NotContains(t, ids(Of(t, s, "alice").Records), name(7))
	require.Equal(t, kit.Here(kit.Base+200+all-1), RecordOne(t, s, On("alice", name(0), kit.Base)),
		"older than the others")
	require.Len(t, Of(t, s, "alice").Live(kit.Base+200+all), lastseen.MaxDevices)
	require.Equal(t, kit.Left(kit.Base+300), kit.Leave(t, s, "alice", kit.Base+300))
	requireLive(t, s, "alice")
}

// oddDeviceIDs returns IDs of records that look like something else to a store. Those of connections are longer than
// those of devices.
func oddDeviceIDs() []string {
	all := []string{
		"a", "A", "a ", " a", "a/b", "a:b", "a|b", "a,b", "a;b", "a\\b", `a"b`, "a'b",
		"{a}", "[a]", "1", "-1", "1e3", "0x1",
		"nil", "null", "true", "%s", "%2F", "é", "e\u0301", "日本", "🙂", "\u00a0",
		strings.Repeat("x", lastseen.MaxDeviceLen),
		strings.Repeat("🙂", lastseen.MaxDeviceLen/4), "\u202e", "\ufffd", "\U0010ffff", "...", "~",
		strings.Repeat("é", lastseen.MaxDeviceLen/2) + "~12345678",
	}
	slices.Sort(all)
	return all
}

// testDeviceIDs: any ID of a device arrives as it was written, and IDs are compared byte for byte.
func testDeviceIDs(t *testing.T, s store.Store) {
	all := oddDeviceIDs()
	for n, page := range slices.Collect(slices.Chunk(all, lastseen.MaxDevices)) {
		user := fmt.Sprint("user", n)
		var batch []store.DeviceEvent
		for i, id := range page {
			batch = append(batch, On(user, id, kit.Base+lastseen.Instant(i)))
		}
		Record(t, s, batch...)
		got := ids(Of(t, s, user).Records)
		slices.Sort(got)
		require.Equal(t, page, got)
		for _, id := range page {
			require.Equal(t, id != page[len(page)-1], !RecordOne(t, s, Bye(user, id, kit.Base+100)).Left, "%q", id)
		}
	}
}

// testDevicesOfUserIDs: any user can have devices, and users with similar IDs have others.
func testDevicesOfUserIDs(t *testing.T, s store.Store) {
	users := kit.OddIDs()
	var batch []store.DeviceEvent
	for i, user := range users {
		batch = append(batch, On(user, fmt.Sprint("device", i), kit.Base))
	}
	Record(t, s, batch...)
	for i, user := range users {
		Require(t, s, user, fmt.Sprint("device", i))
		require.Equal(t, kit.Left(kit.Base+1), RecordOne(t, s, Bye(user, fmt.Sprint("device", i), kit.Base+1)), "%q",
			user)
	}
	for _, user := range users {
		kit.Forget(t, s, user)
		RequireNone(t, s, user)
	}
}

// testDeviceTimes: a device may be active at any time.
func testDeviceTimes(t *testing.T, s store.Store) {
	for _, at := range []lastseen.Instant{
		lastseen.MinInstant, 2, 999, 1000, 100_123_000, kit.Base - 1, kit.Base, kit.Base + 1,
	} {
		user := at.String()
		require.Equal(t, kit.Here(at), RecordOne(t, s, On(user, "a", at)))
		require.Equal(t, kit.Left(at), RecordOne(t, s, Bye(user, "a", at)))
		require.Equal(t, at, Of(t, s, user).Records[0].At)
		require.Equal(t, kit.Here(at), RecordOne(t, s, On(user, "b", at)))
		require.Equal(t, []lastseen.State{kit.Here(at)}, kit.Lookup(t, s, user))
	}
}

// WithMeta returns an event with what the client sent about the device.
func WithMeta(d store.DeviceEvent, meta string) store.DeviceEvent {
	d.Meta = meta
	return d
}

// meta returns what a client sent about a device of a user, and whether there is a record of it.
func meta(t require.TestingT, s store.Store, user, id string) (string, bool) {
	d := Of(t, s, user)
	for i, r := range d.Records {
		if r.ID == id {
			return d.Meta[i], true
		}
	}
	return "", false
}

func requireMeta(t require.TestingT, s store.Store, user, id, want string) {
	got, found := meta(t, s, user, id)
	require.True(t, found, "%s has no device %s", user, id)
	require.Equal(t, want, got, "%s of %s", id, user)
}

// testDeviceMetaLargest: all records of a user can have the largest meta, of any text.
func testDeviceMetaLargest(t *testing.T, s store.Store) {
	all := oddDeviceIDs()[:lastseen.MaxDevices]
	want := map[string]string{}
	var batch []store.DeviceEvent
	for i, id := range all {
		text := []string{"x", "🙂", `\"`, "\u2028", `\u0000`}[i%5]
		room := lastseen.MaxMetaLen - len(`{"":""}`)
		value := strings.Repeat(text, room/len(text))
		want[id] = `{"` + strings.Repeat("k", room-len(value)) + `":"` + value + `"}`
		require.Len(t, want[id], lastseen.MaxMetaLen)
		batch = append(batch, WithMeta(On("alice", id, kit.Base), want[id]))
	}
	Record(t, s, batch...)
	d := Of(t, s, "alice")
	require.Len(t, d.Records, lastseen.MaxDevices)
	for i, r := range d.Records {
		require.Equal(t, want[r.ID], d.Meta[i], "%q", r.ID)
	}
}
