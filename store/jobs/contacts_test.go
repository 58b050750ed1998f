package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func know(t *testing.T, s store.Store, namespace string, owners ...string) {
	t.Helper()
	for _, owner := range owners {
		require.NoError(t, s.SetContacts(context.Background(), namespace, owner, []string{"friend", "other"}))
	}
}

// requireOwners requires that just these of some users have contacts in a namespace.
func requireOwners(t *testing.T, s store.Store, namespace string, want ...string) {
	t.Helper()
	got := []string{}
	for _, owner := range []string{"idle", "seen", "writes", "left"} {
		contacts, err := s.ListContacts(context.Background(), namespace, owner, "", 5)
		require.NoError(t, err)
		if len(contacts) > 0 {
			got = append(got, owner)
		}
	}
	require.ElementsMatch(t, want, got, namespace)
}

func (j *retentionTest) seeAgain(t *testing.T, s store.Store, namespace string) {
	t.Helper()
	batch := []store.PresenceEvent{{User: "seen", At: j.Instant()}}
	kit.Write(s.Ping).Send(t, namespace, batch)
}

// TestContactsRetention deletes the contacts past their namespace's retention of contacts, and no others. Users who are
// deleted before keep theirs.
func TestContactsRetention(t *testing.T) {
	j := newRetentionTest(t, 4*time.Hour)
	s := j.openFile(t)
	namespaces := []string{"forever", "hour", "three"}
	keep := map[string]time.Duration{"hour": time.Hour, "three": 3 * time.Hour}
	j.rules.Users = func(string) time.Duration { return 10 * time.Minute }
	j.rules.Contacts = func(namespace string) time.Duration { return keep[namespace] }
	for _, namespace := range namespaces {
		know(t, s, namespace, "idle", "seen", "writes", "left")
		ping(t, s, namespace, map[string]time.Duration{"idle": 0, "seen": 0, "left": 0})
	}
	after := func(d time.Duration) bool { return j.Monotonic() >= d }
	j.meantime = func() {
		for _, namespace := range namespaces {
			switch at := j.Monotonic(); {
			case at == 30*time.Minute, at == 150*time.Minute:
				j.seeAgain(t, s, namespace)
			case at == 45*time.Minute, at == 130*time.Minute:
				require.NoError(t, s.ChangeContacts(j.ctx, namespace, "writes", []string{"friend"}, nil))
			case namespace == "hour" && after(time.Hour+2*roundEvery) && !after(89*time.Minute):
				requireOwners(t, s, namespace, "seen", "writes")
			case namespace == "three" && after(3*time.Hour+2*roundEvery):
				requireOwners(t, s, namespace, "seen", "writes")
			}
		}
	}
	j.Run(j.ctx)
	requireOwners(t, s, "forever", "idle", "seen", "writes", "left")
	for _, namespace := range namespaces {
		requireUsers(t, s, namespace)
	}
	require.Contains(t, j.log.String(), `msg="deleted contacts past their retention" namespace=hour owners=2 contacts=4`)
	require.Contains(t, j.log.String(), `msg="deleted contacts past their retention" namespace=three owners=2 contacts=4`)
	require.EqualValues(t, 4+2+2+1+4, j.Stats().DeletedContacts, "writes adds one again, which ends, too")
}

// TestContactsRetentionAlone: without a retention of users, and in namespaces without users. What is empty then is
// removed.
func TestContactsRetentionAlone(t *testing.T) {
	j := newRetentionTest(t, 2*time.Hour)
	s := j.openFile(t)
	j.rules.Users = func(string) time.Duration { return 0 }
	j.rules.Contacts = func(string) time.Duration { return time.Hour }
	j.rules.Configured = func(string) bool { return false }
	know(t, s, "users", "idle", "seen")
	ping(t, s, "users", map[string]time.Duration{"idle": 0, "seen": 0})
	know(t, s, "empty", "idle")
	j.meantime = func() {
		if at := j.Monotonic(); at == 50*time.Minute || at == 100*time.Minute {
			j.seeAgain(t, s, "users")
		}
	}
	j.Run(j.ctx)
	requireOwners(t, s, "users", "seen")
	requireUsers(t, s, "users", "idle", "seen")
	require.Len(t, kit.Namespaces(t, s, 10), 1)
	require.EqualValues(t, 4, j.Stats().DeletedContacts)
}

