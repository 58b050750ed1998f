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
