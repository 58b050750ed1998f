package filestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func setAvailability(
	t testing.TB, s *Store, name, user string, said lastseen.Said, at lastseen.Instant,
) lastseen.State {
	t.Helper()
	state, err := s.SetAvailability(context.Background(), name, user, said, at)
	require.NoError(t, err)
	return state
}

// keptIn returns all that a store keeps of what users say, as texts, also in namespaces that do not exist.
func keptIn(s *Store) map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := map[string]string{}
	add := func(name string, p *peopleTable) {
		for user, text := range textsOf(p) {
			all[name+"/"+user] = text
		}
	}
	s.index.namespaces.Scan(func(name string, n *namespace) bool {
		add(name, n.users.people)
		return true
	})
	s.index.unlisted.Scan(func(name string, p *peopleTable) bool {
		add("("+name+")", p)
		return true
	})
	return all
}

// peopleIn returns the same, and the details that others see.
func peopleIn(s *Store) map[string]string {
	all := keptIn(s)
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.index.namespaces.Scan(func(name string, n *namespace) bool {
		for _, e := range n.users.all() {
			if d := n.users.detailsOf(n.users.name(e)); d != (store.Details{}) {
				all[name+"/"+n.users.name(e)] += " others see " + fmt.Sprint(d)
			}
		}
		return true
	})
	return all
}

var invisible = lastseen.Said{Availability: lastseen.Invisible, Note: "not here"}

// unlisted has a user be hidden in a namespace that does not exist.
func unlisted(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background()
	setAvailability(t, s, "chat", "gone", invisible, base.Add(-time.Hour))
	now, err := s.Now(ctx)
	require.NoError(t, err)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: now, All: true})
	require.NoError(t, err)
	require.Equal(t, 1, result.Deleted)
	removed, err := s.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.True(t, removed)
	require.Equal(t, map[string]string{"(chat)/gone": fmt.Sprint(hidden{
		HiddenTime: lastseen.HiddenTime{End: lastseen.MaxInstant}, note: invisible.Note,
	})}, peopleIn(s))
}

// TestUnlisted: a namespace that only has hidden users is not listed and not counted, and their pings do not create it.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, sync := range []time.Duration{0, time.Hour} {
		m := &machine{}
		o := m.options(t)
		o.Sync, o.MaxNamespaces = sync, 1
		s := open(t, o)
		unlisted(t, s)
		require.Empty(t, truthOf(t, s))
		_, err := s.Ping(ctx, "other", []store.Sighting{{User: "alice", At: base}})
		require.NoError(t, err, "it is not counted")
		for range 2 {
			states, err := s.Ping(ctx, "chat", []store.Sighting{{User: "gone", At: base}, {User: "gone", At: base - 1}})
			require.NoError(t, err)
			require.Equal(t, make([]lastseen.State, 2), states)
			state := setAvailability(t, s, "chat", "gone", invisible, base)
			require.Zero(t, state, "still invisible")
			setAvailability(t, s, "chat", "gone", lastseen.Said{}, base.Add(-time.Minute))
			states, err = s.RecordDevices(ctx, "chat", time.Minute, []store.DeviceSighting{
				onDevice("gone", "a", base.Add(-time.Minute)-1),
			})
			require.NoError(t, err)
			require.Equal(t, make([]lastseen.State, 1), states)
			require.Len(t, truthOf(t, s), 1)
			_, err = s.Ping(ctx, "chat", []store.Sighting{{User: "gone", At: base.Add(-time.Minute)}})
			require.ErrorIs(t, err, store.ErrNamespaceLimit, "visible again")
			_, err = s.SetAvailability(ctx, "chat", "gone", invisible, base)
			require.ErrorIs(t, err, store.ErrNamespaceLimit, "a leave, like others")
			_, err = s.SetAvailability(ctx, "chat", "gone", busy, base)
			require.ErrorIs(t, err, store.ErrNamespaceLimit)
			require.NoError(t, s.Close())
			require.NoError(t, Verify(s.Path()))
			s = open(t, o)
			if people := peopleIn(s); people["(chat)/gone"] != "" {
				require.NoError(t, s.DeleteNamespace(ctx, "chat"))
				require.Empty(t, peopleIn(s))
				require.NoError(t, s.DeleteNamespace(ctx, "other"))
				unlisted(t, s)
				_, err := s.Ping(ctx, "other", []store.Sighting{{User: "alice", At: base}})
				require.NoError(t, err)
			}
		}
	}
}

// TestTrimOfOlderFile: while no user says anything, an older lastseen can read what Trim writes.
func TestTrimOfOlderFile(t *testing.T) {
	t.Parallel()
	m := &machine{}
	s := open(t, m.options(t))
	trim := func() {
		ping(t, s, "alice", base.Add(-time.Hour))
		flushed(t, s)
		result, err := s.Trim(context.Background(), "chat", store.TrimQuery{Age: time.Minute, Now: base, All: true})
		require.NoError(t, err)
		require.Equal(t, 1, result.Deleted)
		flushed(t, s)
	}
	setAvailability(t, s, "chat", "alice", lastseen.Said{}, base)
	trim()
	require.Equal(t, uint32(version1), versionOf(t, s))
	setAvailability(t, s, "other", "bob", busy, base)
	require.Equal(t, uint32(version3), versionOf(t, s))
	setAvailability(t, s, "chat", "alice", away, base)
	trim()
	require.Equal(t, away, s.index.people("chat").saidOf("alice"))
	require.NoError(t, s.Close())
	require.Equal(t, away, open(t, Options{Path: s.Path()}).index.people("chat").saidOf("alice"))
}

// TestPurge: what ended is deleted once the store's clock and the caller's time are past the end, and the feed has it.
func TestPurge(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		f := newFeedTest(t, sync)
		now := f.time()
		at := now.Add(-40 * 24 * time.Hour)
		for n := range 100 {
			said, hides := away, invisible
			said.Until, hides.Until = now+100, at.Add(24*time.Hour)
			setAvailability(t, f.Store, "chat", fmt.Sprint("user-", n), said, at)
			setAvailability(t, f.Store, "chat", fmt.Sprint("user-", n), hides, at)
		}
		people := f.index.people("chat")
		purge := func(at lastseen.Instant) {
			for range 20 {
				setAvailability(t, f.Store, "chat", "other", lastseen.Said{Note: "no"}, at)
				setAvailability(t, f.Store, "chat", "other", busy, at)
			}
		}
		f.passed.add(time.Minute)
		purge(now + 99)
		require.Equal(t, 100, people.said.Len()-1, "not by the caller's time")
		require.Zero(t, people.hidden.Len(), "they ended long ago")
		purge(f.time())
		require.Equal(t, 100, people.said.Len()-1, "the feed has to have them")
		sweep := func() {
			for f.sweep(f.time()).More {
				continue
			}
		}
		sweep()
		f.set(-2 * time.Hour)
		purge(now.Add(time.Minute))
		require.Equal(t, 100, people.said.Len()-1, "not by the store's clock")
		f.set(0)
		sweep() // the feed restarted
		purge(f.time())
		require.Equal(t, 1, people.said.Len())
		require.Empty(t, firstEnds(people.ends, now+100, 1))
		require.Empty(t, people.details)
		require.NoError(t, f.Close())
	}
}

// TestDurableWrites: what users say, contacts and erasures are in the file when the call returns, whatever Sync is.
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
			sayOf("alice", busy), sayOf("alice", invisible), sayOf("alice", away), sayOf("alice", lastseen.Said{}),
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
