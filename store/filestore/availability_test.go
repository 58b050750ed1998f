package filestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// keptIn returns all that a store keeps of the availability of users, as texts, also in namespaces that do not exist.
func keptIn(s *Store) map[string]string { return dumpOf(s.tables).availabilityTexts() }

// usersWithDetails returns the same, and the details that others see.
func usersWithDetails(t testing.TB, s *Store) map[string]string {
	t.Helper()
	all := keptIn(s)
	for name, states := range truthOf(t, s) {
		_, details, err := s.Describe(context.Background(), name, slices.Collect(maps.Keys(states)))
		require.NoError(t, err)
		for user, d := range details {
			all[name+"/"+user] += " others see " + fmt.Sprint(d)
		}
	}
	return all
}

var invisible = lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: "not here"}

// unlisted has a user be hidden in a namespace that does not exist.
func unlisted(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background()
	availability.SetIn(t, s, "chat", "gone", invisible, base.Add(-time.Hour))
	now := kit.Now(t, s)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: now, All: true})
	require.NoError(t, err)
	require.Equal(t, 1, result.Deleted)
	require.True(t, kit.RemoveEmpty(t, s, "chat"))
	require.Equal(t, map[string]string{"(chat)/gone": fmt.Sprint(memstore.Hidden{
		HiddenTime: lastseen.HiddenTime{End: lastseen.MaxInstant}, Note: invisible.Note,
	})}, usersWithDetails(t, s))
}

// TestUnlisted: a namespace that only has hidden users is not listed and not counted, and their pings do not create it.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, sync := range []time.Duration{0, time.Hour} {
		m := &kit.Machine{}
		o := optionsOf(t, m)
		o.Sync, o.MaxNamespaces = sync, 1
		s := open(t, o)
		unlisted(t, s)
		require.Empty(t, truthOf(t, s))
		_, err := s.Ping(ctx, "other", []store.PresenceEvent{{User: "alice", At: base}})
		require.NoError(t, err, "it is not counted")
		for range 2 {
			for _, at := range []lastseen.Instant{base, base - 1} {
				require.Zero(t, kit.Ping(t, s, "gone", at))
			}
			state := availability.SetIn(t, s, "chat", "gone", invisible, base)
			require.Zero(t, state, "still invisible")
			availability.SetIn(t, s, "chat", "gone", lastseen.AvailabilityState{}, base.Add(-time.Minute))
			require.Zero(t, devices.RecordOne(t, s, devices.On("gone", "a", base.Add(-time.Minute)-1)))
			require.Len(t, truthOf(t, s), 1)
			_, err = s.Ping(ctx, "chat", []store.PresenceEvent{{User: "gone", At: base.Add(-time.Minute)}})
			require.ErrorIs(t, err, store.ErrNamespaceLimit, "visible again")
			_, err = s.SetAvailability(ctx, "chat", "gone", invisible, base)
			require.ErrorIs(t, err, store.ErrNamespaceLimit, "a leave, like others")
			_, err = s.SetAvailability(ctx, "chat", "gone", busy, base)
			require.ErrorIs(t, err, store.ErrNamespaceLimit)
			require.NoError(t, s.Close())
			require.NoError(t, Verify(s.Path()))
			s = open(t, o)
			if users := usersWithDetails(t, s); users["(chat)/gone"] != "" {
				require.NoError(t, s.DeleteNamespace(ctx, "chat"))
				require.Empty(t, usersWithDetails(t, s))
				require.NoError(t, s.DeleteNamespace(ctx, "other"))
				unlisted(t, s)
				kit.Write(s.Ping).Send(t, "other", []store.PresenceEvent{{User: "alice", At: base}})
			}
		}
	}
}

// TestTrimOfOlderFile: while no user says anything, an older lastseen can read what Trim writes.
func TestTrimOfOlderFile(t *testing.T) {
	t.Parallel()
	m := &kit.Machine{}
	s := open(t, optionsOf(t, m))
	trim := func() {
		ping(t, s, "alice", base.Add(-time.Hour))
		flushed(t, s)
		result, err := s.Trim(context.Background(), "chat", store.TrimQuery{Age: time.Minute, Now: base, All: true})
		require.NoError(t, err)
		require.Equal(t, 1, result.Deleted)
		flushed(t, s)
	}
	availability.SetIn(t, s, "chat", "alice", lastseen.AvailabilityState{}, base)
	trim()
	require.Equal(t, uint32(version1), versionOf(t, s))
	availability.SetIn(t, s, "other", "bob", busy, base)
	require.Equal(t, uint32(version3), versionOf(t, s))
	availability.SetIn(t, s, "chat", "alice", away, base)
	trim()
	require.Equal(t, away, dumpOf(s.tables).availabilities["chat/alice"])
	require.NoError(t, s.Close())
	require.Equal(t, away, dumpOf(open(t, Options{Path: s.Path()}).tables).availabilities["chat/alice"])
}

// TestDurableWrites: the availability of users, contacts and erasures are in the file when the call returns, whatever
// Sync is.
func TestDurableWrites(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		setContacts := func(contacts ...string) func(*Store) error {
			return func(s *Store) error { return s.SetContacts(ctx, "chat", "alice", contacts) }
		}
		for _, user := range []string{"alice", "bob"} {
			ping(t, s, user, base)
		}
		for i, write := range []func(*Store) error{
			setContacts("bob", "carol"),
			func(s *Store) error { return s.ChangeContacts(ctx, "chat", "alice", []string{"dave"}, []string{"bob"}) },
			sayOf("alice", busy), sayOf("alice", invisible), sayOf("alice", away),
			sayOf("alice", lastseen.AvailabilityState{}),
			forgetOf("alice"), setContacts("bob"), forgetOf("alice"),
			func(s *Store) error { return s.DeleteNamespace(ctx, "chat") },
		} {
			require.NoError(t, write(s))
			crashed := crashedCopy(t, s)
			require.Equal(t, contactsOf(t, s, "alice"), contactsOf(t, crashed, "alice"), i)
			require.Equal(t, keptIn(s), keptIn(crashed), i)
			require.Equal(t, truthOf(t, s), truthOf(t, crashed), i)
		}
		require.Empty(t, truthOf(t, s))
	}
}
