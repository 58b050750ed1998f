package memstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestContactsAtTheCutoff: contacts that were last used exactly their retention ago stay.
func TestContactsAtTheCutoff(t *testing.T) {
	t.Parallel()
	m := &kit.Machine{}
	s := open(t, optionsOf(m))
	contacts.Set(t, s, "alice", "bob")
	ping(t, s, "carol", base+1000)
	contacts.Set(t, s, "carol", "bob")
	sayAndHide := func(user string, end lastseen.Instant) {
		contacts.Set(t, s, user, "bob")
		hides := lastseen.AvailabilityState{Availability: lastseen.Invisible, Until: end}
		availability.SetIn(t, s, "chat", user, hides, base)
	}
	sayAndHide("dave", base+2000)
	m.Passed.Add(time.Hour)
	for i, owner := range []string{"alice", "carol", "dave"} {
		last := base.Add(time.Duration(i) * time.Second)
		require.Zero(t, contacts.Trim(t, s, kit.Now(t, s).Sub(last), true), owner)
		require.Equal(t, "bob", contactsOf(t, s, owner))
		result := contacts.Trim(t, s, kit.Now(t, s).Sub(last+1), true)
		require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, result, owner)
		require.Empty(t, contactsOf(t, s, owner))
	}
}

// TestWrongEndOfHiddenTime: a user who ended a hidden time while the clock was wrong does not keep contacts for ever.
func TestWrongEndOfHiddenTime(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	m := &kit.Machine{}
	s := open(t, optionsOf(m))
	contacts.Set(t, s, "alice", "bob")
	m.Passed.Add(time.Hour)
	key := lastseen.UserKey{Namespace: "chat", User: "alice"}
	hide := func(h lastseen.HiddenTime) {
		s.tables.mu.Lock()
		defer s.tables.mu.Unlock()
		s.tables.index.hide(key.Namespace, key.User, Hidden{HiddenTime: h})
	}
	hide(lastseen.HiddenTime{End: base.Add(year)})
	require.Zero(t, contacts.Trim(t, s, kit.Now(t, s).Sub(base+1), true))
	m.Passed.Add(time.Hour)
	hide(lastseen.HiddenTime{End: base.Add(year), Ended: true})
	require.Equal(t, 1, contacts.Trim(t, s, kit.Now(t, s).Sub(base.Add(time.Hour)+1), true).Owners)
}
