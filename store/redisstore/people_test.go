package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestNoAvailability: sets that other programs write have none, nor have prefixes with braces.
func TestNoAvailability(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, o := range []redisstore.Options{
		{URL: url, Prefix: "{p}:"},
		{URL: url, Prefix: "s:", Unit: redisstore.Seconds},
		{URL: url, Prefix: "k:", Layouts: map[string]redisstore.Layout{"chat": {Key: "mine"}}},
	} {
		s := newStore(t, o)
		require.NoError(t, ping(s, "chat", "alice"))
		for _, a := range []lastseen.Availability{"", lastseen.Busy, lastseen.Invisible} {
			_, err := s.SetAvailability(ctx, "chat", "alice", lastseen.Said{Availability: a}, base)
			require.ErrorIs(t, err, store.ErrNoAvailability)
		}
		said, err := s.ReadAvailability(ctx, "chat", "alice", base)
		require.NoError(t, err)
		require.Zero(t, said)
		states, details, err := s.Describe(ctx, "chat", []string{"alice"})
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{At: base}}, states)
		require.Nil(t, details)
	}
}

var (
	inMeeting = lastseen.Said{Availability: lastseen.Busy, Note: "in a meeting"}
	invisible = lastseen.Said{Availability: lastseen.Invisible, Note: "not here"}
)

// say records what a user of the namespace chat says now.
func say(t rapid.TB, s store.Store, user string, said lastseen.Said) lastseen.State {
	t.Helper()
	return sayAt(t, s, user, said, nowOf(t, s))
}

func sayAt(t rapid.TB, s store.Store, user string, said lastseen.Said, at lastseen.Instant) lastseen.State {
	t.Helper()
	state, err := s.SetAvailability(context.Background(), "chat", user, said, at)
	require.NoError(t, err)
	return state
}

func nowOf(t rapid.TB, s store.Store) lastseen.Instant {
	t.Helper()
	now, err := s.Now(context.Background())
	require.NoError(t, err)
	return now
}

// saying returns what a user of the namespace chat says now.
func saying(t *testing.T, s store.Store, user string) lastseen.Said {
	t.Helper()
	now := nowOf(t, s)
	said, err := s.ReadAvailability(context.Background(), "chat", user, now)
	require.NoError(t, err)
	return said.At(now)
}

// described returns what others see of a user of the namespace chat besides the state.
func described(t *testing.T, s store.Store, user string) store.Details {
	t.Helper()
	_, details, err := s.Describe(context.Background(), "chat", []string{user})
	require.NoError(t, err)
	return details[user]
}

// TestDetailsOfBatches: a batch has details in the order of its items, whatever shards they are in.
func TestDetailsOfBatches(t *testing.T) {
	t.Parallel()
	s := newStore(t, redisstore.Options{URL: redistest.Start(t), Shards: 7})
	users := numbered("u", 30)
	for i := 0; i < len(users); i += 3 {
		say(t, s, users[i], inMeeting)
	}
	asked := slices.Concat(users, users[:2])
	batches := []*store.Batch[string]{
		{Namespace: "chat", Items: asked}, {Namespace: "other", Items: users}, {Namespace: "chat", Items: users[1:2]},
	}
	s.LookupBatches(context.Background(), batches)
	var want []store.ItemDetails
	for at := 0; at < len(asked); at += 3 {
		want = append(want, store.ItemDetails{At: at, Details: store.Details{Said: inMeeting}})
	}
	require.NoError(t, batches[0].Err)
	require.Equal(t, want, batches[0].Details, "the one asked about twice, too")
	require.Empty(t, batches[1].Details)
	require.Empty(t, batches[2].Details)
}

// pingAt pings a user of the namespace chat.
func pingAt(t *testing.T, s store.Store, user string, at lastseen.Instant) lastseen.State {
	t.Helper()
	states, err := s.Ping(context.Background(), "chat", sightingsAt(at, user))
	require.NoError(t, err)
	return states[0]
}

// becomeInvisible has alice become invisible, without waiting if that is not possible yet.
func becomeInvisible(t *testing.T, s store.Store) (settling *store.SettlingError) {
	t.Helper()
	_, err := s.SetAvailability(context.Background(), "chat", "alice", invisible, nowOf(t, s))
	if !errors.As(err, &settling) {
		require.NoError(t, err)
	}
	return settling
}

// TestRightsOfPeople: those for pings are enough, also to move what users say, and to remove it.
func TestRightsOfPeople(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	restrict(t, newClient(t, url))
	s := newStore(t, redisstore.Options{URL: asApp(url), Invisible: true})
	s.SettleAtOnce()
	require.NoError(t, ping(s, "chat", "alice", "bob"))
	require.NoError(t, s.Register(ctx, []string{"chat"}))
	for _, said := range []lastseen.Said{inMeeting, invisible, {}, invisible, inMeeting} {
		say(t, s, "alice", said)
		require.Equal(t, said, saying(t, s, "alice"))
		pingAt(t, s, "alice", nowOf(t, s))
		described(t, s, "alice")
		idle := onDevice("bob", "tab", base)
		idle.Idle = base - 1
		record(t, s, idle)
	}
	_, err := s.ReadDetails(ctx, "chat", []store.Record{{User: "alice"}})
	require.NoError(t, err)
	_, err = trim(s, "chat", time.Hour)
	require.NoError(t, err)
	for _, user := range []string{"alice", "bob"} {
		require.NoError(t, s.Forget(ctx, "chat", user))
	}
	_, err = s.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
}

// TestPeopleWhileSlotsMove: calls fail as in an outage or work, and no hidden user is seen meanwhile or afterwards.
func TestPeopleWhileSlotsMove(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	ctx, c := context.Background(), redistest.StartCluster(t, 0)
	s := newStore(t, redisstore.Options{URL: c.URL()})
	s.SettleAtOnce()
	require.Equal(t, c.Slot(t, chat), c.Slot(t, hiddenOfChat))
	require.NoError(t, ping(s, "chat", "bob"))
	say(t, s, "bob", inMeeting)
	state := say(t, s, "alice", invisible)
	use := func() {
		for range 5 {
			states, err := s.Ping(ctx, "chat", sightingsAt(nowOf(t, s), "alice"))
			require.True(t, err == nil && states[0] == state || isOutage(err), "%v, %v", states, err)
			_, err = s.SetAvailability(ctx, "chat", "bob", inMeeting, nowOf(t, s))
			require.True(t, err == nil || isOutage(err), "%v", err)
		}
	}
	for range 2 {
		owner := slices.Index(c.Primaries, c.Owner(t, chat))
		c.MoveSlot(t, c.Slot(t, chat), c.Primaries[(owner+1)%3], use)
		untilSuccess(t, func() error { return errorOf(s.Ping(ctx, "chat", sightingsAt(nowOf(t, s), "alice"))) })
		require.Equal(t, state, lookup(t, s, "alice")[0])
		require.Equal(t, inMeeting, described(t, s, "bob").Said)
		require.Equal(t, invisible, saying(t, s, "alice"))
	}
}

func errorOf[T any](_ T, err error) error { return err }
