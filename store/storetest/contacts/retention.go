package contacts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/changes"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunRetention tests when TrimContacts deletes contacts. Stores need Pass. The times of these tests are hours
// apart, so that their duration does not matter.
func RunRetention(t *testing.T, open func(testing.TB) kit.Breakable) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, kit.Breakable){
		"Ends":       testContactsEnd,
		"Feed":       testContactsEndInFeed,
		"Uses":       testContactsUses,
		"Invisible":  testContactsOfInvisible,
		"Purged":     testContactsAfterPurge,
		"Held":       testContactsHeld,
		"Bounded":    testContactsBounded,
		"AtMost":     testContactsTrimAtMost,
		"Namespaces": testContactsTrimNamespaces,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) { testContactsRetentionModel(t, open) })
}

const hour = time.Hour

// Trim deletes, once, the contacts of owners whose last use is longer ago than an age.
func Trim(t require.TestingT, s store.Store, age time.Duration, all bool) store.ContactsTrimResult {
	q := store.TrimQuery{Age: age, Now: kit.Now(t, s), All: all}
	result, err := s.TrimContacts(context.Background(), kit.Namespace, q)
	require.NoError(t, err)
	return result
}

// owners returns those of some users who have contacts.
func owners(t require.TestingT, s store.Store, users ...string) []string {
	found := []string{}
	for _, user := range users {
		if len(Of(t, s, user)) > 0 {
			found = append(found, user)
		}
	}
	return found
}

func testContactsEnd(t *testing.T, b kit.Breakable) {
	Set(t, b, "alice", "bob", "carol")
	Set(t, b, "bob", "alice")
	b.Pass(2 * hour)
	Set(t, b, "carol", "alice")
	require.Zero(t, Trim(t, b, 3*hour, true))
	require.Zero(t, Trim(t, b, 1<<63-1, true), "nothing was used before 1970")
	require.Equal(t, store.ContactsTrimResult{Owners: 2, Contacts: 3}, Trim(t, b, hour, true))
	require.Equal(t, []string{"carol"}, owners(t, b, "alice", "bob", "carol"))
	require.Equal(t, []string{"alice"}, Of(t, b, "carol"), "the lists of others are theirs")
	require.Zero(t, Trim(t, b, hour, true))
	b.Pass(2 * hour)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, Trim(t, b, hour, true))
	require.Equal(t, []string{kit.Namespace}, kit.Existing(t, b))
	require.True(t, kit.RemoveEmpty(t, b, kit.Namespace), "nothing is left")
}

func testContactsEndInFeed(t *testing.T, b kit.Breakable) {
	Set(t, b, "alice", "bob", "carol")
	b.Pass(2 * hour)
	Set(t, b, "carol", "alice")
	f := changes.Begin(t, b)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 2}, Trim(t, b, hour, true))
	require.Equal(t, []store.Change{{User: "alice", Contacts: true}}, f.Read())
}

// RunBehind tests, on a store with one shard, that contacts which are written while the clock is behind do not
// look old when it is right again. It needs Pass.
func RunBehind(t *testing.T, b kit.Breakable) {
	t.Helper()
	Set(t, b, "alice", "bob")
	b.Pass(-10 * hour)
	Set(t, b, "bob", "alice")
	b.Pass(12 * hour)
	Set(t, b, "carol", "alice")
	require.Zero(t, Trim(t, b, 5*hour, true))
	require.Equal(t, store.ContactsTrimResult{Owners: 2, Contacts: 2}, Trim(t, b, hour, true))
}

// contactUses are what counts as a use of an owner.
func contactUses() map[string]func(*testing.T, store.Store, string) {
	return map[string]func(*testing.T, store.Store, string){
		"ping":  func(t *testing.T, s store.Store, user string) { kit.Ping(t, s, user, kit.Now(t, s)) },
		"leave": func(t *testing.T, s store.Store, user string) { kit.Leave(t, s, user, kit.Now(t, s)) },
		"device": func(t *testing.T, s store.Store, user string) {
			devices.Record(t, s, devices.On(user, "tab", kit.Now(t, s)))
		},
		"leave of a device": func(t *testing.T, s store.Store, user string) {
			devices.Record(t, s, devices.Bye(user, "tab", kit.Now(t, s)))
		},
		"set":     func(t *testing.T, s store.Store, user string) { Set(t, s, user, "friend") },
		"replace": func(t *testing.T, s store.Store, user string) { Set(t, s, user, "other") },
		"add": func(t *testing.T, s store.Store, user string) {
			changeContacts(t, s, user, []string{"other"}, nil)
		},
		"known": func(t *testing.T, s store.Store, user string) {
			changeContacts(t, s, user, []string{"friend"}, []string{"stranger"})
		},
		"none": func(t *testing.T, s store.Store, user string) { changeContacts(t, s, user, nil, nil) },
		"busy": func(t *testing.T, s store.Store, user string) { availability.Set(t, s, user, availability.Busy) },
		"nothing": func(t *testing.T, s store.Store,
			user string,
		) {
			availability.Set(t, s, user, availability.Nothing)
		},
	}
}

