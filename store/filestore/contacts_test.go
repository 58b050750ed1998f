package filestore

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/contacts"
)

// contactsOf returns all contacts of an owner, separated by commas.
func contactsOf(t testing.TB, s *Store, owner string) string {
	t.Helper()
	return strings.Join(contacts.Of(t, s, owner), ",")
}

// crashedCopy opens a copy of a store's file, as it would be found after a crash at this moment.
func crashedCopy(t testing.TB, s *Store) *Store {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return open(t, Options{Path: path, Sync: defaultSync})
}

// TestContactsAreInTheSnapshot: a compaction writes the contacts of the moment at which it began, and then those that
// changed meanwhile.
func TestContactsAreInTheSnapshot(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	contacts.Set(t, s, "alice", "b", "c")
	contacts.Set(t, s, "bob", "b")
	s.writer.log.busy.Store(true) // keeps the writer from compacting; see compactNow
	defer s.writer.log.busy.Store(false)
	s.writer.mu.Lock()
	frozen, from := s.tables.Snapshot(), s.writer.log.end
	s.writer.mu.Unlock()
	contacts.Set(t, s, "alice", "b", "d")
	contacts.Set(t, s, "bob")
	contacts.Set(t, s, "carol", "e")
	require.NoError(t, s.writer.log.compact(frozen, from))
	again := crashedCopy(t, s)
	for owner, want := range map[string]string{"alice": "b,d", "bob": "", "carol": "e"} {
		require.Equal(t, want, contactsOf(t, s, owner))
		require.Equal(t, want, contactsOf(t, again, owner))
	}
}

// TestUnchangedContacts: sending the same list again, and a small change to a long list, write little.
func TestUnchangedContacts(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	all := make([]string, store.MaxContacts)
	for i := range all {
		all[i] = fmt.Sprintf("contact-%04d", i)
	}
	contacts.Set(t, s, "alice", all...)
	size := sizeOf(t, s)
	contacts.Set(t, s, "alice", append(slices.Clone(all[7:]), all...)...)
	require.Less(t, sizeOf(t, s), size+50)
	all[2500] = "contact-2500-renamed"
	contacts.Set(t, s, "alice", all...)
	require.Less(t, sizeOf(t, s), size+150)
}

func TestRecordOfContacts(t *testing.T) {
	var c changes
	c.ChangeContacts("chat", "alice", base+1, []string{"bob", "carol"}, nil)
	c.ChangeContacts("chat", "alice", base+2, []string{"dave"}, []string{"bob", "eve"})
	c.ChangeContacts("chat", "bob", base, []string{"alice"}, nil)
	c.ChangeContacts("chat", "bob", 0, nil, []string{"alice"})
	c.ChangeContacts("other", "alice", base, []string{"bob"}, nil)
	c.Drop("other")
	for _, runs := range [][][]byte{{c.buf}, {c.buf, c.buf}} {
		d := replayed(t, runs...)
		require.Equal(t, map[string]string{"chat/alice": fmt.Sprint(base+2, []string{"carol", "dave"})}, d.contacts)
		require.NotContains(t, d.states, "other")
	}
	for cut := range c.buf {
		_ = replayError(c.buf[:cut]) // must not panic
	}
}
