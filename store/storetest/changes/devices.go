package changes

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func (f *feed) device(batch ...store.DeviceEvent) {
	devices.RecordIn(f.t, f.s, f.namespace, batch...)
}

// testChangesOfDeviceBatch: the entries of one call continue from each other.
func testChangesOfDeviceBatch(t *testing.T, s store.Store) {
	f := Begin(t, s)
	at := f.start
	f.device(devices.On("alice", "a", at), devices.On("bob", "a", at), devices.On("carol", "a", at),
		devices.On("bob", "b", at))
	got := byUser(f.Read())
	require.Len(t, got, 3)
	for user, entries := range got {
		require.Equal(t, []store.Change{entry(user, neverSeen(), isHere(at, lastseen.Green))}, entries)
	}
	f.device(
		devices.Bye("alice", "a", at+1), devices.On("bob", "a", at+1), devices.Bye("carol", "a",
			at+1), devices.On("alice", "b", at),
		devices.Bye("bob", "b", at+1), devices.Bye("alice", "b", at+2), devices.On("alice", "c", at+3),
	)
	got = byUser(f.Read())
	require.Equal(t, []store.Change{entry("carol", isHere(at, lastseen.Green), hasLeft(at+1))}, got["carol"])
	require.Empty(t, got["bob"])
	requireChain(t, isHere(at, lastseen.Green), got["alice"])
	require.Equal(t, isHere(at+3, lastseen.Green), f.published("alice"))

	const users = 1500
	batch := make([]store.DeviceEvent, 0, 2*users)
	for i := range users {
		user := fmt.Sprint("user", i)
		batch = append(batch, devices.On(user, "a", at), devices.Bye(user, "b", at+1))
	}
	f.device(batch...)
	got = byUser(f.Read())
	require.Len(t, got, users)
	for user, entries := range got {
		requireChain(t, neverSeen(), entries)
		require.Equal(t, lastseen.Green, entries[len(entries)-1].Status, user)
	}
}

// device records what devices of several users asserted, in the model of a feed.
func (m *changesModel) device(t *rapid.T) {
	if m.devices == nil {
		m.firstDevice(t)
	}
	names := rapid.SliceOfNDistinct(kit.DrawUser, 1, 6, rapid.ID[string]).Draw(t, "users")
	claims := make([]devices.Claim, len(names))
	batch := make([]store.DeviceEvent, len(names))
	for i, user := range names {
		claims[i] = devices.Claim{
			ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device"),
			At: m.drawAt(t), Gone: rapid.Bool().Draw(t, "gone"),
		}
		if rapid.Bool().Draw(t, "beside") { // another device that was received at about the same time
			claims[i].At = m.states[user].At + rapid.SampledFrom([]lastseen.Instant{-1000, -1, 0, 1}).Draw(t, "by")
			claims[i].At = max(lastseen.MinInstant, min(claims[i].At, m.drawAt(t)))
		}
		batch[i] = claims[i].Event(user)
	}
	clock := kit.Now(t, m)
	for i, state := range devices.Record(t, m, batch...) {
		if m.hides(names[i], claims[i].At, clock) {
			require.Equal(t, m.states[names[i]], state)
			continue
		}
		require.Equal(t, m.claims(names[i], claims[i]), state)
		m.become(names[i], state)
	}
}

// firstDevice has a device active in each shard of the namespace: from then on, leaves concern devices. Those from
// before are repeated: a ping would hide them.
func (m *changesModel) firstDevice(t *rapid.T) {
	if m.devices == nil {
		m.devices = map[string][]devices.Claim{}
		for user, state := range m.states {
			m.know(user, store.UserDevices{State: state})
		}
		defer func() {
			for user, state := range m.states {
				if state.Left {
					require.Equal(t, state, kit.Leave(t, m, user, state.At))
				}
			}
		}()
	}
	at := kit.Now(t, m)
	for _, first := range kit.FirstUsers(m.Store) {
		state := devices.RecordOne(t, m, devices.On(first, "a", at))
		require.Equal(t, m.claims(first, devices.Claim{ID: "a", At: at}), state)
		m.become(first, state)
	}
}

