// Package contacts has the conformance tests of contacts.
package contacts

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
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests that stores keep the contract of contacts. Run includes it. Each subtest opens its own store.
// The model compares the contacts of all users in both directions after any writes and deletions.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Pages", testContactsPages},
		{"Most", testContactsMost},
		{"UserIDs", testContactsOfUserIDs},
		{"Namespaces", testContactsNamespaces},
		{"Creates", testContactsCreate},
		{"RemoveEmpty", testContactsRemoveEmpty},
		{"RemoveEmpty/Writers", testContactsRemoveEmptyWriters},
		{"ClockMoved", testContactsClockMoved},
		{"Presence", testContactsAndPresence},
		{"Concurrent", testContactsConcurrent},
		{"ReplacedByTwo", testContactsReplacedByTwo},
	})
	t.Run("Model", func(t *testing.T) { testContactsModel(t, open) })
}

// Set replaces the contacts of a user.
func Set(t require.TestingT, s store.Contacts, owner string, contacts ...string) {
	require.NoError(t, s.SetContacts(context.Background(), kit.Namespace, owner, contacts))
}

func changeContacts(t require.TestingT, s store.Contacts, owner string, add, remove []string) {
	require.NoError(t, s.ChangeContacts(context.Background(), kit.Namespace, owner, add, remove))
}

// Of returns all contacts of an owner in the namespace ns.
func Of(t require.TestingT, s store.Contacts, owner string) []string {
	return contactsIn(t, s, kit.Namespace, owner)
}

func contactsIn(t require.TestingT, s store.Contacts, namespace, owner string) []string {
	found, err := s.ListContacts(context.Background(), namespace, owner, "", store.MaxContacts+1)
	require.NoError(t, err)
	return append([]string{}, found...)
}