// TestContactsRetentionEmptiesLate: all contacts of a namespace are deleted only when every round for ten minutes would
// have done so, as with a clock that is wrong by years.
func TestContactsRetentionEmptiesLate(t *testing.T) {
	for _, visited := range []bool{false, true} {
		j := newRetentionTest(t, 30*roundEvery)
		s := j.openFile(t)
		j.rules.Users = func(string) time.Duration { return 0 }
		j.rules.Contacts = func(string) time.Duration { return time.Hour }
		var owners []string
		for n := 0; n < 2*store.MaxTrim && !visited; n++ { // several calls
			owners = append(owners, fmt.Sprint(n))
		}
		know(t, s, "chat", append(owners, "idle", "seen")...)
		j.Passed.Add(2 * time.Hour)
		begun := j.Monotonic()
		j.meantime = func() {
			at := j.Monotonic() - begun
			if at == 5*roundEvery && visited {
				j.seeAgain(t, s, "chat")
			}
			switch {
			case at < 5*roundEvery, at < steadyFor && !visited:
				requireOwners(t, s, "chat", "idle", "seen")
			case visited && at >= 7*roundEvery:
				requireOwners(t, s, "chat", "seen")
			}
		}
		j.Run(j.ctx)
		want := 2 * (len(owners) + 2)
		if visited {
			want -= 2
		}
		require.EqualValues(t, want, j.Stats().DeletedContacts)
		require.Equal(t, 1, strings.Count(j.log.String(), "contacts-retention would delete all contacts"))
		require.Equal(t, 1, strings.Count(j.log.String(), "deleted contacts past"))
	}
}

// TestContactsRetentionWaitsForTheClock: after the clock moved, by years as well, nothing is deleted for ten minutes.
func TestContactsRetentionWaitsForTheClock(t *testing.T) {
	const years = 50 * 365 * 24 * time.Hour
	j := newRetentionTest(t, time.Hour)
	s := &shiftedClock{Store: j.openFile(t)}
	j.store = s
	j.rules.Users = func(string) time.Duration { return 0 }
	j.rules.Contacts = func(string) time.Duration { return 15 * time.Minute }
	know(t, s, "chat", "idle", "seen")
	j.meantime = func() {
		at := j.Monotonic()
		s.by = 0
		if at >= 5*roundEvery && at < 14*roundEvery {
			s.by = years
		}
		j.seeAgain(t, s, "chat")
		if at < 14*roundEvery+steadyFor {
			requireOwners(t, s, "chat", "idle", "seen")
		}
	}
	j.Run(j.ctx)
	requireOwners(t, s, "chat", "seen")
	require.Equal(t, 1, strings.Count(j.log.String(), "clock moved: nothing is deleted"))
}

// TestContactsRetentionDoesWithoutContacts: sets that other programs write have none, and their users are deleted all
// the same. So are users if contacts cannot be deleted, unless the clock moved.
func TestContactsRetentionDoesWithoutContacts(t *testing.T) {
	for _, cause := range []error{store.ErrNoContacts, store.ErrWrongType, store.ErrClockMoved} {
		j := newRetentionTest(t, roundEvery)
		s := j.openFile(t)
		j.rules.Contacts = func(string) time.Duration { return time.Hour }
		ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
		j.store = withoutContacts{s, cause}
		j.Run(j.ctx)
		want := []string{"young"}
		if errors.Is(cause, store.ErrClockMoved) {
			want = append(want, "old") // until the clock is steady
		}
		requireUsers(t, s, "chat", want...)
		logged := strings.Contains(j.log.String(), "cannot delete")
		require.Equal(t, errors.Is(cause, store.ErrWrongType), logged, j.log.String())
	}
}

// withoutContacts is a store whose contacts cannot be deleted.
type withoutContacts struct {
	store.Store
	cause error
}

func (s withoutContacts) TrimContacts(context.Context, string, store.TrimQuery) (store.ContactsTrimResult, error) {
	return store.ContactsTrimResult{}, s.cause
}