// testContactsUses: each use keeps the contacts of its owner, and reads keep none.
func testContactsUses(t *testing.T, b kit.Breakable) {
	uses, users := contactUses(), []string{"idle", "read"}
	for user := range uses {
		users = append(users, user)
	}
	for _, user := range users {
		Set(t, b, user, "friend")
		kit.Ping(t, b, user, kit.Now(t, b))
	}
	b.Pass(2 * hour)
	for user, use := range uses {
		use(t, b, user)
	}
	Set(t, b, "other", "read", "idle")
	Of(t, b, "read")
	areContacts(t, b, store.ContactPair{Owner: "read", Contact: "friend"})
	kit.Lookup(t, b, "read")
	availability.Details(t, b, "read")
	b.Pass(2 * hour)
	require.Equal(t, 2, Trim(t, b, 3*hour, true).Owners)
	require.ElementsMatch(t, users[2:], owners(t, b, users...))
	b.Pass(2 * hour)
	require.Equal(t, len(users)-1, Trim(t, b, 3*hour, true).Owners)
	require.Empty(t, owners(t, b, users...))
}

// testContactsOfInvisible: invisible users use the service, until that ends.
func testContactsOfInvisible(t *testing.T, b kit.Breakable) {
	users := []string{"always", "ended", "timed", "visible"}
	for _, user := range users {
		Set(t, b, user, "friend")
	}
	availability.Set(t, b, "always", availability.Invisible)
	availability.Set(t, b, "ended", availability.Invisible)
	availability.SetAt(t, b, "timed", availability.Until(kit.Now(t, b).Add(4*hour), availability.Invisible),
		kit.Now(t, b))
	b.Pass(6 * hour)
	kit.Ping(t, b, "always", kit.Now(t, b))
	require.Equal(t, 1, Trim(t, b, 3*hour, true).Owners)
	require.Equal(t, users[:3], owners(t, b, users...))
	availability.Set(t, b, "ended", availability.Nothing)
	b.Pass(2 * hour)
	require.Equal(t, 1, Trim(t, b, 3*hour, true).Owners, "the end of the hidden time was four hours ago")
	require.Equal(t, users[:2], owners(t, b, users...))
	b.Pass(2 * hour)
	require.Equal(t, 1, Trim(t, b, 3*hour, true).Owners)
	require.Equal(t, users[:1], owners(t, b, users...))
	b.Pass(1000 * hour)
	require.Zero(t, Trim(t, b, 3*hour, true).Owners)
	availability.Set(t, b, "always", availability.Nothing)
	b.Pass(4 * hour)
	require.Equal(t, 1, Trim(t, b, 3*hour, true).Owners)
}

// testContactsAfterPurge: stores forget hidden times that ended long ago. They count all the same.
func testContactsAfterPurge(t *testing.T, b kit.Breakable) {
	Set(t, b, "hidden", "friend")
	Set(t, b, "visible", "friend")
	availability.SetAt(t, b, "hidden", availability.Until(kit.Now(t, b).Add(4*hour), availability.Invisible),
		kit.Now(t, b))
	b.Pass(store.HiddenKept + 6*hour)
	availability.Set(t, b, "other", availability.Busy)
	availability.Set(t, b, "other", availability.Invisible)
	require.Equal(t, 1, Trim(t, b, store.HiddenKept+3*hour, true).Owners)
	require.Equal(t, []string{"hidden"}, owners(t, b, "hidden", "visible"))
	b.Pass(2 * hour)
	require.Equal(t, 1, Trim(t, b, store.HiddenKept+3*hour, true).Owners)
}

// testContactsHeld: without All, no contacts are deleted where none would be left.
func testContactsHeld(t *testing.T, b kit.Breakable) {
	users := make([]string, 40)
	for i := range users {
		users[i] = fmt.Sprint("owner", i)
		Set(t, b, users[i], "friend")
	}
	b.Pass(2 * hour)
	require.Equal(t, store.ContactsTrimResult{Held: true}, Trim(t, b, hour, false))
	require.Len(t, owners(t, b, users...), 40)
	for _, user := range users[:20] {
		kit.Ping(t, b, user, kit.Now(t, b))
	}
	for _, user := range users[20:] {
		kit.Ping(t, b, user, kit.Now(t, b)-90*kit.Minute)
	}
	require.Equal(t, store.ContactsTrimResult{Owners: 20, Contacts: 20}, Trim(t, b, hour, false))
	require.Equal(t, users[:20], owners(t, b, users...))
	b.Pass(2 * hour)
	require.Equal(t, store.ContactsTrimResult{Held: true}, Trim(t, b, hour, false))
	require.Equal(t, store.ContactsTrimResult{Owners: 20, Contacts: 20}, Trim(t, b, hour, true))
	require.Zero(t, Trim(t, b, hour, false), "no contacts hold nothing back")
}

