package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testSaidForget: nothing is left of what a user said who is forgotten.
func testSaidForget(t *testing.T, s store.Store) {
	start := now(t, s)
	ping(t, s, "alice", start)
	for _, user := range []string{"alice", "bob", "other"} {
		say(t, s, user, until(start+60*minute, busy))
	}
	forget(t, s, "alice", "bob", "nobody")
	requireSaid(t, s, "alice", nothing)
	requireSaid(t, s, "bob", nothing)
	requireSaid(t, s, "other", until(start+60*minute, busy))
	ping(t, s, "alice", start)
	requireSaid(t, s, "alice", nothing)
	forget(t, s, "alice", "other")
	require.True(t, removeEmpty(t, s, ns))
}

// hide makes users invisible from an instant on: one without an end, one until another instant, and one who says
// something else then. It returns the users.
func hide(t *testing.T, s store.Store, from, end lastseen.Instant, then lastseen.Said) []string {
	t.Helper()
	sayAt(t, s, "invisible", invisible, from)
	sayAt(t, s, "until", until(end, invisible), from)
	sayAt(t, s, "ended", invisible, from)
	sayAt(t, s, "ended", then, end)
	return []string{"invisible", "until", "ended"}
}

// requireHides checks that what a user does in a hidden time has no effect.
func requireHides(t *testing.T, s store.Store, user string, from, end lastseen.Instant) {
	t.Helper()
	require.Zero(t, ping(t, s, user, from+1), user)
	require.Zero(t, leave(t, s, user, end-1), user)
	require.Zero(t, recordOne(t, s, on(user, "a", end-1)), user)
}

// testInvisibleForget: pings count after a user is forgotten, whatever their time is.
func testInvisibleForget(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-30*minute
	hiding := hide(t, s, first, end, busy)
	forget(t, s, hiding...)
	for _, user := range hiding {
		requireSaid(t, s, user, nothing)
		require.Equal(t, nothing, saying(t, s, user, first))
		require.Zero(t, lookup(t, s, user)[0])
		require.Equal(t, here(first), ping(t, s, user, first))
		require.Equal(t, left(end-1), leave(t, s, user, end-1))
		require.Equal(t, here(end), recordOne(t, s, on(user, "a", end)))
	}
}

// testSaidTrim: what is said stays when the user's state is trimmed, and others see it.
func testSaidTrim(t *testing.T, s store.Store) {
	start := now(t, s)
	for _, user := range []string{"alice", "bob", "carol"} {
		ping(t, s, user, start-60*minute)
		record(t, s, idleAt(user, "a", start-60*minute))
	}
	ping(t, s, "fresh", start)
	say(t, s, "alice", busy)
	say(t, s, "bob", until(start+60*minute, away))
	say(t, s, "fresh", away)
	for range 2 {
		require.Equal(t, store.TrimResult{Deleted: 3}, trim(t, s, ns, start-30*minute, true))
		require.Equal(t, []string{"fresh"}, remaining(t, s))
		require.Equal(t, []lastseen.State{{}, {}, {}}, lookup(t, s, "alice", "bob", "carol"))
		requireSaid(t, s, "alice", busy)
		requireSaid(t, s, "bob", until(start+60*minute, away))
		require.Equal(t, map[string]store.Details{
			"alice": {Said: busy}, "bob": {Said: until(start+60*minute, away)}, "fresh": {Said: away},
		}, details(t, s, "alice", "bob", "carol", "fresh"), "nothing is left of devices")
		for _, user := range []string{"alice", "bob", "carol"} {
			requireNoDevices(t, s, user)
			ping(t, s, user, start-60*minute)
		}
	}
	require.Equal(t, here(start), ping(t, s, "alice", start))
	requireSaid(t, s, "alice", busy)
}

// testInvisibleTrim: what is hidden stays hidden when the user's state is trimmed.
func testInvisibleTrim(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-40*minute
	hiding := hide(t, s, first, end, busy)
	leave(t, s, "left", first)
	ping(t, s, "fresh", start)
	require.Equal(t, store.TrimResult{Deleted: 4}, trim(t, s, ns, start-30*minute, true))
	require.Zero(t, trim(t, s, ns, start-30*minute, true))
	for _, user := range hiding {
		requireHides(t, s, user, first, end)
		requireNoDevices(t, s, user)
	}
	require.Equal(t, []string{"fresh"}, remaining(t, s))
	requireInvisible(t, s, "invisible", invisible, lastseen.State{}, nothing)
	requireSaid(t, s, "ended", busy)
	require.Zero(t, sayAt(t, s, "invisible", until(start+60*minute, invisible), start), "the end alone changes")
	require.Zero(t, ping(t, s, "invisible", start), "hidden")
	require.Equal(t, here(start), ping(t, s, "until", start))
	require.Equal(t, here(start), ping(t, s, "ended", start))
}

// testSaidRemoveEmpty: a namespace stays in which a user says something that others see.
func testSaidRemoveEmpty(t *testing.T, s store.Store) {
	start := now(t, s)
	for _, what := range []lastseen.Said{busy, until(start+60*minute, away), said("", "a note")} {
		say(t, s, "alice", what)
		require.False(t, removeEmpty(t, s, ns))
		ping(t, s, "alice", start-60*minute)
		trim(t, s, ns, start-30*minute, true)
		require.False(t, removeEmpty(t, s, ns))
		requireSaid(t, s, "alice", what)
		require.Equal(t, []store.NamespaceInfo{{Name: ns}}, namespaces(t, s, 10))
		say(t, s, "alice", nothing)
		require.True(t, removeEmpty(t, s, ns))
		require.Empty(t, existing(t, s))
	}
	sayAt(t, s, "alice", until(start-30*minute, busy), start-60*minute)
	require.Equal(t, []string{ns}, existing(t, s))
	require.True(t, removeEmpty(t, s, ns), "it has ended")
	require.Empty(t, existing(t, s))
	requireSaid(t, s, "alice", nothing)
	ping(t, s, "alice", base)
	requireSaid(t, s, "alice", nothing)
}

