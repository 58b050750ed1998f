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
	now := s.readClock()
	age := now.Sub(cutoff)
	result, err := s.TrimContacts(t.Context(), "chat", store.TrimQuery{Age: age, Now: now, All: true})
	require.NoError(t, err)
	return result
}

// TestContactsAtTheCutoff: contacts that were last used exactly their retention ago stay.
func TestContactsAtTheCutoff(t *testing.T) {
	t.Parallel()
	m := &machine{}
	s := open(t, m.options(t))
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

// TestContactsWithoutUse: contacts from before last uses were recorded are kept for the whole retention.
func TestContactsWithoutUse(t *testing.T) {
	t.Parallel()
	m := &machine{}
	o := m.options(t)
	s := open(t, o)
	setContacts(t, s, "known", "bob")
	for _, owner := range []string{"older", "oldest"} {
		setContacts(t, s, owner, "bob")
		require.NoError(t, s.writer.do(t.Context(), write{durable: true, op: opFunc(func(tr *transaction) {
			key := lastseen.UserKey{Namespace: "chat", User: owner}
			tr.forgetContacts(key)
			list := newContactList([]string{"bob", "carol"})
			s.index.setContacts(key, ownedContacts{list: list})
			run := append([]byte{changeUnused}, "\x05"+owner+"\x02\x03bob\x05carol\x00"...)
			run[1] = byte(len(owner))
			s.writer.pending.in("chat")
			s.writer.pending.buf = append(s.writer.pending.buf, run...)
		})}))
	}
	for range 2 {
		require.NoError(t, s.Close())
		s = open(t, o)
		require.Equal(t, "bob,carol", contactsOf(t, s, "older"))
		require.NoError(t, compactNow(s))
	}
	m.passed.add(2 * time.Hour)
	require.Equal(t, 1, trimContacts(t, s, s.readClock().Add(-time.Hour)).Owners)
	require.Empty(t, contactsOf(t, s, "known"))
	m.passed.add(2 * time.Hour)
	ping(t, s, "older", s.readClock())
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 2},
		trimContacts(t, s, s.readClock().Add(-time.Hour)))
	require.Equal(t, "bob,carol", contactsOf(t, s, "older"))
}

// TestWrongEndOfHiddenTime: a user who ended a hidden time while the clock was wrong does not keep contacts for ever.
func TestWrongEndOfHiddenTime(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	m := &machine{}
	s := open(t, m.options(t))
	setContacts(t, s, "alice", "bob")
	m.passed.add(time.Hour)
	key := lastseen.UserKey{Namespace: "chat", User: "alice"}
	hide := func(h lastseen.HiddenTime) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.index.hide(key.Namespace, key.User, hidden{HiddenTime: h})
	}
	hide(lastseen.HiddenTime{End: base.Add(year)})
	require.Zero(t, trimContacts(t, s, base+1))
	m.passed.add(time.Hour)
	hide(lastseen.HiddenTime{End: base.Add(year), Ended: true})
	require.Equal(t, 1, trimContacts(t, s, base.Add(time.Hour)+1).Owners)
}