// testContactsBounded: a call deletes a bounded number of contacts, and always some.
func testContactsBounded(t *testing.T, b kit.Breakable) {
	all := numberedUsers(store.MaxContacts)
	sizes := []int{store.MaxContacts / 2, 1, store.MaxContacts, 2, store.MaxContacts/2 - 2, store.MaxContacts / 2}
	for i, size := range sizes {
		Set(t, b, fmt.Sprint("owner", i), all[:size]...)
	}
	b.Pass(2 * hour)
	Set(t, b, "fresh", "friend")
	var total store.ContactsTrimResult
	for total.More = true; total.More; {
		result := Trim(t, b, hour, true)
		require.Positive(t, result.Contacts)
		require.LessOrEqual(t, result.Contacts, store.MaxContacts)
		total.Owners, total.Contacts = total.Owners+result.Owners, total.Contacts+result.Contacts
		total.More = result.More
	}
	want := store.ContactsTrimResult{Owners: len(sizes)}
	for _, size := range sizes {
		want.Contacts += size
	}
	require.Equal(t, want, total)
	require.Equal(t, []string{"fresh"}, owners(t, b, "fresh", "owner0", "owner2", "owner5"))
}

// testContactsTrimAtMost: a call looks at a bounded number of owners, and calls together find all.
func testContactsTrimAtMost(t *testing.T, b kit.Breakable) {
	users := numberedUsers(store.MaxTrim + 100)
	for _, user := range users {
		Set(t, b, user, "friend")
	}
	b.Pass(2 * hour)
	kit.Write(b.Ping).In(t, kit.Namespace, kit.Now(t, b), users[:store.MaxTrim+50]...)
	total, calls := 0, 0
	for more := true; more; calls++ {
		require.Less(t, calls, 10, "it does not end")
		result := Trim(t, b, hour, true)
		require.LessOrEqual(t, result.Owners, store.MaxTrim)
		total, more = total+result.Owners, result.More
	}
	require.Equal(t, 50, total)
	require.Equal(t, users[:store.MaxTrim+50], owners(t, b, users...))
}

func testContactsTrimNamespaces(t *testing.T, b kit.Breakable) {
	ctx := context.Background()
	require.Zero(t, Trim(t, b, hour, true))
	require.Empty(t, kit.Existing(t, b), "it creates no namespace")
	kit.Ping(t, b, "alice", kit.Now(t, b))
	require.Zero(t, Trim(t, b, hour, true))
	for _, namespace := range []string{kit.Namespace, "other"} {
		require.NoError(t, b.SetContacts(ctx, namespace, "alice", []string{"bob"}))
	}
	b.Pass(2 * hour)
	require.Equal(t, 1, Trim(t, b, hour, true).Owners)
	require.Equal(t, []string{"bob"}, contactsIn(t, b, "other", "alice"))
	require.NoError(t, b.DeleteNamespace(ctx, "other"))
	b.Pass(2 * hour)
	require.NoError(t, b.SetContacts(ctx, "other", "alice", []string{"bob"}))
	result, err := b.TrimContacts(ctx, "other", store.TrimQuery{Age: hour, Now: kit.Now(t, b), All: true})
	require.NoError(t, err)
	require.Zero(t, result, "nothing is left of a namespace that was deleted")
}

// testContactsClockMoved: when the store's clock is not where the caller expects it, no contacts are deleted.
func testContactsClockMoved(t *testing.T, s store.Store) {
	Set(t, s, "alice", "bob")
	for _, apart := range []time.Duration{store.MaxClockDrift, hour, 20 * 365 * 24 * hour} {
		for _, apart := range []time.Duration{apart + time.Second, -apart - time.Second} {
			q := store.TrimQuery{Age: time.Millisecond, Now: kit.Now(t, s).Add(apart), All: true}
			result, err := s.TrimContacts(context.Background(), kit.Namespace, q)
			require.ErrorIs(t, err, store.ErrClockMoved, "%s", apart)
			require.Zero(t, result)
		}
	}
	_, err := s.TrimContacts(context.Background(), kit.Namespace, store.TrimQuery{Age: time.Millisecond, All: true})
	require.ErrorIs(t, err, store.ErrClockMoved, "without an expectation nothing is deleted")
	require.Equal(t, []string{"bob"}, Of(t, s, "alice"))
}
