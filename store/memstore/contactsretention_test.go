package memstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// trimContacts deletes the contacts of owners whose last use was before a cutoff, and returns the result.
func trimContacts(t testing.TB, s *Store, cutoff lastseen.Instant) store.ContactsTrimResult {
	t.Helper()
	now := s.tables.readClock()
	age := now.Sub(cutoff)
	result, err := s.TrimContacts(t.Context(), "chat", store.TrimQuery{Age: age, Now: now, All: true})
	require.NoError(t, err)
	return result
}

// TestContactsAtTheCutoff: contacts that were last used exactly their retention ago stay.
func TestContactsAtTheCutoff(t *testing.T) {
	t.Parallel()
	m := &machine{}
	s := open(t, m.options())
	setContacts(t, s, "alice", "bob")
	ping(t, s, "carol", base+1000)
	setContacts(t, s, "carol", "bob")
	sayAndHide := func(user string, end lastseen.Instant) {
		setContacts(t, s, user, "bob")
		setAvailability(t, s, "chat", user, lastseen.Said{Availability: lastseen.Invisible, Until: end}, base)
	}
	sayAndHide("dave", base+2000)
	m.passed.add(time.Hour)
	for i, owner := range []string{"alice", "carol", "dave"} {
		last := base.Add(time.Duration(i) * time.Second)
		require.Zero(t, trimContacts(t, s, last), owner)
		require.Equal(t, "bob", contactsOf(t, s, owner))
		require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, trimContacts(t, s, last+1), owner)
		require.Empty(t, contactsOf(t, s, owner))
	}
}

// TestWrongEndOfHiddenTime: a user who ended a hidden time while the clock was wrong does not keep contacts for ever.
func TestWrongEndOfHiddenTime(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	m := &machine{}
	s := open(t, m.options())
	setContacts(t, s, "alice", "bob")
	m.passed.add(time.Hour)
	key := lastseen.UserKey{Namespace: "chat", User: "alice"}
	hide := func(h lastseen.HiddenTime) {
		s.tables.mu.Lock()
		defer s.tables.mu.Unlock()
		s.tables.index.hide(key.Namespace, key.User, Hidden{HiddenTime: h})
	}
	hide(lastseen.HiddenTime{End: base.Add(year)})
	require.Zero(t, trimContacts(t, s, base+1))
	m.passed.add(time.Hour)
	hide(lastseen.HiddenTime{End: base.Add(year), Ended: true})
	require.Equal(t, 1, trimContacts(t, s, base.Add(time.Hour)+1).Owners)
}
