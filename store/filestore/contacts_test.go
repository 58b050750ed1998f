package filestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
)

func setContacts(t testing.TB, s *Store, owner string, contacts ...string) {
	t.Helper()
	require.NoError(t, s.SetContacts(context.Background(), "chat", owner, contacts))
}

// contactsOf returns all contacts of an owner, separated by commas.
func contactsOf(t testing.TB, s *Store, owner string) string {
	t.Helper()
	list, err := s.ListContacts(context.Background(), "chat", owner, "", store.MaxContacts)
	require.NoError(t, err)
	return strings.Join(list, ",")
}

// crashedCopy opens a copy of a store's file, as it would be found after a crash at this moment.
func crashedCopy(t testing.TB, s *Store) *Store {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return open(t, Options{Path: path, Sync: DefaultSync})
}

// TestContactsAreInTheSnapshot: a compaction writes the contacts of the moment at which it began, and then those that
// changed meanwhile.
func TestContactsAreInTheSnapshot(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	setContacts(t, s, "alice", "b", "c")
	setContacts(t, s, "bob", "b")
	s.writer.log.busy.Store(true) // keeps the writer from compacting; see compactNow
	defer s.writer.log.busy.Store(false)
	s.mu.Lock()
	frozen, from := s.index.freeze(), s.writer.log.end
	s.mu.Unlock()
	setContacts(t, s, "alice", "b", "d")
	setContacts(t, s, "bob")
	setContacts(t, s, "carol", "e")
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
	setContacts(t, s, "alice", all...)
	size := sizeOf(t, s)
	setContacts(t, s, "alice", append(slices.Clone(all[7:]), all...)...)
	require.Less(t, sizeOf(t, s), size+50)
	all[2500] = "contact-2500-renamed"
	setContacts(t, s, "alice", all...)
	require.Less(t, sizeOf(t, s), size+150)
}

// TestContactsOfLargeNamespace: contacts stay when the last of many users is gone, and count as live.
func TestContactsOfLargeNamespace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	setContacts(t, s, "alice", "bob")
	alone := s.index.live
	pingMany(t, s, "chat", 10_000, base)
	n, _ := s.index.namespaces.Get("chat")
	require.True(t, n.users.large())
	for n.users.len() > 0 {
		_, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: s.readClock(), All: true})
		require.NoError(t, err)
	}
	require.False(t, n.users.large())
	require.Equal(t, "bob", contactsOf(t, s, "alice"))
	require.Equal(t, alone, s.index.live)
	require.NoError(t, compactNow(s))
	require.InDelta(t, sizeOf(t, s), s.index.live+headerSize+headSize, 10)
	setContacts(t, s, "alice")
	require.Equal(t, namespaceBytes("chat"), s.index.live)
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	require.Zero(t, s.index.live)
}

func TestRecordOfContacts(t *testing.T) {
	var c changes
	c.changeContacts("chat", "alice", base+1, []string{"bob", "carol"}, nil)
	c.changeContacts("chat", "alice", base+2, []string{"dave"}, []string{"bob", "eve"})
	c.changeContacts("chat", "bob", base, []string{"alice"}, nil)
	c.changeContacts("chat", "bob", 0, nil, []string{"alice"})
	c.changeContacts("other", "alice", base, []string{"bob"}, nil)
	c.drop("other")
	data := contents{}
	for range 2 {
		require.NoError(t, data.replay(c.buf))
		kept := data["chat"].contacts.of("alice")
		require.Equal(t, []string{"carol", "dave"}, kept.list.all())
		require.Equal(t, base+2, kept.used)
		require.Equal(t, 1, data["chat"].contacts.lists.Len())
		require.Equal(t, 1, data["chat"].contacts.uses.Len())
		require.NotContains(t, data, "other")
	}
	for cut := range c.buf {
		_ = contents{}.replay(c.buf[:cut]) // must not panic
	}
}

// TestInvalidContacts: what no store writes is refused.
func TestInvalidContacts(t *testing.T) {
	many := binary.AppendUvarint([]byte("n\x04chatc\x01a"), store.MaxContacts+1)
	for i := range store.MaxContacts + 1 {
		many = appendString(many, fmt.Sprintf("%05d", i))
	}
	require.NoError(t, contents{}.replay([]byte("n\x04chatc\x01a\x02\x01b\x01c\x01\x01d")))
	for what, run := range map[string]string{
		"no namespace":       "c\x01a\x01\x01b\x00",
		"no owner":           "n\x04chatc\x00\x01\x01b\x00",
		"out of order":       "n\x04chatc\x01a\x02\x01c\x01b\x00",
		"twice":              "n\x04chatc\x01a\x02\x01b\x01b\x00",
		"removed twice":      "n\x04chatc\x01a\x00\x02\x01b\x01b",
		"fewer than counted": "n\x04chatc\x01a\x00\x02\x01b",
		"no removed":         "n\x04chatc\x01a\x01\x01b",
		"too many":           string(append(many, 0)),
		"no use":             "n\x04chatu\x01a",
		"negative use":       "n\x04chatu\x01a\x01\x01\x01b\x00",
	} {
		require.ErrorIs(t, contents{}.replay([]byte(run)), ErrDamaged, what)
	}
}

// TestContactList compares a list with a slice.
func TestContactList(t *testing.T) {
	t.Parallel()
	ids := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "aa", "b", "é", "éa", strings.Repeat("z", 256), "Z"}), 0, 7)
	rapid.Check(t, func(t *rapid.T) {
		want := slices.Compact(slices.Sorted(slices.Values(ids.Draw(t, "ids"))))
		list := newContactList(want)
		require.Equal(t, len(want), list.len())
		require.Equal(t, append([]string{}, want...), list.all())
		for _, id := range []string{"", "a", "aa", "b", "c", "é", "zz", "Z"} {
			require.Equal(t, slices.Contains(want, id), list.has(id), id)
			i, found := slices.BinarySearch(want, id)
			if found {
				i++
			}
			require.Equal(t, i, list.after(id), id)
		}
		add, remove := store.ContactChanges(ids.Draw(t, "add"), ids.Draw(t, "remove"))
		next := list.change(add, remove)
		for _, id := range add {
			require.True(t, next.has(id))
		}
		for _, id := range remove {
			require.False(t, next.has(id))
		}
		added, removed := list.difference(next)
		require.Equal(t, next, list.change(added, removed))
		require.Subset(t, add, added)
		require.Subset(t, remove, removed)
		require.Equal(t, next.len(), list.len()+len(added)-len(removed))
	})
}
