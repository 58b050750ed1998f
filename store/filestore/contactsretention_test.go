package filestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
				m := &kit.Machine{}
				o := optionsOf(t, m)
				change(&o)
				s := open(t, o)
				return kit.Breakable{Store: s, Pass: m.Passed.Add, Restart: func() store.Store {
					require.NoError(t, s.Close())
					s = open(t, o)
					return s
				}}
			})
		})
	}
	m := &kit.Machine{}
	contacts.RunBehind(t, kit.Breakable{Store: open(t, optionsOf(t, m)), Pass: m.Passed.Add})
}

// TestContactsWithoutUse: contacts from before last uses were recorded are kept for the whole retention.
func TestContactsWithoutUse(t *testing.T) {
	t.Parallel()
	m := &kit.Machine{}
	o := optionsOf(t, m)
	s := open(t, o)
	contacts.Set(t, s, "known", "bob")
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
	m.Passed.Add(2 * time.Hour)
	require.Equal(t, 1, contacts.Trim(t, s, time.Hour, true).Owners)
	require.Empty(t, contactsOf(t, s, "known"))
	m.Passed.Add(2 * time.Hour)
	ping(t, s, "older", m.Instant())
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 2},
		contacts.Trim(t, s, time.Hour, true))
	require.Equal(t, "bob,carol", contactsOf(t, s, "older"))
}
