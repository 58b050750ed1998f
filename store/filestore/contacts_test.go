package filestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
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

func TestContactsSurvive(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Sync: DefaultSync}, {Sync: 0}, {Sync: time.Millisecond, CompactAfter: 1}} {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			o.Path = newPath(t)
			s := open(t, o)
			storetest.ContactsSurvive(t, storetest.Breakable{Store: s, Restart: func() store.Store {
				require.NoError(t, compactNow(s))
				require.NoError(t, s.Close())
				s = open(t, o)
				return s
			}})
		})
	}
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

// TestContactsWaitForTheirFlush: a change is in the file when the call returns, whatever Sync is.
func TestContactsWaitForTheirFlush(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		setContacts(t, s, "alice", "bob", "carol")
		require.Equal(t, "bob,carol", contactsOf(t, crashedCopy(t, s), "alice"))
		require.NoError(t, s.ChangeContacts(ctx, "chat", "alice", []string{"dave"}, []string{"bob"}))
		require.Equal(t, "carol,dave", contactsOf(t, crashedCopy(t, s), "alice"))
		require.NoError(t, s.Forget(ctx, "chat", "alice"))
		require.Empty(t, contactsOf(t, crashedCopy(t, s), "alice"))
	}
}

// TestFailedContacts: a change that cannot be written fails.
func TestFailedContacts(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		s, g := opened(t, sync)
		failed := make(chan error)
		go func() { failed <- s.SetContacts(context.Background(), "chat", "alice", []string{"bob"}) }()
		<-g.entered
		g.open <- errors.New("no disk")
		require.ErrorIs(t, <-failed, store.ErrUnavailable)
		if sync == 0 {
			require.Empty(t, contactsOf(t, s, "alice"))
		}
		close(g.open)
		ready := func() bool { return s.Ready(context.Background()) == nil }
		require.Eventually(t, ready, time.Minute, time.Millisecond)
		setContacts(t, s, "alice", "carol")
		require.Equal(t, "carol", contactsOf(t, crashedCopy(t, s), "alice"))
	}
}

// TestContactsInOneFlush: writes of one flush see each other, and what is in the file is what is in memory.
func TestContactsInOneFlush(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	set := func(owner string, contacts ...string) func(*Store) error {
		return func(s *Store) error { return s.SetContacts(ctx, "chat", owner, contacts) }
	}
	change := func(owner, add, remove string) func(*Store) error {
		return func(s *Store) error {
			return s.ChangeContacts(ctx, "chat", owner, strings.Fields(add), strings.Fields(remove))
		}
	}
	remove := func(s *Store) error { return s.DeleteNamespace(ctx, "chat") }
	trims := func(s *Store) error {
		_, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: s.readClock(), All: true})
		return err
	}
	for name, c := range map[string]struct {
		writes []func(*Store) error
		want   string
	}{
		"changes": {[]func(*Store) error{
			set("alice", "b", "c"), change("alice", "d e", "b"), change("alice", "b", "d"),
		}, "b,c,e"},
		"replaced":  {[]func(*Store) error{change("alice", "d e", ""), set("alice", "b")}, "b"},
		"forgotten": {[]func(*Store) error{set("alice", "b"), forgetOf("alice")}, ""},
		"back":      {[]func(*Store) error{set("alice", "b"), forgetOf("alice"), change("alice", "c", "d")}, "c"},
		"known": {[]func(*Store) error{
			devicesOf("chat", onDevice("alice", "a", base)), set("alice", "b"), forgetOf("alice"),
			devicesOf("chat", onDevice("alice", "a", base)), change("alice", "c", "d"),
		}, "c"},
		"deleted": {[]func(*Store) error{set("alice", "b"), remove}, ""},
		"trimmed": {[]func(*Store) error{
			set("alice", "b"), devicesOf("chat", onDevice("alice", "a", base)), trims,
		}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Path: newPath(t), Sync: 0})
			setContacts(t, s, "alice", "x")
			if name == "deleted" || name == "trimmed" { // these are alone
				for _, write := range c.writes {
					require.NoError(t, write(s))
				}
			} else {
				setContacts(t, s, "alice")
				inOneFlush(t, s, c.writes)
			}
			require.Equal(t, c.want, contactsOf(t, s, "alice"))
			require.Equal(t, c.want, contactsOf(t, crashedCopy(t, s), "alice"))
			require.NoError(t, compactNow(s))
			require.Equal(t, c.want, contactsOf(t, crashedCopy(t, s), "alice"))
		})
	}
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

// TestVersionOfContacts: the first contact raises the version of the file, and nothing that changes nothing does.
func TestVersionOfContacts(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		ping(t, s, "alice", base)
		setContacts(t, s, "alice")
		require.NoError(t, s.ChangeContacts(context.Background(), "chat", "alice", nil, []string{"bob"}))
		require.NoError(t, s.Forget(context.Background(), "chat", "alice"))
		require.Equal(t, uint32(version1), versionOf(t, s))
		setContacts(t, s, "alice", "bob")
		require.Equal(t, uint32(version3), versionOf(t, s))
		require.NoError(t, Verify(backup(t, s)))
		_, err := openWith(older(), Options{Path: crashedCopy(t, s).Path(), Logger: quiet()})
		require.Error(t, err)
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
