package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// drawClaim draws claims of few devices, at times in the window and around its ends, many of them at the same.
var drawClaim = rapid.Custom(func(t *rapid.T) claim {
	at := base + rapid.SampledFrom([]lastseen.Instant{
		0, 1, 2, 10, 11, window / 2, window - 1, window, window + 1, window + 2, window + 10, 2 * window, 3 * window,
	}).Draw(t, "at")
	return claim{
		id: rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "device"),
		at: at, gone: rapid.Bool().Draw(t, "gone"),
	}
})

// testDevicesModel makes random claims about one user, in random order and in calls of random size. After each call
// the user's state is what the rule says about all claims so far, and the records are those of the devices heard
// within the window.
func testDevicesModel(t *testing.T, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		s := open(t)
		recordOne(rt, s, on("first", "a", base)) // from here on, leaves concern devices
		claims := rapid.SliceOfN(drawClaim, 1, 14).Draw(rt, "claims")
		var last lastseen.State
		for said := 0; said < len(claims); {
			size := rapid.IntRange(1, min(4, len(claims)-said)).Draw(rt, "size")
			var got lastseen.State
			size, got = sendClaims(rt, s, claims[said:said+size])
			said += size
			require.GreaterOrEqual(rt, got.At, last.At, "the time went back")
			require.Equal(rt, state(claims[:said]), got, "%+v", claims[:said])
			requireClaimed(rt, s, claims[:said])
			last = got
		}
		require.Equal(rt, last, lookup(rt, s, "alice")[0])
	})
}

// sendClaims makes the first of some claims about alice: those of one kind, in one call. It returns their number and
// the resulting state.
func sendClaims(t *rapid.T, s store.Store, claims []claim) (int, lastseen.State) {
	c := claims[0]
	if c.id == "" {
		return 1, c.send(t, s, "alice")
	}
	var batch []store.DeviceSighting
	for _, c := range claims {
		if c.id == "" {
			break
		}
		batch = append(batch, c.sighting("alice"))
	}
	states := record(t, s, batch...)
	for _, state := range states {
		require.Equal(t, states[0], state, "the final state, for each")
	}
	return len(batch), states[0]
}

// requireClaimed checks the records of alice.
func requireClaimed(t *rapid.T, s store.Store, claims []claim) {
	d := devicesOf(t, s, "alice")
	require.Equal(t, state(claims), d.State)
	want, everywhere := map[string]claim{}, lastseen.Instant(0)
	for _, c := range claims {
		last := want[c.id]
		switch {
		case c.id == "" && c.gone:
			everywhere = max(everywhere, c.at)
		case c.id != "" && c.at >= d.State.At-window && (c.at > last.at || c.at == last.at && c.gone):
			want[c.id] = c
		}
	}
	for id, c := range want {
		c.gone = c.gone || c.at <= everywhere
		want[id] = c
	}
	got := map[string]claim{}
	for _, r := range d.Records {
		got[r.ID] = claim{r.ID, r.At, r.Gone}
	}
	require.Equal(t, want, got)
	live := map[string]claim{}
	for _, r := range d.Live(d.State.At) {
		live[r.ID] = claim{r.ID, r.At, r.Gone}
	}
	require.Equal(t, alive(claims, d.State.At), live)
}

// device records what devices of several users asserted, in the model of a feed.
func (m *changesModel) device(t *rapid.T) {
	if m.devices == nil {
		m.firstDevice(t)
	}
	names := rapid.SliceOfNDistinct(drawUser, 1, 6, rapid.ID[string]).Draw(t, "users")
	claims := make([]claim, len(names))
	batch := make([]store.DeviceSighting, len(names))
	for i, user := range names {
		claims[i] = claim{
			id: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device"),
			at: m.drawAt(t), gone: rapid.Bool().Draw(t, "gone"),
		}
		if rapid.Bool().Draw(t, "beside") { // another device that was heard at about the same time
			claims[i].at = m.states[user].At + rapid.SampledFrom([]lastseen.Instant{-1000, -1, 0, 1}).Draw(t, "by")
			claims[i].at = max(lastseen.MinInstant, min(claims[i].at, m.drawAt(t)))
		}
		batch[i] = claims[i].sighting(user)
	}
	clock := now(t, m)
	for i, state := range record(t, m, batch...) {
		if m.hides(names[i], claims[i].at, clock) {
			require.Equal(t, m.states[names[i]], state)
			continue
		}
		require.Equal(t, m.claims(names[i], claims[i]), state)
		m.become(names[i], state)
	}
}

// firstDevice has a device heard in the namespace: from then on, leaves concern devices. Those from before are
// repeated: a ping would hide them.
func (m *changesModel) firstDevice(t *rapid.T) {
	if m.devices == nil {
		m.devices = map[string][]claim{}
		for user, state := range m.states {
			m.know(user, store.UserDevices{State: state})
		}
		defer func() {
			for user, state := range m.states {
				if state.Left {
					require.Equal(t, state, leave(t, m, user, state.At))
				}
			}
		}()
	}
	at := now(t, m)
	state := recordOne(t, m, on("first", "a", at))
	require.Equal(t, m.claims("first", claim{"a", at, false}), state)
	m.become("first", state)
}

// claims notes a claim about a user and returns the state that results.
func (m *changesModel) claims(user string, c claim) lastseen.State {
	if m.devices == nil {
		return lastseen.Merge(m.states[user], lastseen.State{At: c.at, Left: c.gone})
	}
	m.devices[user] = append(m.devices[user], c)
	return state(m.devices[user])
}

// know replaces all claims about a user by what is stored.
func (m *changesModel) know(user string, d store.UserDevices) {
	if m.devices == nil {
		return
	}
	claims, left := []claim{}, d.State.Left
	for _, r := range d.Records {
		claims = append(claims, claim{r.ID, r.At, r.Gone})
		left = left && (!r.Gone || r.At != d.State.At)
	}
	if d.Left > 0 {
		claims = append(claims, claim{at: d.Left, gone: true})
	}
	if d.State.Known() {
		claims = append(claims, claim{at: d.State.At, gone: left})
	}
	m.devices[user] = claims
}

// requireDeviceRecords compares the devices that count of some users.
func (m *changesModel) requireDeviceRecords(t *rapid.T) {
	if m.devices == nil {
		return
	}
	user := drawUser.Draw(t, "devices of")
	d := devicesOf(t, m, user)
	require.Equal(t, m.states[user], d.State)
	want := alive(m.devices[user], d.State.At)
	live := map[string]claim{}
	for _, r := range d.Live(d.State.At) {
		live[r.ID] = claim{r.ID, r.At, r.Gone}
	}
	require.Equal(t, want, live, "%+v of %+v", d, m.devices[user])
}
