package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RunContactsRetention tests when TrimContacts deletes contacts. Stores need Pass. The times of these tests are hours
// apart, so that their duration does not matter.
func RunContactsRetention(t *testing.T, open func(testing.TB) Breakable) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Breakable){
		"Ends":       testContactsEnd,
		"Uses":       testContactsUses,
		"Trimmed":    testContactsOfTrimmed,
		"Invisible":  testContactsOfInvisible,
		"Purged":     testContactsAfterPurge,
		"Held":       testContactsHeld,
		"Bounded":    testContactsBounded,
		"AtMost":     testContactsTrimAtMost,
		"Namespaces": testContactsTrimNamespaces,
		"Written":    testContactsWrittenAgain,
		"Restart":    testContactUsesSurvive,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) { testContactsRetentionModel(t, open) })
}

const hour = time.Hour

// trimContacts deletes, once, the contacts of owners whose last use is longer ago than an age.
func trimContacts(t require.TestingT, s store.Store, age time.Duration, all bool) store.ContactsTrimResult {
	q := store.TrimQuery{Age: age, Now: now(t, s), All: all}
	result, err := s.TrimContacts(context.Background(), ns, q)
	require.NoError(t, err)
	return result
}

// owners returns those of some users who have contacts.
func owners(t require.TestingT, s store.Store, users ...string) []string {
	found := []string{}
	for _, user := range users {
		if len(contactsOf(t, s, user)) > 0 {
			found = append(found, user)
		}
	}
	return found
}

func testContactsEnd(t *testing.T, b Breakable) {
	setContacts(t, b, "alice", "bob", "carol")
	setContacts(t, b, "bob", "alice")
	b.Pass(2 * hour)
	setContacts(t, b, "carol", "alice")
	require.Zero(t, trimContacts(t, b, 3*hour, true))
	require.Zero(t, trimContacts(t, b, 1<<63-1, true), "nothing was used before 1970")
	require.Equal(t, store.ContactsTrimResult{Owners: 2, Contacts: 3}, trimContacts(t, b, hour, true))
	require.Equal(t, []string{"carol"}, owners(t, b, "alice", "bob", "carol"))
	require.Equal(t, []string{"alice"}, contactsOf(t, b, "carol"), "the lists of others are theirs")
	require.Zero(t, trimContacts(t, b, hour, true))
	b.Pass(2 * hour)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, trimContacts(t, b, hour, true))
	require.Equal(t, []string{ns}, existing(t, b))
	require.True(t, removeEmpty(t, b, ns), "nothing is left")
}

// RunContactsBehind tests, on a store with one shard, that contacts which are written while the clock is behind do not
// look old when it is right again. It needs Pass.
func RunContactsBehind(t *testing.T, b Breakable) {
	t.Helper()
	setContacts(t, b, "alice", "bob")
	b.Pass(-10 * hour)
	setContacts(t, b, "bob", "alice")
	b.Pass(12 * hour)
	setContacts(t, b, "carol", "alice")
	require.Zero(t, trimContacts(t, b, 5*hour, true))
	require.Equal(t, store.ContactsTrimResult{Owners: 2, Contacts: 2}, trimContacts(t, b, hour, true))
}

// contactUses are what counts as a use of an owner.
func contactUses() map[string]func(*testing.T, store.Store, string) {
	return map[string]func(*testing.T, store.Store, string){
		"ping":    func(t *testing.T, s store.Store, user string) { ping(t, s, user, now(t, s)) },
		"leave":   func(t *testing.T, s store.Store, user string) { leave(t, s, user, now(t, s)) },
		"device":  func(t *testing.T, s store.Store, user string) { record(t, s, on(user, "tab", now(t, s))) },
		"goodbye": func(t *testing.T, s store.Store, user string) { record(t, s, bye(user, "tab", now(t, s))) },
		"set":     func(t *testing.T, s store.Store, user string) { setContacts(t, s, user, "friend") },
		"replace": func(t *testing.T, s store.Store, user string) { setContacts(t, s, user, "other") },
		"add": func(t *testing.T, s store.Store, user string) {
			changeContacts(t, s, user, []string{"other"}, nil)
		},
		"known": func(t *testing.T, s store.Store, user string) {
			changeContacts(t, s, user, []string{"friend"}, []string{"stranger"})
		},
		"none":    func(t *testing.T, s store.Store, user string) { changeContacts(t, s, user, nil, nil) },
		"busy":    func(t *testing.T, s store.Store, user string) { say(t, s, user, busy) },
		"nothing": func(t *testing.T, s store.Store, user string) { say(t, s, user, nothing) },
	}
}

