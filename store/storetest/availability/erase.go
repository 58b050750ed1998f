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

// hide makes users invisible from an instant on: one without an end, one until another instant, and one who says
// something else then. It returns the users.
func hide(t *testing.T, s store.Store, from, end lastseen.Instant, then lastseen.AvailabilityState) []string {
	t.Helper()
	SetAt(t, s, "invisible", Invisible, from)
	SetAt(t, s, "until", Until(end, Invisible), from)
	SetAt(t, s, "ended", Invisible, from)
	SetAt(t, s, "ended", then, end)
	return []string{"invisible", "until", "ended"}
}

// requireHides checks that what a user does in a hidden time has no effect.
func requireHides(t *testing.T, s store.Store, user string, from, end lastseen.Instant) {
	t.Helper()
	require.Zero(t, kit.Ping(t, s, user, from+1), user)
	require.Zero(t, kit.Leave(t, s, user, end-1), user)
	require.Zero(t, devices.RecordOne(t, s, devices.On(user, "a", end-1)), user)
}

// testInvisibleRemoveEmpty: a hidden time does not keep a namespace, and outlives it.
func testInvisibleRemoveEmpty(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	first, end := start-60*kit.Minute, start-40*kit.Minute
	hiding := hide(t, s, first, end, Nothing)
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace), "they are users who left")
	require.Equal(t, store.TrimResult{Deleted: 3}, kit.Trim(t, s, kit.Namespace, start-30*kit.Minute, true))
	for range 2 {
		require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
		require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
		for _, user := range hiding {
			requireHides(t, s, user, first, end)
		}
		require.Empty(t, kit.Existing(t, s), "what is hidden creates no namespace")
		requireInvisible(t, s, "invisible", Invisible, lastseen.State{}, Nothing)
		require.Empty(t, kit.Existing(t, s), "reading creates no namespace")
		again := Until(start+60*kit.Minute, Invisible)
		require.Zero(t, SetAt(t, s, "invisible", again, start))
		require.Zero(t, SetAt(t, s, "ended", Nothing, start))
		requireInvisible(t, s, "invisible", again, lastseen.State{}, Nothing)
		require.Zero(t, SetAt(t, s, "invisible", Invisible, start))
		require.Empty(t, kit.Existing(t, s), "neither does an end that changes")
		kit.Write(s.Ping).In(t, kit.Namespace, start, "other", "invisible")
		require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s))
		require.Equal(t, []string{"other"}, kit.Remaining(t, s))
		kit.Forget(t, s, "other")
	}
	require.Zero(t, SetAt(t, s, "invisible", Nothing, start-kit.Minute))
	require.Zero(t, kit.Ping(t, s, "invisible", start-kit.Minute-1), "hidden")
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "invisible", start))
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "until", start))

	kit.Forget(t, s, "invisible", "until")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	kit.Forget(t, s, hiding...)
	require.Equal(t, kit.Here(first+1), kit.Ping(t, s, "ended", first+1), "nothing of who is forgotten is hidden")
}

// testAvailabilityDelete: nothing is left of a namespace that was deleted.
func testAvailabilityDelete(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	first, end := start-60*kit.Minute, start-40*kit.Minute
	names := []string{"busy", "invisible", "until", "ended"}
	SetAt(t, s, "busy", Busy, first)
	hide(t, s, first, end, Busy)
	SetIn(t, s, "other", "busy", Busy, first)
	for range 2 {
		require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
		require.Equal(t, []string{"other"}, kit.Existing(t, s))
		for _, user := range names {
			Require(t, s, user, Nothing)
			require.Equal(t, kit.Here(first+1), kit.Ping(t, s, user, first+1), "nothing is hidden")
			Require(t, s, user, Nothing)
		}
	}
	require.Equal(t, store.Details{Availability: Busy}, DetailsIn(t, s, "other", "busy")["busy"])
	SetAt(t, s, "busy", Invisible, start)
	require.Equal(t, kit.Left(start), kit.Ping(t, s, "busy", start+1), "hidden")

	kit.Trim(t, s, kit.Namespace, start+60*kit.Minute, true)
	kit.Forget(t, s, names[1:]...)
	kit.RemoveEmpty(t, s, kit.Namespace)
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
	require.Equal(t, kit.Here(start+1), kit.Ping(t, s, "busy", start+1),
		"deleted although it was not listed any longer")
}
