package availability

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// The tests of equality use two namespaces. In each of them a user goes away at the same time: in one by a leave, in
// the other by becoming invisible. From then on the invisible one goes on pinging, and no method may show a difference.

// LeftNS and hiddenNS are these namespaces.
const (
	LeftNS   = "left"
	HiddenNS = "hidden"
)

// pair is the two namespaces.
type pair struct {
	t *testing.T
	s store.Store
}

func (p pair) both(do func(namespace string)) {
	do(LeftNS)
	do(HiddenNS)
}

func (p pair) ping(user string, at lastseen.Instant) {
	p.both(func(namespace string) { kit.Write(p.s.Ping).In(p.t, namespace, at, user) })
}

// goes has alice leave in one namespace, and become invisible in the other one.
func (p pair) goes(what lastseen.AvailabilityState, at lastseen.Instant) {
	const user = "alice"
	state := kit.Write(p.s.Leave).In(p.t, LeftNS, at, user)[0]
	require.Equal(p.t, state, SetIn(p.t, p.s, HiddenNS, user, what, at))
	p.requireEqual("gone")
}

// staysHidden has alice send all that she can, invisibly, at times up to one, and checks after each that nothing
// shows.
func (p pair) staysHidden(from, to lastseen.Instant) {
	const user = "alice"
	state := p.look(HiddenNS, user)
	for _, at := range []lastseen.Instant{from, from + 1, (from + to) / 2, to} {
		require.Equal(p.t, state, kit.Write(p.s.Ping).In(p.t, HiddenNS, at, user)[0])
		p.requireEqual("ping at %s", at)
		require.Equal(p.t, state, kit.Write(p.s.Leave).In(p.t, HiddenNS, at, user)[0])
		p.requireEqual("leave at %s", at)
		for _, d := range []store.DeviceEvent{
			devices.On(user, "a", at), IdleAt(user, "b", at), devices.Bye(user, "a",
				at), devices.WithMeta(devices.On(user, "c", at), `{"x":1}`),
		} {
			require.Equal(p.t, state, devices.RecordIn(p.t, p.s, HiddenNS, d)[0])
			p.requireEqual("%+v", d)
		}
	}
}

func (p pair) look(namespace, user string) lastseen.State {
	states, _, err := p.s.Describe(context.Background(), namespace, []string{user})
	require.NoError(p.t, err)
	return states[0]
}

// requireEqual checks that all reads of both namespaces have the same results.
func (p pair) requireEqual(why string, args ...any) {
	p.t.Helper()
	require.Equal(p.t, p.seen(LeftNS), p.seen(HiddenNS), append([]any{why}, args...)...)
}

// answers is all that the methods of a store return about a namespace, but for its feed.
type answers struct {
	exists  []store.NamespaceInfo
	states  []lastseen.State
	counts  []int64
	newest  lastseen.Instant
	lists   [][]store.Record
	devices []store.UserDevices
	details map[string]store.Details
	ofPage  map[string]store.Details
}

func (p pair) seen(namespace string) (v answers) {
	ctx, names := context.Background(), []string{"alice", "bob", "nobody"}
	for _, info := range kit.Namespaces(p.t, p.s, 10) {
		if info.Name == namespace {
			v.exists = append(v.exists, store.NamespaceInfo{Newest: info.Newest})
		}
	}
	var err error
	v.details = DetailsIn(p.t, p.s, namespace, names...)
	v.states, _, err = p.s.Describe(ctx, namespace, names)
	require.NoError(p.t, err)
	v.counts, err = p.s.Count(ctx, namespace, kit.Everyone())
	require.NoError(p.t, err)
	v.newest, err = p.s.Newest(ctx, namespace)
	require.NoError(p.t, err)
	for _, order := range []store.Order{store.Newest, store.Oldest} {
		page, err := p.s.List(ctx, namespace, store.ListQuery{Ranges: kit.Everyone(), Order: order, Limit: 10})
		require.NoError(p.t, err)
		v.lists = append(v.lists, page)
	}
	v.ofPage, err = p.s.ReadDetails(ctx, namespace, v.lists[0])
	require.NoError(p.t, err)
	for _, user := range names {
		v.devices = append(v.devices, devices.In(p.t, p.s, namespace, user))
	}
	return v
}

