package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RunContacts tests that stores keep the contract of contacts. Run includes it. Each subtest opens a store of its own.
func RunContacts(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Set", testContactsSet},
		{"Change", testContactsChange},
		{"Direction", testContactsDirection},
		{"Owners", testContactsOwners},
		{"Pages", testContactsPages},
		{"Most", testContactsMost},
		{"UserIDs", testContactsOfUserIDs},
		{"Namespaces", testContactsNamespaces},
		{"Creates", testContactsCreate},
		{"Forget", testContactsForget},
		{"Trim", testContactsTrim},
		{"Delete", testContactsDelete},
		{"RemoveEmpty", testContactsRemoveEmpty},
		{"RemoveEmpty/Writers", testContactsRemoveEmptyWriters},
		{"ClockMoved", testContactsClockMoved},
		{"Presence", testContactsAndPresence},
		{"Concurrent", testContactsConcurrent},
		{"CancelledContext", testContactsCancelled},
		{"Close", testContactsClosed},
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) { testContactsModel(t, open) })
}

func setContacts(t require.TestingT, s store.Contacts, owner string, contacts ...string) {
	require.NoError(t, s.SetContacts(context.Background(), ns, owner, contacts))
}

func changeContacts(t require.TestingT, s store.Contacts, owner string, add, remove []string) {
	require.NoError(t, s.ChangeContacts(context.Background(), ns, owner, add, remove))
}

// contactsOf returns all contacts of an owner in the namespace ns.
func contactsOf(t require.TestingT, s store.Contacts, owner string) []string {
	return contactsIn(t, s, ns, owner)
}

func contactsIn(t require.TestingT, s store.Contacts, namespace, owner string) []string {
	found, err := s.ListContacts(context.Background(), namespace, owner, "", store.MaxContacts+1)
	require.NoError(t, err)
	return append([]string{}, found...)
}

// areContacts asks about pairs of an owner and a contact.
func areContacts(t require.TestingT, s store.Contacts, pairs ...store.ContactPair) []bool {
	are, err := s.AreContacts(context.Background(), ns, pairs)
	require.NoError(t, err)
	require.Len(t, are, len(pairs))
	return append([]bool{}, are...)
}

// numberedUsers returns IDs in bytewise order.
func numberedUsers(n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("u%06d", i)
	}
	return users
}

func testContactsSet(t *testing.T, s store.Store) {
	require.Empty(t, contactsOf(t, s, "alice"))
	setContacts(t, s, "alice", "dave", "bob", "carol", "bob")
	require.Equal(t, []string{"bob", "carol", "dave"}, contactsOf(t, s, "alice"), "in order, each once")
	for range 2 {
		setContacts(t, s, "alice", "eve", "carol", "Bob")
		require.Equal(t, []string{"Bob", "carol", "eve"}, contactsOf(t, s, "alice"), "it replaces all")
	}
	setContacts(t, s, "alice")
	require.Empty(t, contactsOf(t, s, "alice"))
	setContacts(t, s, "alice", "bob")
	require.Equal(t, []string{"bob"}, contactsOf(t, s, "alice"))
}

func testContactsChange(t *testing.T, s store.Store) {
	for range 2 {
		changeContacts(t, s, "alice", []string{"carol", "bob", "bob"}, nil)
		require.Equal(t, []string{"bob", "carol"}, contactsOf(t, s, "alice"))
	}
	for range 2 {
		changeContacts(t, s, "alice", []string{"dave"}, []string{"bob", "unknown", "bob"})
		require.Equal(t, []string{"carol", "dave"}, contactsOf(t, s, "alice"))
	}
	changeContacts(t, s, "alice", []string{"eve", "carol"}, []string{"carol", "eve"})
	require.Equal(t, []string{"dave"}, contactsOf(t, s, "alice"), "an ID in both is removed")
	changeContacts(t, s, "alice", nil, nil)
	require.Equal(t, []string{"dave"}, contactsOf(t, s, "alice"))
	setContacts(t, s, "alice", "zoe")
	changeContacts(t, s, "alice", []string{"adam"}, nil)
	require.Equal(t, []string{"adam", "zoe"}, contactsOf(t, s, "alice"))
	changeContacts(t, s, "alice", nil, []string{"adam", "zoe"})
	require.Empty(t, contactsOf(t, s, "alice"))
}