// areContacts asks about pairs of an owner and a contact.
func areContacts(t require.TestingT, s store.Contacts, pairs ...store.ContactPair) []bool {
	are, err := s.AreContacts(context.Background(), kit.Namespace, pairs)
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

func testContactsPages(t *testing.T, s store.Store) {
	ctx := context.Background()
	want := numberedUsers(25)
	Set(t, s, "alice", want...)
	Set(t, s, "alicf", "u000099")
	for _, limit := range []int{1, 4, 5, 24, 25, 26} {
		var got []string
		for after := ""; ; {
			page, err := s.ListContacts(ctx, kit.Namespace, "alice", after, limit)
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
	page, err := s.ListContacts(ctx, kit.Namespace, "alice", "u000004", 1)
	require.NoError(t, err)
	require.Equal(t, []string{"u000005"}, page, "the position need not exist")
	page, err = s.ListContacts(ctx, kit.Namespace, "alice", "u000024", 1)
	require.NoError(t, err)
	require.Empty(t, page, "nothing of the next owner")
}

// testContactsMost: what would exceed the limit changes nothing.
func testContactsMost(t *testing.T, s store.Store) {
	ctx := context.Background()
	all := numberedUsers(store.MaxContacts + 1)
	full, one := all[:store.MaxContacts], all[store.MaxContacts]
	Set(t, s, "bob", "carol")
	require.ErrorIs(t, s.SetContacts(ctx, kit.Namespace, "bob", all), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(ctx, kit.Namespace, "bob", all, nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(ctx, kit.Namespace, "bob", full, nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.ChangeContacts(ctx, kit.Namespace, "bob", full, []string{"nobody"}), store.ErrTooManyContacts)
	require.Equal(t, []string{"carol"}, Of(t, s, "bob"))
	changeContacts(t, s, "bob", full, []string{"carol"})
	require.Equal(t, full, Of(t, s, "bob"))

	Set(t, s, "alice", append(slices.Clone(full), full...)...)
	require.Equal(t, full, Of(t, s, "alice"), "IDs named twice count once")
	require.ErrorIs(t, s.ChangeContacts(ctx, kit.Namespace, "alice", []string{one}, nil), store.ErrTooManyContacts)
	require.ErrorIs(t, s.SetContacts(ctx, kit.Namespace, "alice", all), store.ErrTooManyContacts)
	require.Equal(t, full, Of(t, s, "alice"))
	changeContacts(t, s, "alice", []string{one, full[7]}, []string{full[0]})
	require.Equal(t, all[1:], Of(t, s, "alice"))
	changeContacts(t, s, "alice", all, []string{full[0]})
	require.Equal(t, all[1:], Of(t, s, "alice"))
	Set(t, s, "alice", full...)
	require.Equal(t, full, Of(t, s, "alice"))

	pairs := make([]store.ContactPair, len(all))
	want := make([]bool, len(all))
	for i, contact := range all {
		pairs[i], want[i] = store.ContactPair{Owner: "alice", Contact: contact}, i < len(full)
	}
	require.Equal(t, want, areContacts(t, s, pairs...))
	changeContacts(t, s, "alice", nil, full[1:])
	require.Equal(t, full[:1], Of(t, s, "alice"))
}

// testContactsOfUserIDs: any user ID can own contacts and be one.
func testContactsOfUserIDs(t *testing.T, s store.Store) {
	ids := kit.OddIDs()
	Set(t, s, "owner", ids...)
	require.Equal(t, ids, Of(t, s, "owner"))
	var pairs []store.ContactPair
	for i, id := range ids {
		other := ids[(i+1)%len(ids)]
		Set(t, s, id, other)
		pairs = append(pairs, store.ContactPair{Owner: id, Contact: other})
	}
	for i, are := range areContacts(t, s, pairs...) {
		require.True(t, are, "%q", pairs[i])
		require.Equal(t, []string{pairs[i].Contact}, Of(t, s, pairs[i].Owner), "%q", pairs[i].Owner)
	}
	kit.Forget(t, s, ids...)
	for _, id := range ids {
		require.Empty(t, Of(t, s, id), "%q", id)
	}
	require.Equal(t, ids, Of(t, s, "owner"))
	changeContacts(t, s, "owner", nil, ids)
	require.Empty(t, Of(t, s, "owner"))
}

// testContactsAndPresence: contacts and states do not change each other.
func testContactsAndPresence(t *testing.T, s store.Store) {
	Set(t, s, "alice", "bob")
	require.Equal(t, []lastseen.State{{}, {}}, kit.Lookup(t, s, "alice", "bob"), "contacts need not exist as users")
	require.Empty(t, kit.Remaining(t, s))
	require.Equal(t, []int64{0, 0}, kit.Count(t, s, kit.Everyone()...))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, s, 10))
	kit.Ping(t, s, "alice", kit.Base)
	kit.Leave(t, s, "bob", kit.Base)
	devices.Record(t, s, devices.On("alice", "tab", kit.Base+1))
	require.Equal(t, []string{"bob"}, Of(t, s, "alice"))
	Set(t, s, "alice", "carol")
	require.Equal(t, []lastseen.State{kit.Here(kit.Base + 1), kit.Left(kit.Base)}, kit.Lookup(t, s, "alice", "bob"))
	devices.Require(t, s, "alice", "tab")
}

// testContactsConcurrent: changes of one owner at the same time are all there afterwards, and never too many.
func testContactsConcurrent(t *testing.T, s store.Store) {
	const writers, each = 6, 20
	Set(t, s, "alice", numberedUsers(store.MaxContacts-writers*each/2)...)
	var writing sync.WaitGroup
	failed := make([]int, writers)
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				err := s.ChangeContacts(context.Background(), kit.Namespace, "alice",
					[]string{fmt.Sprint("w", w, "-", i)}, nil)
				if err != nil {
					failed[w]++
					continue
				}
				owner := fmt.Sprint("w", w)
				err = s.ChangeContacts(context.Background(), kit.Namespace, owner, []string{fmt.Sprint(i)}, nil)
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
		require.Len(t, Of(t, s, fmt.Sprint("w", w)), each-n)
	}
	require.Equal(t, writers*each/2, total)
	require.Len(t, Of(t, s, "alice"), store.MaxContacts)
}

// testContactsReplacedByTwo: of two calls that replace many contacts at the same time, the last one that made its
// change counts as a whole.
func testContactsReplacedByTwo(t *testing.T, s store.Store) {
	all := numberedUsers(2 * store.MaxContacts)
	lists := [][]string{all[:store.MaxContacts], all[store.MaxContacts:]}
	for range 3 {
		errs := make([]error, len(lists))
		var writing sync.WaitGroup
		for i, list := range lists {
			writing.Go(func() { errs[i] = s.SetContacts(context.Background(), kit.Namespace, "alice", list) })
		}
		writing.Wait()
		counts := slices.IndexFunc(lists, func(l []string) bool { return slices.Equal(l, Of(t, s, "alice")) })
		require.GreaterOrEqual(t, counts, 0, "the contacts are those of one call")
		require.NoError(t, errs[counts])
		if errs[1-counts] != nil {
			require.ErrorIs(t, errs[1-counts], store.ErrContactsChanged)
		}
	}
}

// Survive checks that contacts are there after a restart of the store, however often.
func Survive(t *testing.T, b kit.Breakable) {
	t.Helper()
	all := numberedUsers(store.MaxContacts)
	Set(t, b, "alice", "bob", "carol")
	changeContacts(t, b, "alice", []string{"dave"}, []string{"bob"})
	Set(t, b, "popular", all...)
	Set(t, b, "lonely", "alice")
	Set(t, b, "lonely")
	Set(t, b, "forgotten", "alice")
	kit.Ping(t, b, "alice", kit.Base)
	kit.Ping(t, b, "forgotten", kit.Base)
	kit.Forget(t, b, "forgotten")
	kit.Trim(t, b, kit.Namespace, kit.Now(t, b).Add(-time.Minute), true)
	require.NoError(t, b.SetContacts(context.Background(), "gone", "alice", []string{"bob"}))
	require.NoError(t, b.DeleteNamespace(context.Background(), "gone"))
	for i := range 3 {
		s := b.Restart()
		require.Equal(t, []string{"carol", "dave"}, Of(t, s, "alice"))
		require.Equal(t, all[i:], Of(t, s, "popular"))
		require.Empty(t, Of(t, s, "lonely"))
		require.Empty(t, Of(t, s, "forgotten"))
		require.Empty(t, contactsIn(t, s, "gone", "alice"))
		require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s))
		changeContacts(t, s, "popular", nil, all[i:i+1])
	}
}