// testContactsUses: each use keeps the contacts of its owner, and reads keep none.
func testContactsUses(t *testing.T, b Breakable) {
	uses, users := contactUses(), []string{"idle", "read"}
	for user := range uses {
		users = append(users, user)
	}
	for _, user := range users {
		setContacts(t, b, user, "friend")
		ping(t, b, user, now(t, b))
	}
	b.Pass(2 * hour)
	for user, use := range uses {
		use(t, b, user)
	}
	setContacts(t, b, "other", "read", "idle")
	contactsOf(t, b, "read")
	areContacts(t, b, store.ContactPair{Owner: "read", Contact: "friend"})
	lookup(t, b, "read")
	details(t, b, "read")
	b.Pass(2 * hour)
	require.Equal(t, 2, trimContacts(t, b, 3*hour, true).Owners)
	require.ElementsMatch(t, users[2:], owners(t, b, users...))
	b.Pass(2 * hour)
	require.Equal(t, len(users)-1, trimContacts(t, b, 3*hour, true).Owners)
	require.Empty(t, owners(t, b, users...))
}

// testContactsOfTrimmed: Trim deletes last-seen times, and they count all the same.
func testContactsOfTrimmed(t *testing.T, b Breakable) {
	users := []string{"here", "left", "device", "idle", "unseen"}
	thresholds := lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
	for _, feed := range []bool{false, true} {
		for _, user := range users {
			setContacts(t, b, user, "friend", "other")
		}
		b.Pass(2 * hour)
		ping(t, b, "here", now(t, b))
		leave(t, b, "left", now(t, b))
		record(t, b, on("device", "tab", now(t, b)))
		idle := on("idle", "tab", now(t, b))
		idle.Idle = now(t, b) - minute
		record(t, b, idle)
		ping(t, b, "stranger", now(t, b))
		b.Pass(2 * hour)
		if feed {
			require.NoError(t, b.RecordChanges(context.Background(), ns, thresholds))
		}
		require.Equal(t, 5, trim(t, b, ns, now(t, b).Add(-hour), true).Deleted)
		require.Equal(t, 1, trimContacts(t, b, 3*hour, true).Owners)
		require.Equal(t, users[:4], owners(t, b, users...))
		require.Empty(t, contactsOf(t, b, "stranger"))
		b.Pass(2 * hour)
		require.Equal(t, store.ContactsTrimResult{Owners: 4, Contacts: 8}, trimContacts(t, b, 3*hour, true))
	}
}

// testContactsOfInvisible: invisible users use the service, until that ends.
func testContactsOfInvisible(t *testing.T, b Breakable) {
	users := []string{"always", "ended", "timed", "visible"}
	for _, user := range users {
		setContacts(t, b, user, "friend")
	}
	say(t, b, "always", invisible)
	say(t, b, "ended", invisible)
	sayAt(t, b, "timed", until(now(t, b).Add(4*hour), invisible), now(t, b))
	b.Pass(6 * hour)
	ping(t, b, "always", now(t, b))
	require.Equal(t, 1, trimContacts(t, b, 3*hour, true).Owners)
	require.Equal(t, users[:3], owners(t, b, users...))
	say(t, b, "ended", nothing)
	b.Pass(2 * hour)
	require.Equal(t, 1, trimContacts(t, b, 3*hour, true).Owners, "the end of the hidden time was four hours ago")
	require.Equal(t, users[:2], owners(t, b, users...))
	b.Pass(2 * hour)
	require.Equal(t, 1, trimContacts(t, b, 3*hour, true).Owners)
	require.Equal(t, users[:1], owners(t, b, users...))
	b.Pass(1000 * hour)
	require.Zero(t, trimContacts(t, b, 3*hour, true).Owners)
	say(t, b, "always", nothing)
	b.Pass(4 * hour)
	require.Equal(t, 1, trimContacts(t, b, 3*hour, true).Owners)
}