func testContactsDirection(t *testing.T, s store.Store) {
	setContacts(t, s, "alice", "bob")
	setContacts(t, s, "carol", "alice", "bob")
	require.Empty(t, contactsOf(t, s, "bob"))
	require.Equal(t, []bool{true, false, true, true, false, false, true},
		areContacts(t, s,
			store.ContactPair{Owner: "alice", Contact: "bob"},
			store.ContactPair{Owner: "bob", Contact: "alice"},
			store.ContactPair{Owner: "carol", Contact: "alice"},
			store.ContactPair{Owner: "carol", Contact: "bob"},
			store.ContactPair{Owner: "alice", Contact: "carol"},
			store.ContactPair{Owner: "nobody", Contact: "nobody else"},
			store.ContactPair{Owner: "alice", Contact: "bob"},
		))
	require.Empty(t, areContacts(t, s))
}

// testContactsOwners: owners whose IDs begin alike do not have each other's contacts.
func testContactsOwners(t *testing.T, s store.Store) {
	owners := []string{"a", "aa", "a b", "b", "ab", "a/b", "é", "éa", "A"}
	for i, owner := range owners {
		setContacts(t, s, owner, fmt.Sprint("friend", i), "a friend", "b friend")
	}
	setContacts(t, s, "a")
	changeContacts(t, s, "aa", nil, []string{"a friend"})
	forget(t, s, "é")
	want := map[string][]string{"a": {}, "aa": {"b friend", "friend1"}, "é": {}}
	for i, owner := range owners {
		if want[owner] == nil {
			want[owner] = []string{"a friend", "b friend", fmt.Sprint("friend", i)}
		}
		require.Equal(t, want[owner], contactsOf(t, s, owner), owner)
	}
	require.Equal(t, []bool{false, true}, areContacts(t, s,
		store.ContactPair{Owner: "a", Contact: "b friend"}, store.ContactPair{Owner: "a b", Contact: "b friend"}))
}