// testInvisibleRemoveEmpty: a hidden time does not keep a namespace, and outlives it.
func testInvisibleRemoveEmpty(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-40*minute
	hiding := hide(t, s, first, end, nothing)
	require.False(t, removeEmpty(t, s, ns), "they are users who left")
	require.Equal(t, store.TrimResult{Deleted: 3}, trim(t, s, ns, start-30*minute, true))
	for range 2 {
		require.True(t, removeEmpty(t, s, ns))
		require.False(t, removeEmpty(t, s, ns))
		for _, user := range hiding {
			requireHides(t, s, user, first, end)
		}
		require.Empty(t, existing(t, s), "what is hidden creates no namespace")
		requireInvisible(t, s, "invisible", invisible, lastseen.State{}, nothing)
		require.Empty(t, existing(t, s), "reading creates no namespace")
		again := until(start+60*minute, invisible)
		require.Zero(t, sayAt(t, s, "invisible", again, start))
		require.Zero(t, sayAt(t, s, "ended", nothing, start))
		requireInvisible(t, s, "invisible", again, lastseen.State{}, nothing)
		require.Zero(t, sayAt(t, s, "invisible", invisible, start))
		require.Empty(t, existing(t, s), "neither does an end that changes")
		write(s.Ping).in(t, ns, start, "other", "invisible")
		require.Equal(t, []string{ns}, existing(t, s))
		require.Equal(t, []string{"other"}, remaining(t, s))
		forget(t, s, "other")
	}
	require.Zero(t, sayAt(t, s, "invisible", nothing, start-minute))
	require.Zero(t, ping(t, s, "invisible", start-minute-1), "hidden")
	require.Equal(t, here(start), ping(t, s, "invisible", start))
	require.Equal(t, here(start), ping(t, s, "until", start))
}

// testSaidDelete: nothing is left of a namespace that was deleted.
func testSaidDelete(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-40*minute
	names := []string{"busy", "invisible", "until", "ended"}
	sayAt(t, s, "busy", busy, first)
	hide(t, s, first, end, busy)
	sayIn(t, s, "other", "busy", busy, first)
	for range 2 {
		require.NoError(t, s.DeleteNamespace(context.Background(), ns))
		require.Equal(t, []string{"other"}, existing(t, s))
		for _, user := range names {
			requireSaid(t, s, user, nothing)
			require.Equal(t, here(first+1), ping(t, s, user, first+1), "nothing is hidden")
			requireSaid(t, s, user, nothing)
		}
	}
	require.Equal(t, store.Details{Said: busy}, detailsIn(t, s, "other", "busy")["busy"])
	sayAt(t, s, "busy", invisible, start)
	require.Equal(t, left(start), ping(t, s, "busy", start+1), "hidden")

	trim(t, s, ns, start+60*minute, true)
	forget(t, s, names[1:]...)
	removeEmpty(t, s, ns)
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	require.Equal(t, here(start+1), ping(t, s, "busy", start+1), "deleted although it was not listed any longer")
}

// availabilityCalls is every method of availability, of the namespace ns.
func availabilityCalls(s store.Store) map[string]func(context.Context) error {
	set := func(what lastseen.Said) func(context.Context) error {
		return func(ctx context.Context) error { return errorOf(s.SetAvailability(ctx, ns, "alice", what, base)) }
	}
	return map[string]func(context.Context) error{
		"SetAvailability":           set(busy),
		"SetAvailability/Invisible": set(invisible),
		"SetAvailability/Nothing":   set(nothing),
		"ReadAvailability": func(ctx context.Context) error {
			return errorOf(s.ReadAvailability(ctx, ns, "alice", base))
		},
		"Describe": func(ctx context.Context) error {
			_, _, err := s.Describe(ctx, ns, []string{"alice", "bob"})
			return err
		},
		"ReadDetails": func(ctx context.Context) error {
			return errorOf(s.ReadDetails(ctx, ns, []store.Record{{User: "bob", State: here(base)}}))
		},
	}
}

func testAvailabilityCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	say(t, s, "bob", busy)
	sayAt(t, s, "carol", invisible, base)
	for name, call := range availabilityCalls(s) {
		require.ErrorIs(t, call(ctx), context.Canceled, name)
	}
	requireSaid(t, s, "alice", nothing)
	require.Zero(t, lookup(t, s, "alice")[0], "nothing happened")
}

func testAvailabilityClosed(t *testing.T, s store.Store) {
	say(t, s, "bob", busy)
	sayAt(t, s, "carol", invisible, base)
	require.NoError(t, s.Close())
	for name, call := range availabilityCalls(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
}

// testNoAvailability: a namespace that cannot have availability says so, and works.
func testNoAvailability(t *testing.T, s store.Store) {
	for range 2 {
		for name, call := range availabilityCalls(s) {
			switch name {
			case "ReadAvailability", "Describe", "ReadDetails":
				require.NoError(t, call(context.Background()), name)
			default:
				require.ErrorIs(t, call(context.Background()), store.ErrNoAvailability, name)
			}
		}
		requireSaid(t, s, "alice", nothing)
		require.Equal(t, []lastseen.State{{}}, lookup(t, s, "alice"), "nothing is recorded")
		require.Equal(t, here(base), ping(t, s, "bob", base))
		require.Empty(t, details(t, s, "alice", "bob"))
	}
}