// claims notes a claim about a user and returns the state that results.
func (m *changesModel) claims(user string, c devices.Claim) lastseen.State {
	if m.devices == nil {
		return lastseen.Merge(m.states[user], lastseen.State{At: c.At, Left: c.Gone})
	}
	m.devices[user] = append(m.devices[user], c)
	return devices.State(m.devices[user])
}

// know replaces all claims about a user by what is stored.
func (m *changesModel) know(user string, d store.UserDevices) {
	if m.devices == nil {
		return
	}
	claims, left := []devices.Claim{}, d.State.Left
	for _, r := range d.Records {
		claims = append(claims, devices.Claim{ID: r.ID, At: r.At, Gone: r.Gone})
		left = left && (!r.Gone || r.At != d.State.At)
	}
	if d.Left > 0 {
		claims = append(claims, devices.Claim{At: d.Left, Gone: true})
	}
	if d.State.Known() {
		claims = append(claims, devices.Claim{At: d.State.At, Gone: left})
	}
	m.devices[user] = claims
}

// requireDeviceRecords compares the devices that count of some users.
func (m *changesModel) requireDeviceRecords(t *rapid.T) {
	if m.devices == nil {
		return
	}
	user := kit.DrawUser.Draw(t, "devices of")
	d := devices.Of(t, m, user)
	require.Equal(t, m.states[user], d.State)
	want := devices.Alive(m.devices[user], d.State.At)
	live := map[string]devices.Claim{}
	for _, r := range d.Live(d.State.At) {
		live[r.ID] = devices.Claim{ID: r.ID, At: r.At, Gone: r.Gone}
	}
	require.Equal(t, want, live, "%+v of %+v", d, m.devices[user])
}

// RunInCalls tests that a feed has who is in a call. Each subtest opens its own store.
func RunInCalls(t *testing.T, open kit.Open) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, *calls.Calling)
	}{
		{"InCall/AdvanceOrder", testInCallAdvanceOrder},
		{"InCall/Grey", testInCallFeedGrey},
		{"InCall/Before", testInCallBeforeFeed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, calls.NewCalling(t, open(t))) })
	}
}

// talking returns a published presence of a user who is in a call.
func talking(p store.Published) store.Published {
	p.InCallUntil = lastseen.MaxInstant
	return p
}

// inCall records until when a user is in a call, in milliseconds after the start of the feed; 0 for not.
func (f *feed) inCall(user string, after lastseen.Instant) {
	until := lastseen.Instant(0)
	if after != 0 {
		until = f.start + after
	}
	kit.SetInCall(f.t, f.s, f.namespace, user, until)
}

// testInCallAdvanceOrder: in one advance, a user whose status changes with time and whose call ends goes from what was
// published to what is.
func testInCallAdvanceOrder(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	was := map[string]store.Published{}
	pings := map[string]lastseen.Instant{
		"stays": f.start, "yellow": f.yellowAt(100), "grey": f.greyAt(100),
	}
	for name, at := range pings {
		for _, end := range []lastseen.Instant{50, 100, 150} {
			user := name + string(rune('0'+end/50))
			f.ping(user, at)
			f.inCall(user, end)
			was[user] = f.published(user)
			require.Equal(t, lastseen.MaxInstant, was[user].InCallUntil)
		}
	}
	f.Read()
	transitions := f.advance(300)
	entries := f.Read()
	require.Len(t, entries, transitions)
	chains := byUser(entries)
	for user, p := range was {
		chain := chains[user]
		requireChain(t, p, chain)
		last := chain[len(chain)-1].Published
		require.Zero(t, last.Details, user)
		require.Equal(t, last, f.published(user))
		status := map[byte]lastseen.Status{'s': lastseen.Green, 'y': lastseen.Yellow, 'g': lastseen.Grey}[user[0]]
		require.Equal(t, isHere(p.At, status), last)
	}
	require.Len(t, chains, len(was))
}

