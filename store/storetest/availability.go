package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RunAvailability tests that stores keep the contract of availability, but for feeds. Each subtest opens a store of its
// own.
func RunAvailability(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Said", testSaid},
		{"Said/NeverSeen", testSaidOfNeverSeen},
		{"Said/Replaced", testSaidReplaced},
		{"Said/Notes", testSaidNotes},
		{"Said/UserIDs", testSaidOfUserIDs},
		{"Said/EndAlone", testSaidEndAlone},
		{"Said/State", testSaidLeavesStates},
		{"Said/Namespaces", testSaidNamespaces},
		{"Said/Many", testSaidMany},
		{"Until", testSaidEnds},
		{"Until/Past", testSaidEndedBefore},
		{"Until/Ahead", testSaidAhead},
		{"Until/WrongTimes", testSaidWithWrongTimes},
		{"Describe", testDescribe},
		{"Describe/Nothing", testDescribeNothing},
		{"Idle", testIdle},
		{"Idle/Gone", testIdleGone},
		{"Idle/Said", testIdleAndSaid},
		{"Invisible", testInvisible},
		{"Invisible/NeverSeen", testInvisibleNeverSeen},
		{"Invisible/Ahead", testInvisibleAhead},
		{"Invisible/Batch", testInvisibleInBatch},
		{"Invisible/Devices", testInvisibleDevices},
		{"Invisible/Idle", testInvisibleIdle},
		{"Invisible/Public", testInvisibleKeepsWhatOthersSee},
		{"Invisible/Again", testInvisibleAgain},
		{"Invisible/Until", testInvisibleUntil},
		{"Invisible/AgainAfterUntil", testInvisibleAgainAfterUntil},
		{"Invisible/Ended", testInvisibleEnded},
		{"Invisible/EndedTwice", testInvisibleEndedTwice},
		{"Invisible/NeverEnded", testVisibleAgainWithoutHiddenTime},
		{"Invisible/ClockAhead", testInvisibleAndClocksAhead},
		{"Invisible/Late", testInvisibleLate},
		{"Equal", testInvisibleEqualsLeft},
		{"Equal/Devices", testInvisibleEqualsLeftWithDevices},
		{"Equal/NewNamespace", testInvisibleEqualsLeftInNewNamespace},
		{"Forget", testSaidForget},
		{"Forget/Invisible", testInvisibleForget},
		{"Trim", testSaidTrim},
		{"Trim/Invisible", testInvisibleTrim},
		{"RemoveEmpty", testSaidRemoveEmpty},
		{"RemoveEmpty/Invisible", testInvisibleRemoveEmpty},
		{"Delete", testSaidDelete},
		{"CancelledContext", testAvailabilityCancelled},
		{"Close", testAvailabilityClosed},
		{"Concurrent", testSaidConcurrent},
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) {
		RunFaultyAvailability(t, func(t testing.TB) Breakable { return Breakable{Store: open(t)} })
	})
}

// The tests cannot set the store's clock, and do not wait for it. Time passes in them because callers pass earlier
// times: what was said an hour ago, until half an hour ago, has ended. Where a ping has to count after a hidden time,
// that ends a minute ago: Now may be ahead of the clock that a write reads.

// said is what a user says who adds a note.
func said(a lastseen.Availability, note string) lastseen.Said {
	return lastseen.Said{Availability: a, Note: note}
}

// until is what a user says for a while.
func until(end lastseen.Instant, s lastseen.Said) lastseen.Said {
	s.Until = end
	return s
}

var (
	busy      = said(lastseen.Busy, "in a meeting")
	away      = said(lastseen.Away, "")
	invisible = said(lastseen.Invisible, "not here")
	nothing   lastseen.Said
)

// say records what a user says now.
func say(t require.TestingT, s store.Store, user string, what lastseen.Said) lastseen.State {
	return sayAt(t, s, user, what, now(t, s))
}

func sayAt(t require.TestingT, s store.Store, user string, what lastseen.Said, at lastseen.Instant) lastseen.State {
	return sayIn(t, s, ns, user, what, at)
}

