package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// The tests of equality use two namespaces. In each of them a user goes away at the same time: in one by a leave, in
// the other by becoming invisible. From then on the invisible one goes on pinging, and no method may show a difference.

const (
	leftNS   = "left"
	hiddenNS = "hidden"
)

// pair is the two namespaces.
type pair struct {
	t *testing.T
	s store.Store
}

func (p pair) both(do func(namespace string)) {
	do(leftNS)
	do(hiddenNS)
}

func (p pair) ping(user string, at lastseen.Instant) {
	p.both(func(namespace string) { write(p.s.Ping).in(p.t, namespace, at, user) })
}

// goes has alice leave in one namespace, and become invisible in the other one.
func (p pair) goes(what lastseen.Said, at lastseen.Instant) {
	const user = "alice"
	state := write(p.s.Leave).in(p.t, leftNS, at, user)[0]
	require.Equal(p.t, state, sayIn(p.t, p.s, hiddenNS, user, what, at))
	p.requireEqual("gone")
}

// goesOn asserts all that alice can, invisibly, at times up to one, and checks after each that nothing shows.
func (p pair) goesOn(from, to lastseen.Instant) {
	const user = "alice"
	state := p.look(hiddenNS, user)
	for _, at := range []lastseen.Instant{from, from + 1, (from + to) / 2, to} {
		require.Equal(p.t, state, write(p.s.Ping).in(p.t, hiddenNS, at, user)[0])
		p.requireEqual("ping at %s", at)
		require.Equal(p.t, state, write(p.s.Leave).in(p.t, hiddenNS, at, user)[0])
		p.requireEqual("leave at %s", at)
		for _, d := range []store.DeviceSighting{
			on(user, "a", at), idleAt(user, "b", at), bye(user, "a", at), withMeta(on(user, "c", at), `{"x":1}`),
		} {
			require.Equal(p.t, state, recordIn(p.t, p.s, hiddenNS, d)[0])
			p.requireEqual("%+v", d)
		}
	}
}

func (p pair) look(namespace, user string) lastseen.State {
	states, err := p.s.Lookup(context.Background(), namespace, []string{user})
	require.NoError(p.t, err)
	return states[0]
}

// requireEqual checks that all reads of both namespaces have the same results.
func (p pair) requireEqual(why string, args ...any) {
	p.t.Helper()
	require.Equal(p.t, p.seen(leftNS), p.seen(hiddenNS), append([]any{why}, args...)...)
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
	for _, info := range namespaces(p.t, p.s, 10) {
		if info.Name == namespace {
			v.exists = append(v.exists, store.NamespaceInfo{Newest: info.Newest})
		}
	}
	var err error
	v.details = detailsIn(p.t, p.s, namespace, names...)
	v.states, err = p.s.Lookup(ctx, namespace, names)
	require.NoError(p.t, err)
	v.counts, err = p.s.Count(ctx, namespace, everyone())
	require.NoError(p.t, err)
	v.newest, err = p.s.Newest(ctx, namespace)
	require.NoError(p.t, err)
	for _, order := range []store.Order{store.Newest, store.Oldest} {
		page, err := p.s.List(ctx, namespace, store.ListQuery{Ranges: everyone(), Order: order, Limit: 10})
		require.NoError(p.t, err)
		v.lists = append(v.lists, page)
	}
	v.ofPage, err = p.s.ReadDetails(ctx, namespace, v.lists[0])
	require.NoError(p.t, err)
	for _, user := range names {
		v.devices = append(v.devices, devicesIn(p.t, p.s, namespace, user))
	}
	return v
}

// testInvisibleEqualsLeft: for all methods but ReadAvailability, an invisible user equals one who left.
func testInvisibleEqualsLeft(t *testing.T, s store.Store) {
	p, start := pair{t, s}, now(t, s)
	first, end := start-60*minute, start-40*minute
	p.ping("bob", start)
	p.ping("alice", first-10)
	p.goes(until(end, invisible), first)
	p.goesOn(first, end-1)
	require.Equal(t, until(end, invisible), sayingIn(t, s, hiddenNS, "alice", end-1))

	trimmed := func(cutoff lastseen.Instant) {
		require.Equal(t, trim(t, s, leftNS, cutoff, true), trim(t, s, hiddenNS, cutoff, true))
		p.requireEqual("trimmed")
	}
	trimmed(first - minute)
	trimmed(start - 30*minute)
	p.goesOn(first, end-1)
	trimmed(start + 10*minute)
	p.goesOn(first, end-1)
	require.True(t, removeEmpty(t, s, leftNS))
	require.True(t, removeEmpty(t, s, hiddenNS))
	p.goesOn(first, end-1)

	p.ping("alice", end)
	p.requireEqual("visible again")
	p.goes(invisible, start-20*minute)
	p.goesOn(start-20*minute, start)
	sayIn(t, s, hiddenNS, "alice", nothing, start-10*minute)
	p.requireEqual("visible again")
	p.goesOn(first, start-10*minute-1)
	p.ping("alice", start)
	p.requireEqual("visible again")
	p.both(func(namespace string) { require.NoError(t, s.Forget(context.Background(), namespace, "alice")) })
	p.requireEqual("forgotten")
	p.ping("alice", first)
	p.requireEqual("pinged again")
}

// testInvisibleEqualsLeftWithDevices is the same for users who have devices, some of them idle, and who say something.
func testInvisibleEqualsLeftWithDevices(t *testing.T, s store.Store) {
	p, start := pair{t, s}, now(t, s)
	first, hour := start-2*minute, until(start+60*minute, busy)
	p.both(func(namespace string) {
		recordIn(t, s, namespace, on("bob", "a", start), on("alice", "a", first-20), idleAt("alice", "b", first-10))
		sayIn(t, s, namespace, "alice", hour, first)
		recordIn(t, s, namespace, idleAt("bob", "a", start))
	})
	p.goes(invisible, first)
	p.goesOn(first-20, start)
	require.Equal(t, store.Details{Said: hour}, detailsIn(t, s, hiddenNS, "alice")["alice"])
	p.both(func(namespace string) { sayIn(t, s, namespace, "alice", away, start-minute) })
	p.requireEqual("visible again")
	p.both(func(namespace string) {
		recordIn(t, s, namespace,
			on("alice", "a", start+10), bye("alice", "b", start+11), idleAt("alice", "c", start+12))
	})
	p.requireEqual("devices")
	p.both(func(namespace string) { recordIn(t, s, namespace, bye("alice", "a", start+13)) })
	p.requireEqual("devices")
	p.goes(until(start+60*minute, invisible), start+20)
	p.goesOn(first, start+60*minute)
	p.both(func(namespace string) { require.NoError(t, s.Forget(context.Background(), namespace, "alice")) })
	p.requireEqual("forgotten")
}

// testInvisibleEqualsLeftInNewNamespace is the same for the first user of a namespace.
func testInvisibleEqualsLeftInNewNamespace(t *testing.T, s store.Store) {
	p, start := pair{t, s}, now(t, s)
	p.goes(invisible, start-60*minute)
	p.goesOn(start-60*minute, start)
	p.both(func(namespace string) {
		trim(t, s, namespace, start-30*minute, true)
		require.True(t, removeEmpty(t, s, namespace))
	})
	p.goesOn(start-60*minute, start)
	p.both(func(namespace string) { require.NoError(t, s.DeleteNamespace(context.Background(), namespace)) })
	p.ping("alice", start-60*minute)
	p.requireEqual("deleted")
}