// Methods returns the methods of a store that concern contacts.
func Methods(s store.Store, ns string) map[string]kit.Method {
	pairs := []store.ContactPair{{Owner: "alice", Contact: "bob"}}
	bob, carol, dave := []string{"bob"}, []string{"carol"}, []string{"dave"}
	return map[string]kit.Method{
		"SetContacts":    func(ctx context.Context) error { return s.SetContacts(ctx, ns, "alice", bob) },
		"ChangeContacts": func(ctx context.Context) error { return s.ChangeContacts(ctx, ns, "alice", carol, dave) },
		"ListContacts": func(ctx context.Context) error {
			return kit.ErrorOf(s.ListContacts(ctx, ns, "alice", "",
				5))
		},
		"AreContacts": func(ctx context.Context) error { return kit.ErrorOf(s.AreContacts(ctx, ns, pairs)) },
		"TrimContacts": func(ctx context.Context) error {
			q, err := kit.AgeQuery(ctx, s)
			if err == nil {
				_, err = s.TrimContacts(ctx, ns, q)
			}
			return err
		},
	}
}

func testContactsNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	for i, namespace := range []string{"a", "b", "a-b"} {
		require.NoError(t, s.SetContacts(ctx, namespace, "alice", []string{fmt.Sprint("friend", i)}))
	}
	for i, namespace := range []string{"a", "b", "a-b"} {
		require.Equal(t, []string{fmt.Sprint("friend", i)}, contactsIn(t, s, namespace, "alice"))
	}
	require.Empty(t, Of(t, s, "alice"))
	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	require.Empty(t, contactsIn(t, s, "a", "alice"))
	require.Equal(t, []string{"friend2"}, contactsIn(t, s, "a-b", "alice"))
}

// testContactsCreate: what records a contact creates the namespace, and nothing else does.
func testContactsCreate(t *testing.T, s store.Store) {
	ctx := context.Background()
	Set(t, s, "alice")
	changeContacts(t, s, "alice", nil, nil)
	changeContacts(t, s, "alice", nil, []string{"bob"})
	changeContacts(t, s, "alice", []string{"bob"}, []string{"bob"})
	require.Error(t, s.SetContacts(ctx, kit.Namespace, "alice", numberedUsers(store.MaxContacts+1)))
	require.Empty(t, Of(t, s, "alice"))
	areContacts(t, s, store.ContactPair{Owner: "alice", Contact: "bob"})
	require.Empty(t, kit.Existing(t, s))
	Set(t, s, "alice", "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, s, 10))
	require.NoError(t, s.ChangeContacts(ctx, "other", "alice", []string{"bob"}, nil))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}, {Name: "other"}}, kit.Namespaces(t, s, 10))
}

// testContactsRemoveEmpty: a namespace with contacts is not empty, and one without is.
func testContactsRemoveEmpty(t *testing.T, s store.Store) {
	Set(t, s, "alice", "bob")
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	kit.Ping(t, s, "bob", kit.Base)
	kit.Forget(t, s, "bob")
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Equal(t, []string{"bob"}, Of(t, s, "alice"))
	require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s))
	changeContacts(t, s, "alice", nil, []string{"bob"})
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Empty(t, kit.Existing(t, s))
	Set(t, s, "alice", "carol")
	require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s), "it exists again")
	kit.Forget(t, s, "alice")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
}

func testContactsRemoveEmptyWriters(t *testing.T, s store.Store) {
	set := func(contacts ...string) func(int, int) error {
		return func(w, _ int) error {
			owner := fmt.Sprint("owner", w)
			err := s.SetContacts(context.Background(), kit.Namespace, owner, contacts)
			if got := Of(t, s, owner); len(got) != len(contacts) {
				return fmt.Errorf("%q has %q", owner, got)
			}
			return err
		}
	}
	kit.RemoveWhile(t, s, set("bob"), set())
	require.Equal(t, []string{"bob"}, Of(t, s, "owner3"))
}