// testContactsAfterPurge: stores forget hidden times that ended long ago. They count all the same.
func testContactsAfterPurge(t *testing.T, b Breakable) {
	setContacts(t, b, "hidden", "friend")
	setContacts(t, b, "visible", "friend")
	sayAt(t, b, "hidden", until(now(t, b).Add(4*hour), invisible), now(t, b))
	b.Pass(store.HiddenKept + 6*hour)
	say(t, b, "other", busy)
	say(t, b, "other", invisible)
	require.Equal(t, 1, trimContacts(t, b, store.HiddenKept+3*hour, true).Owners)
	require.Equal(t, []string{"hidden"}, owners(t, b, "hidden", "visible"))
	b.Pass(2 * hour)
	require.Equal(t, 1, trimContacts(t, b, store.HiddenKept+3*hour, true).Owners)
}

// testContactsHeld: without All, no contacts are deleted where none would be left.
func testContactsHeld(t *testing.T, b Breakable) {
	users := make([]string, 40)
	for i := range users {
		users[i] = fmt.Sprint("owner", i)
		setContacts(t, b, users[i], "friend")
	}
	b.Pass(2 * hour)
	require.Equal(t, store.ContactsTrimResult{Held: true}, trimContacts(t, b, hour, false))
	require.Len(t, owners(t, b, users...), 40)
	for _, user := range users[:20] {
		ping(t, b, user, now(t, b))
	}
	for _, user := range users[20:] {
		ping(t, b, user, now(t, b)-90*minute)
	}
	require.Equal(t, store.ContactsTrimResult{Owners: 20, Contacts: 20}, trimContacts(t, b, hour, false))
	require.Equal(t, users[:20], owners(t, b, users...))
	b.Pass(2 * hour)
	require.Equal(t, store.ContactsTrimResult{Held: true}, trimContacts(t, b, hour, false))
	require.Equal(t, store.ContactsTrimResult{Owners: 20, Contacts: 20}, trimContacts(t, b, hour, true))
	require.Zero(t, trimContacts(t, b, hour, false), "no contacts hold nothing back")
}