// testInvisibleEqualsLeft: for all methods but ReadAvailability, an invisible user equals one who left.
func testInvisibleEqualsLeft(t *testing.T, s store.Store) {
	p, start := pair{t, s}, kit.Now(t, s)
	first, end := start-60*kit.Minute, start-40*kit.Minute
	p.ping("bob", start)
	p.ping("alice", first-10)
	p.goes(Until(end, Invisible), first)
	p.staysHidden(first, end-1)
	require.Equal(t, Until(end, Invisible), getIn(t, s, HiddenNS, "alice", end-1))

	trimmed := func(cutoff lastseen.Instant) {
		require.Equal(t, kit.Trim(t, s, LeftNS, cutoff, true), kit.Trim(t, s, HiddenNS, cutoff, true))
		p.requireEqual("trimmed")
	}
	trimmed(first - kit.Minute)
	trimmed(start - 30*kit.Minute)
	p.staysHidden(first, end-1)
	trimmed(start + 10*kit.Minute)
	p.staysHidden(first, end-1)
	require.True(t, kit.RemoveEmpty(t, s, LeftNS))
	require.True(t, kit.RemoveEmpty(t, s, HiddenNS))
	p.staysHidden(first, end-1)

	p.ping("alice", end)
	p.requireEqual("visible again")
	p.goes(Invisible, start-20*kit.Minute)
	p.staysHidden(start-20*kit.Minute, start)
	SetIn(t, s, HiddenNS, "alice", Nothing, start-10*kit.Minute)
	p.requireEqual("visible again")
	p.staysHidden(first, start-10*kit.Minute-1)
	p.ping("alice", start)
	p.requireEqual("visible again")
	p.both(func(namespace string) { require.NoError(t, s.Forget(context.Background(), namespace, "alice")) })
	p.requireEqual("forgotten")
	p.ping("alice", first)
	p.requireEqual("pinged again")
}

// testInvisibleEqualsLeftWithDevices is the same for users who have devices, some of them idle, and an availability.
func testInvisibleEqualsLeftWithDevices(t *testing.T, s store.Store) {
	p, start := pair{t, s}, kit.Now(t, s)
	first, hour := start-2*kit.Minute, Until(start+60*kit.Minute, Busy)
	p.both(func(namespace string) {
		devices.RecordIn(t, s, namespace, devices.On("bob", "a", start), devices.On("alice", "a", first-20),
			IdleAt("alice", "b", first-10))
		SetIn(t, s, namespace, "alice", hour, first)
		devices.RecordIn(t, s, namespace, IdleAt("bob", "a", start))
	})
	p.goes(Invisible, first)
	p.staysHidden(first-20, start)
	require.Equal(t, store.Details{Availability: hour}, DetailsIn(t, s, HiddenNS, "alice")["alice"])
	p.both(func(namespace string) { SetIn(t, s, namespace, "alice", Away, start-kit.Minute) })
	p.requireEqual("visible again")
	p.both(func(namespace string) {
		devices.RecordIn(t, s, namespace,
			devices.On("alice", "a", start+10), devices.Bye("alice", "b", start+11), IdleAt("alice", "c", start+12))
	})
	p.requireEqual("devices")
	p.both(func(namespace string) { devices.RecordIn(t, s, namespace, devices.Bye("alice", "a", start+13)) })
	p.requireEqual("devices")
	p.goes(Until(start+60*kit.Minute, Invisible), start+20)
	p.staysHidden(first, start+60*kit.Minute)
	p.both(func(namespace string) { require.NoError(t, s.Forget(context.Background(), namespace, "alice")) })
	p.requireEqual("forgotten")
}

// testInvisibleEqualsLeftInNewNamespace is the same for the first user of a namespace.
func testInvisibleEqualsLeftInNewNamespace(t *testing.T, s store.Store) {
	p, start := pair{t, s}, kit.Now(t, s)
	p.goes(Invisible, start-60*kit.Minute)
	p.staysHidden(start-60*kit.Minute, start)
	p.both(func(namespace string) {
		kit.Trim(t, s, namespace, start-30*kit.Minute, true)
		require.True(t, kit.RemoveEmpty(t, s, namespace))
	})
	p.staysHidden(start-60*kit.Minute, start)
	p.both(func(namespace string) { require.NoError(t, s.DeleteNamespace(context.Background(), namespace)) })
	p.ping("alice", start-60*kit.Minute)
	p.requireEqual("deleted")
}