// sayIn records what a user says. Where that has to wait until all servers know that there are invisible users, it
// waits.
func sayIn(
	t require.TestingT, s store.Store, namespace, user string, what lastseen.Said, at lastseen.Instant,
) lastseen.State {
	for range 3 {
		state, err := s.SetAvailability(context.Background(), namespace, user, what, at)
		var settling *store.SettlingError
		if !errors.As(err, &settling) {
			require.NoError(t, err)
			return state
		}
		require.ErrorIs(t, err, store.ErrSettling)
		require.Equal(t, lastseen.Invisible, what.Availability, "only who becomes invisible has to wait")
		require.Greater(t, settling.Rest, time.Duration(0))
		require.LessOrEqual(t, settling.Rest, time.Minute)
		time.Sleep(settling.Rest)
	}
	require.Fail(t, "the namespace does not settle")
	return lastseen.State{}
}

// saying returns what a user says at a time.
func saying(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.Said {
	return sayingIn(t, s, ns, user, at)
}

func sayingIn(t require.TestingT, s store.Store, namespace, user string, at lastseen.Instant) lastseen.Said {
	what, err := s.ReadAvailability(context.Background(), namespace, user, at)
	require.NoError(t, err)
	return what.At(at)
}

// details returns what others see of users besides their states, without what has ended. It checks that Describe and
// ReadDetails agree, and that the states are those of Lookup.
func details(t require.TestingT, s store.Store, users ...string) map[string]store.Details {
	return detailsIn(t, s, ns, users...)
}

func detailsIn(t require.TestingT, s store.Store, namespace string, users ...string) map[string]store.Details {
	ctx := context.Background()
	states, described, err := s.Describe(ctx, namespace, users)
	require.NoError(t, err)
	looked, err := s.Lookup(ctx, namespace, users)
	require.NoError(t, err)
	require.Len(t, states, len(users))
	require.True(t, slices.Equal(looked, states), "Describe is Lookup with details: %v, %v", looked, states)
	records := make([]store.Record, len(users))
	for i, user := range users {
		records[i] = store.Record{User: user, State: states[i]}
	}
	read, err := s.ReadDetails(ctx, namespace, records)
	require.NoError(t, err)
	at := now(t, s)
	shown := inEffect(t, described, users, at)
	require.Equal(t, shown, inEffect(t, read, users, at), "ReadDetails differs from Describe")
	return shown
}

// inEffect returns details without what has ended. It checks that they are those of users who were asked for.
func inEffect(
	t require.TestingT, all map[string]store.Details, users []string, at lastseen.Instant,
) map[string]store.Details {
	require.True(t, all == nil || len(all) > 0, "the map is nil if no user has details")
	shown := map[string]store.Details{}
	for user, d := range all {
		require.Contains(t, users, user)
		require.NotEqual(t, lastseen.Invisible, d.Said.Availability, "others see that %q is invisible", user)
		if d.Said = d.Said.At(at); d != (store.Details{}) {
			shown[user] = d
		}
	}
	return shown
}

// requireSaid checks what a user says, and that others see it.
func requireSaid(t require.TestingT, s store.Store, user string, want lastseen.Said) {
	require.Equal(t, want, saying(t, s, user, now(t, s)), user)
	requireSeen(t, s, user, want)
}

// requireSeen checks what others see of what a user says.
func requireSeen(t require.TestingT, s store.Store, user string, want lastseen.Said) {
	require.Equal(t, want, details(t, s, user)[user].Said, user)
}

// requireInvisible checks that a user says Invisible, and what others see: a state, and what was said before.
func requireInvisible(
	t require.TestingT, s store.Store, user string, says lastseen.Said, state lastseen.State, seen lastseen.Said,
) {
	require.Equal(t, says, saying(t, s, user, now(t, s)), user)
	require.Equal(t, state, lookup(t, s, user)[0], user)
	requireSeen(t, s, user, seen)
}