// testContactsBounded: a call deletes a bounded number of contacts, and always some.
func testContactsBounded(t *testing.T, b Breakable) {
	all := numberedUsers(store.MaxContacts)
	sizes := []int{store.MaxContacts / 2, 1, store.MaxContacts, 2, store.MaxContacts/2 - 2, store.MaxContacts / 2}
	for i, size := range sizes {
		setContacts(t, b, fmt.Sprint("owner", i), all[:size]...)
	}
	b.Pass(2 * hour)
	setContacts(t, b, "fresh", "friend")
	var total store.ContactsTrimResult
	for total.More = true; total.More; {
		result := trimContacts(t, b, hour, true)
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
func testContactsTrimAtMost(t *testing.T, b Breakable) {
	users := numberedUsers(store.MaxTrim + 100)
	for _, user := range users {
		setContacts(t, b, user, "friend")
	}
	b.Pass(2 * hour)
	write(b.Ping).in(t, ns, now(t, b), users[:store.MaxTrim+50]...)
	total, calls := 0, 0
	for more := true; more; calls++ {
		require.Less(t, calls, 10, "it does not end")
		result := trimContacts(t, b, hour, true)
		require.LessOrEqual(t, result.Owners, store.MaxTrim)
		total, more = total+result.Owners, result.More
	}
	require.Equal(t, 50, total)
	require.Equal(t, users[:store.MaxTrim+50], owners(t, b, users...))
}

func testContactsTrimNamespaces(t *testing.T, b Breakable) {
	ctx := context.Background()
	require.Zero(t, trimContacts(t, b, hour, true))
	require.Empty(t, existing(t, b), "it creates no namespace")
	ping(t, b, "alice", now(t, b))
	require.Zero(t, trimContacts(t, b, hour, true))
	for _, namespace := range []string{ns, "other"} {
		require.NoError(t, b.SetContacts(ctx, namespace, "alice", []string{"bob"}))
	}
	b.Pass(2 * hour)
	require.Equal(t, 1, trimContacts(t, b, hour, true).Owners)
	require.Equal(t, []string{"bob"}, contactsIn(t, b, "other", "alice"))
	require.NoError(t, b.DeleteNamespace(ctx, "other"))
	b.Pass(2 * hour)
	require.NoError(t, b.SetContacts(ctx, "other", "alice", []string{"bob"}))
	result, err := b.TrimContacts(ctx, "other", store.TrimQuery{Age: hour, Now: now(t, b), All: true})
	require.NoError(t, err)
	require.Zero(t, result, "nothing is left of a namespace that was deleted")
}

// testContactsWrittenAgain: what was removed leaves no last use behind.
func testContactsWrittenAgain(t *testing.T, b Breakable) {
	removals := map[string]func(){
		"set":    func() { setContacts(t, b, "set") },
		"change": func() { changeContacts(t, b, "change", nil, []string{"friend"}) },
		"forget": func() { forget(t, b, "forget") },
		"trim":   func() { trimContacts(t, b, hour, true) },
	}
	for user := range removals {
		setContacts(t, b, user, "friend")
	}
	b.Pass(2 * hour)
	for user, remove := range removals {
		if user == "trim" {
			continue
		}
		remove()
		require.Empty(t, contactsOf(t, b, user), user)
	}
	require.Equal(t, 1, trimContacts(t, b, hour, true).Owners)
	require.True(t, removeEmpty(t, b, ns))
	for user := range removals {
		setContacts(t, b, user, "friend")
	}
	require.Zero(t, trimContacts(t, b, hour, true))
	b.Pass(2 * hour)
	require.Equal(t, len(removals), trimContacts(t, b, hour, true).Owners)
}

// testContactUsesSurvive: a restart changes nothing.
func testContactUsesSurvive(t *testing.T, b Breakable) {
	if b.Restart == nil {
		t.Skip("the store cannot be restarted")
	}
	users := []string{"here", "trimmed", "says", "writes", "idle"}
	for _, user := range users {
		setContacts(t, b, user, "friend")
	}
	b.Pass(2 * hour)
	b.Store = b.Restart()
	write(b.Ping).in(t, ns, now(t, b), "here", "trimmed")
	say(t, b, "says", busy)
	setContacts(t, b, "writes", "friend")
	b.Pass(2 * hour)
	ping(t, b, "here", now(t, b))
	require.Equal(t, 1, trim(t, b, ns, now(t, b).Add(-hour), true).Deleted)
	b.Store = b.Restart()
	require.Equal(t, 1, trimContacts(t, b, 3*hour, true).Owners)
	require.Equal(t, users[:4], owners(t, b, users...))
	b.Store = b.Restart()
	require.Equal(t, users[:4], owners(t, b, users...), "what was deleted stays deleted")
	b.Pass(2 * hour)
	require.Equal(t, 3, trimContacts(t, b, 3*hour, true).Owners)
	require.Equal(t, users[:1], owners(t, b, users...))
}

// testContactsClockMoved: when the store's clock is not where the caller expects it, no contacts are deleted.
func testContactsClockMoved(t *testing.T, s store.Store) {
	setContacts(t, s, "alice", "bob")
	for _, apart := range []time.Duration{store.MaxClockDrift, hour, 20 * 365 * 24 * hour} {
		for _, apart := range []time.Duration{apart + time.Second, -apart - time.Second} {
			q := store.TrimQuery{Age: time.Millisecond, Now: now(t, s).Add(apart), All: true}
			result, err := s.TrimContacts(context.Background(), ns, q)
			require.ErrorIs(t, err, store.ErrClockMoved, "%s", apart)
			require.Zero(t, result)
		}
	}
	_, err := s.TrimContacts(context.Background(), ns, store.TrimQuery{Age: time.Millisecond, All: true})
	require.ErrorIs(t, err, store.ErrClockMoved, "without an expectation nothing is deleted")
	require.Equal(t, []string{"bob"}, contactsOf(t, s, "alice"))
}