func testContactsPages(t *testing.T, s store.Store) {
	ctx := context.Background()
	want := numberedUsers(25)
	setContacts(t, s, "alice", want...)
	setContacts(t, s, "alicf", "u000099")
	for _, limit := range []int{1, 4, 5, 24, 25, 26} {
		var got []string
		for after := ""; ; {
			page, err := s.ListContacts(ctx, ns, "alice", after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			if got = append(got, page...); len(page) < limit {
				break
			}
			after = page[len(page)-1]
		}
		require.Equal(t, want, got, "pages of %d", limit)
	}
	changeContacts(t, s, "alice", nil, []string{"u000004"})
	page, err := s.ListContacts(ctx, ns, "alice", "u000004", 1)
	require.NoError(t, err)
	require.Equal(t, []string{"u000005"}, page, "the place need not exist")
	page, err = s.ListContacts(ctx, ns, "alice", "u000024", 1)
	require.NoError(t, err)
	require.Empty(t, page, "nothing of the next owner")
}

// testContactsMost: what would exceed the limit changes nothing.
func testContactsMost(t *testing.T, s store.Store) {
	ctx := context.Background()
	all := numberedUsers(store.MaxContacts + 1)
	full, one := all[:store.MaxContacts], all[store.MaxContacts]
	setContacts(t, s, "bob", "carol")
	require.ErrorIs(t, s.SetContacts(ctx, ns, "bob", all), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(ctx, ns, "bob", all, nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(ctx, ns, "bob", full, nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(ctx, ns, "bob", full, []string{"nobody"}), store.ErrTooManyContacts)
	require.Equal(t, []string{"carol"}, contactsOf(t, s, "bob"))
	changeContacts(t, s, "bob", full, []string{"carol"})
	require.Equal(t, full, contactsOf(t, s, "bob"))

	setContacts(t, s, "alice", append(slices.Clone(full), full...)...)
	require.Equal(t, full, contactsOf(t, s, "alice"), "IDs named twice count once")
	require.ErrorIs(t, s.ChangeContacts(ctx, ns, "alice", []string{one}, nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.SetContacts(ctx, ns, "alice", all), store.ErrTooManyContacts)
	require.Equal(t, full, contactsOf(t, s, "alice"))
	changeContacts(t, s, "alice", []string{one, full[7]}, []string{full[0]})
	require.Equal(t, all[1:], contactsOf(t, s, "alice"))
	changeContacts(t, s, "alice", all, []string{full[0]})
	require.Equal(t, all[1:], contactsOf(t, s, "alice"))
	setContacts(t, s, "alice", full...)
	require.Equal(t, full, contactsOf(t, s, "alice"))

	pairs := make([]store.ContactPair, len(all))
	want := make([]bool, len(all))
	for i, contact := range all {
		pairs[i], want[i] = store.ContactPair{Owner: "alice", Contact: contact}, i < len(full)
	}
	require.Equal(t, want, areContacts(t, s, pairs...))
	changeContacts(t, s, "alice", nil, full[1:])
	require.Equal(t, full[:1], contactsOf(t, s, "alice"))
}

// testContactsOfUserIDs: any user ID can own contacts and be one.
func testContactsOfUserIDs(t *testing.T, s store.Store) {
	ids := oddIDs()
	setContacts(t, s, "owner", ids...)
	require.Equal(t, ids, contactsOf(t, s, "owner"))
	var pairs []store.ContactPair
	for i, id := range ids {
		other := ids[(i+1)%len(ids)]
		setContacts(t, s, id, other)
		pairs = append(pairs, store.ContactPair{Owner: id, Contact: other})
	}
	for i, are := range areContacts(t, s, pairs...) {
		require.True(t, are, "%q", pairs[i])
		require.Equal(t, []string{pairs[i].Contact}, contactsOf(t, s, pairs[i].Owner), "%q", pairs[i].Owner)
	}
	forget(t, s, ids...)
	for _, id := range ids {
		require.Empty(t, contactsOf(t, s, id), "%q", id)
	}
	require.Equal(t, ids, contactsOf(t, s, "owner"))
	changeContacts(t, s, "owner", nil, ids)
	require.Empty(t, contactsOf(t, s, "owner"))
}

// testContactsAndPresence: contacts and states do not change each other.
func testContactsAndPresence(t *testing.T, s store.Store) {
	setContacts(t, s, "alice", "bob")
	require.Equal(t, []lastseen.State{{}, {}}, lookup(t, s, "alice", "bob"), "contacts need not exist as users")
	require.Empty(t, remaining(t, s))
	require.Equal(t, []int64{0, 0}, count(t, s, everyone()...))
	require.Equal(t, []store.NamespaceInfo{{Name: ns}}, namespaces(t, s, 10))
	ping(t, s, "alice", base)
	leave(t, s, "bob", base)
	record(t, s, on("alice", "tab", base+1))
	require.Equal(t, []string{"bob"}, contactsOf(t, s, "alice"))
	setContacts(t, s, "alice", "carol")
	require.Equal(t, []lastseen.State{here(base + 1), left(base)}, lookup(t, s, "alice", "bob"))
	requireDevices(t, s, "alice", "tab")
}

// testContactsConcurrent: changes of one owner at the same time are all there afterwards, and never too many.
func testContactsConcurrent(t *testing.T, s store.Store) {
	const writers, each = 6, 20
	setContacts(t, s, "alice", numberedUsers(store.MaxContacts-writers*each/2)...)
	var writing sync.WaitGroup
	failed := make([]int, writers)
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				err := s.ChangeContacts(context.Background(), ns, "alice", []string{fmt.Sprint("w", w, "-", i)}, nil)
				if err != nil {
					failed[w]++
					continue
				}
				owner := fmt.Sprint("w", w)
				err = s.ChangeContacts(context.Background(), ns, owner, []string{fmt.Sprint(i)}, nil)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	total := 0
	for w, n := range failed {
		total += n
		require.Len(t, contactsOf(t, s, fmt.Sprint("w", w)), each-n)
	}
	require.Equal(t, writers*each/2, total)
	require.Len(t, contactsOf(t, s, "alice"), store.MaxContacts)
}

// contactCalls is every method about contacts.
func contactCalls(s store.Store) map[string]func(context.Context) error {
	pairs, q := []store.ContactPair{{Owner: "alice", Contact: "bob"}}, store.TrimQuery{Age: time.Hour}
	if at, err := s.Now(context.Background()); err == nil {
		q.Now = at
	}
	return map[string]func(context.Context) error{
		"SetContacts": func(ctx context.Context) error { return s.SetContacts(ctx, ns, "alice", []string{"bob"}) },
		"ChangeContacts": func(ctx context.Context) error {
			return s.ChangeContacts(ctx, ns, "alice", []string{"bob"}, []string{"carol"})
		},
		"ListContacts": func(ctx context.Context) error { return errorOf(s.ListContacts(ctx, ns, "alice", "", 5)) },
		"AreContacts":  func(ctx context.Context) error { return errorOf(s.AreContacts(ctx, ns, pairs)) },
		"TrimContacts": func(ctx context.Context) error { return errorOf(s.TrimContacts(ctx, ns, q)) },
	}
}

func testContactsCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 { // without contacts, and with some
		for name, call := range contactCalls(s) {
			require.ErrorIs(t, call(ctx), context.Canceled, name)
		}
		require.Empty(t, contactsOf(t, s, "alice"), "nothing happened")
		setContacts(t, s, "bob", "carol")
	}
}

func testContactsClosed(t *testing.T, s store.Store) {
	setContacts(t, s, "bob", "carol")
	require.NoError(t, s.Close())
	for name, call := range contactCalls(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
}

// testNoContacts: a namespace that cannot have contacts says so, and works.
func testNoContacts(t *testing.T, s store.Store) {
	for range 2 {
		for name, call := range contactCalls(s) {
			require.ErrorIs(t, call(context.Background()), store.ErrNoContacts, name)
		}
		require.Equal(t, here(base), ping(t, s, "bob", base))
	}
	forget(t, s, "bob")
	require.Empty(t, remaining(t, s))
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	require.Empty(t, namespaces(t, s, 10))
}

// ContactsSurvive checks that contacts are there after a restart of the store, however often.
func ContactsSurvive(t *testing.T, b Breakable) {
	t.Helper()
	all := numberedUsers(store.MaxContacts)
	setContacts(t, b, "alice", "bob", "carol")
	changeContacts(t, b, "alice", []string{"dave"}, []string{"bob"})
	setContacts(t, b, "popular", all...)
	setContacts(t, b, "lonely", "alice")
	setContacts(t, b, "lonely")
	setContacts(t, b, "forgotten", "alice")
	ping(t, b, "alice", base)
	ping(t, b, "forgotten", base)
	forget(t, b, "forgotten")
	trim(t, b, ns, now(t, b).Add(-time.Minute), true)
	require.NoError(t, b.SetContacts(context.Background(), "gone", "alice", []string{"bob"}))
	require.NoError(t, b.DeleteNamespace(context.Background(), "gone"))
	for i := range 3 {
		s := b.Restart()
		require.Equal(t, []string{"carol", "dave"}, contactsOf(t, s, "alice"))
		require.Equal(t, all[i:], contactsOf(t, s, "popular"))
		require.Empty(t, contactsOf(t, s, "lonely"))
		require.Empty(t, contactsOf(t, s, "forgotten"))
		require.Empty(t, contactsIn(t, s, "gone", "alice"))
		require.Equal(t, []string{ns}, existing(t, s))
		changeContacts(t, s, "popular", nil, all[i:i+1])
	}
}
