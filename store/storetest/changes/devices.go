package changes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func (f *feed) device(batch ...store.DeviceSighting) {
	devices.RecordIn(f.t, f.s, f.namespace, batch...)
}

// testChangesOfDevices: what devices assert is a change when it changes what is published of the user.
func testChangesOfDevices(t *testing.T, s store.Store) {
	f := Begin(t, s)
	at := f.start
	f.device(devices.On("alice", "a", at))
	f.requireEntries(entry("alice", neverSeen(), isHere(at, lastseen.Green)))
	f.device(devices.On("alice", "b", at+1))
	f.device(devices.On("alice", "a", at-1))
	f.device(devices.Bye("alice", "a", at+2))
	f.device(devices.On("alice", "b", at+3))
	f.requireEntries() // one of two tabs
	f.device(devices.Bye("alice", "b", at+4))
	f.requireEntries(entry("alice", isHere(at+3, lastseen.Green), hasLeft(at+4)))
	require.Equal(t, hasLeft(at+4), f.published("alice"))
	f.device(devices.Bye("alice", "b", at+4), devices.Bye("alice", "a", at+3))
	f.ping("alice", at+4)
	f.requireEntries() // she left already
	f.device(devices.On("alice", "b", at+5))
	f.requireEntries(entry("alice", hasLeft(at+4), isHere(at+5, lastseen.Green)))
	f.leave("alice", at+6)
	f.requireEntries(entry("alice", isHere(at+5, lastseen.Green), hasLeft(at+6)))

	f.device(devices.Bye("bob", "a", at))
	f.requireEntries(entry("bob", neverSeen(), hasLeft(at)))
	require.Equal(t, hasLeft(at), f.published("bob"))
	f.device(devices.On("bob", "a", at+1))
	f.requireEntries(entry("bob", hasLeft(at), isHere(at+1, lastseen.Green)))
	f.device(devices.On("carol", "a", f.decaysGrey(0)))
	f.requireEntries() // she was grey, and is
	kit.Forget(t, s, "alice")
	f.requireEntries(entry("alice", hasLeft(at+6), neverSeen()))
	f.device(devices.Bye("alice", "b", at+7))
	f.requireEntries(entry("alice", neverSeen(), hasLeft(at+7)))
}

// testChangesOfHeartbeats: pings of a device that is known are changes, too.
func testChangesOfHeartbeats(t *testing.T, s store.Store) {
	f := Begin(t, s)
	yellow, grey := f.decaysGrey(500), f.decaysGrey(-500)
	for user, at := range map[string]lastseen.Instant{
		"green": f.start, "yellow": yellow, "grey": grey, "old": kit.Base,
	} {
		f.device(devices.On(user, "a", at))
		f.Read()
		f.device(devices.On(user, "a", at+1))
		f.requireEntries() // the time alone changed
		f.device(devices.On(user, "a", f.start+2))
		if user == "green" {
			f.requireEntries() // the time alone changed
			continue
		}
		was := isHere(at+1, Normal.Presence("", kit.Here(at+1), f.start).Status)
		f.requireEntries(entry(user, was, isHere(f.start+2, lastseen.Green)))
	}
	decays := f.decaysYellow(100)
	f.device(devices.On("decays", "a", decays))
	f.Read()
	require.Equal(t, 1, f.sweep(100))
	f.Read()
	f.device(devices.On("decays", "a", decays+1))
	f.requireEntries(entry("decays", isHere(decays, lastseen.Yellow), isHere(decays+1, lastseen.Green)))
	require.Equal(t, 1, f.sweep(101))
	f.Read()
	f.device(devices.On("decays", "a", f.start))
	f.requireEntries(entry("decays", isHere(decays+1, lastseen.Yellow), isHere(f.start, lastseen.Green)))
}

// testChangesOfLateDevices: a device that arrives late makes a user present again, or leave again, at the same time.
func testChangesOfLateDevices(t *testing.T, s store.Store) {
	f := Begin(t, s)
	for user, at := range map[string]lastseen.Instant{
		"green": f.start, "yellow": f.decaysGrey(100), "grey": f.decaysGrey(-100), "long ago": kit.Base,
	} {
		status := Normal.Presence("", kit.Here(at), f.start).Status
		f.device(devices.On(user, "a", at-1), devices.Bye(user, "a", at))
		f.Read()
		require.Equal(t, hasLeft(at), f.published(user))
		for n := range lastseen.Instant(3) {
			f.device(devices.On(user, "b", at-20+2*n))
			require.Equal(t, []store.Change{entry(user, hasLeft(at), isHere(at, status))}, f.Read(), user)
			require.Equal(t, isHere(at, status), f.published(user))
			f.device(devices.On(user, "b", at-20+2*n))
			f.requireEntries() // once more
			f.device(devices.Bye(user, "b", at-19+2*n))
			require.Equal(t, []store.Change{entry(user, isHere(at, status), hasLeft(at))}, f.Read(), user)
			require.Equal(t, hasLeft(at), f.published(user))
		}
		f.device(devices.On(user, "b", at-1))
		require.Equal(t, []store.Change{entry(user, hasLeft(at), isHere(at, status))}, f.Read(), user)
		f.leave(user, at-1)
		require.Equal(t, []store.Change{entry(user, isHere(at, status), hasLeft(at))}, f.Read(), user)
	}
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
	batch := make([]store.DeviceSighting, 0, 2*users)
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
	batch := make([]store.DeviceSighting, len(names))
	for i, user := range names {
		claims[i] = devices.Claim{
			ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device"),
			At: m.drawAt(t), Gone: rapid.Bool().Draw(t, "gone"),
		}
		if rapid.Bool().Draw(t, "beside") { // another device that was heard at about the same time
			claims[i].At = m.states[user].At + rapid.SampledFrom([]lastseen.Instant{-1000, -1, 0, 1}).Draw(t, "by")
			claims[i].At = max(lastseen.MinInstant, min(claims[i].At, m.drawAt(t)))
		}
		batch[i] = claims[i].Sighting(user)
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

// firstDevice has a device heard in each shard of the namespace: from then on, leaves concern devices. Those from
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