// testInCallFeedGrey: others do not see that a grey user is in a call.
func testInCallFeedGrey(t *testing.T, c *calls.Calling) {
	f := Begin(t, c.Store)
	f.leave("left", f.start)
	f.inCall("left", 50)
	f.requireEntries(entry("left", neverSeen(), hasLeft(f.start)))
	require.Equal(t, hasLeft(f.start), f.published("left"))
	require.Zero(t, f.advance(100), "the end of a call of a grey user is no change")
}

// testInCallBeforeFeed: a feed publishes who is in a call when it begins.
func testInCallBeforeFeed(t *testing.T, c *calls.Calling) {
	start := kit.Now(t, c)
	kit.Ping(t, c, "alice", start)
	kit.Ping(t, c, "bob", start)
	ends := start + playAhead + maxPlayed/2 + 1000
	kit.SetInCall(t, c.Store, kit.Namespace, "alice", start+60*kit.Minute)
	kit.SetInCall(t, c.Store, kit.Namespace, "bob", ends)
	f := Begin(t, c.Store)
	here := isHere(start, lastseen.Green)
	require.Equal(t, talking(here), f.published("alice"))
	if f.start < ends {
		require.Equal(t, talking(here), f.published("bob"))
		require.Equal(t, 1, f.advance(maxPlayed))
		f.requireEntries(entry("bob", talking(here), here))
	}
	kit.SetInCall(t, c.Store, kit.Namespace, "alice", 0)
	kit.SetInCall(t, c.Store, kit.Namespace, "bob", 0)
	f.requireEntries(entry("alice", talking(here), here))
}

// testNotRecorded: without RecordChanges there is no feed, whatever is in the namespace.
func testNotRecorded(t *testing.T, s store.Store) {
	RequireNotRecorded(t, s)
	kit.Ping(t, s, "alice", kit.Base)
	Begin(t, s)
	beginWith(t, s, "other", Normal)
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
	RequireNotRecorded(t, s)
	kit.Ping(t, s, "alice", kit.Base)
	kit.Leave(t, s, "bob", kit.Base)
	kit.Forget(t, s, "alice")
	require.Equal(t, kit.Left(kit.Base), kit.Lookup(t, s, "bob")[0])
	RequireNotRecorded(t, s)
	for range 2 { // reading makes no state
		require.ErrorIs(t, s.RecordChanges(context.Background(), "none", Normal), store.ErrNotRecorded)
		require.ErrorIs(t, kit.ErrorOf(s.SnapshotChanges(context.Background(), "none", nil)), store.ErrNotRecorded)
	}
	require.Equal(t, []string{kit.Namespace, "other"}, kit.Existing(t, s))
}

// testRemoveEmptyAndFeed: RemoveEmpty may end the feed, but readers miss nothing without a reset.
func testRemoveEmptyAndFeed(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start)
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Len(t, f.Read(), 1)
	kit.Forget(t, s, "alice")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Empty(t, kit.Existing(t, s))

	recordChanges(t, s, kit.Namespace, Normal)
	f.ping("alice", f.start)
	read := f.try(f.positions, 10)
	if !read.Reset {
		require.Equal(t, []store.Change{
			entry("alice", isHere(f.start, lastseen.Green), neverSeen()),
			entry("alice", neverSeen(), isHere(f.start, lastseen.Green)),
		}, bare(read.Changes))
	}
	require.Equal(t, isHere(f.start, lastseen.Green), f.published("alice"))
	f.positions = read.Positions
	f.leave("alice", f.start)
	f.requireEntries(entry("alice", isHere(f.start, lastseen.Green), hasLeft(f.start)))
}
