package filestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func TestContactsRetention(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"delayed":   func(*Options) {},
		"immediate": func(o *Options) { o.Sync = 0 },
		"compacts":  func(o *Options) { o.Sync, o.CompactAfter = time.Millisecond, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contacts.RunRetention(t, func(testing.TB) kit.Breakable {
				m := &machine{}
				o := m.options(t)
				change(&o)
				s := open(t, o)
				return kit.Breakable{Store: s, Pass: m.passed.add, Restart: func() store.Store {
					require.NoError(t, s.Close())
					s = open(t, o)
					return s
				}}
			})
		})
	}
	m := &machine{}
	contacts.RunBehind(t, kit.Breakable{Store: open(t, m.options(t)), Pass: m.passed.add})
}

// trimContacts deletes the contacts of owners whose last use was before a cutoff, and returns the result.
func trimContacts(t testing.TB, s *Store, cutoff lastseen.Instant) store.ContactsTrimResult {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	age := now.Sub(cutoff)
	result, err := s.TrimContacts(t.Context(), "chat", store.TrimQuery{Age: age, Now: now, All: true})
	require.NoError(t, err)
	return result
}

// TestContactsWithoutUse: contacts from before last uses were recorded are kept for the whole retention.
func TestContactsWithoutUse(t *testing.T) {
	t.Parallel()
	m := &machine{}
	o := m.options(t)
	s := open(t, o)
	setContacts(t, s, "known", "bob")
	for _, owner := range []string{"older", "oldest"} {
		s.writer.mu.Lock()
		s.writer.pending.in("chat", changeUnused, version3, owner)
		s.writer.pending.buf = append(s.writer.pending.buf, "\x02\x03bob\x05carol\x00"...)
		s.writer.mu.Unlock()
	}
	flushed(t, s)
	for range 2 {
		require.NoError(t, s.Close())
		s = open(t, o)
		require.Equal(t, "bob,carol", contactsOf(t, s, "older"))
		require.NoError(t, compactNow(s))
	}
	m.passed.add(2 * time.Hour)
	require.Equal(t, 1, trimContacts(t, s, m.time().Add(-time.Hour)).Owners)
	require.Empty(t, contactsOf(t, s, "known"))
	m.passed.add(2 * time.Hour)
	ping(t, s, "older", m.time())
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 2},
		trimContacts(t, s, m.time().Add(-time.Hour)))
	require.Equal(t, "bob,carol", contactsOf(t, s, "older"))
}
