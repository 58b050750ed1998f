package presencetests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// knowAlice makes alice the only contact of many owners.
func knowAlice(t testing.TB, s store.Store, owners []string) {
	t.Helper()
	var calls errgroup.Group // at once: the embedded store flushes them together
	calls.SetLimit(100)
	for _, owner := range owners {
		calls.Go(func() error { return s.SetContacts(context.Background(), "chat", owner, []string{"alice"}) })
	}
	require.NoError(t, calls.Wait())
}

// many returns n user IDs.
func many(n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("u%04d", i)
	}
	return users
}

// scatter records users at times of whom several share each, some of whom left.
func scatter(t testing.TB, s store.Store, users []string) {
	t.Helper()
	var pings, leaves []store.PresenceEvent
	for i, user := range users {
		seen := store.PresenceEvent{User: user, At: kit.Now - lastseen.Instant(i*7919%len(users)/5)*500}
		if i%7 == 0 {
			leaves = append(leaves, seen)
		} else {
			pings = append(pings, seen)
		}
	}
	_, err := s.Ping(context.Background(), "chat", pings)
	require.NoError(t, err)
	_, err = s.Leave(context.Background(), "chat", leaves)
	require.NoError(t, err)
}

// walk returns the users of all pages of a list, as a caller gets it.
func walk(w *apitest.Server, query, credentials string) (all []any) {
	w.T.Helper()
	for _, page := range pagesOf(w, "/chat/users"+query, kit.HeadersOf(credentials)...) {
		all = append(all, page["users"].([]any)...)
	}
	return all
}

// TestVisibleLists compares a user's lists and counts of 5,000 contacts, half of whom have the user, with those of a
// key without the others.
func TestVisibleLists(t *testing.T) {
	t.Parallel()
	visibleStores(t, func(t *testing.T, open func() store.Store) {
		w, headers := apitest.NewVisibleServer(t, open())
		users := many(store.MaxContacts + 300)
		scatter(t, w.Store, users[300:])
		contacts := users[:store.MaxContacts] // the first were never seen, the last are strangers
		kit.SetContacts(t, w.Store, "alice", contacts...)
		seeing := slices.DeleteFunc(slices.Clone(contacts), func(user string) bool { return user[4]%2 == 0 })
		knowAlice(t, w.Store, seeing)
		knowAlice(t, w.Store, users[store.MaxContacts:]) // who have alice, but are no contacts of hers
		sees := map[any]bool{}
		for _, user := range seeing {
			sees[user] = true
		}
		visible := func(all []any) (seen []any) {
			for _, u := range all {
				if sees[u.(map[string]any)["user"]] {
					seen = append(seen, u)
				}
			}
			return seen
		}
		for _, query := range []string{
			"?limit=1000", "?limit=997&order=oldest", "?limit=500&status=grey", "?limit=999&status=green&status=yellow",
			"?limit=1000&from=1795175800&to=1795175900", "?limit=700&order=oldest&as_of=1795175900",
		} {
			want := visible(walk(w, query, headers["all"]))
			require.NotEmpty(t, want, query)
			require.Equal(t, want, walk(w, query, headers["alice"]), query)
		}
		first := visible(walk(w, "?limit=1000", headers["all"]))
		r := w.Send(http.MethodGet, "/chat/users?offset=3&limit=7", "", kit.HeadersOf(headers["alice"])...)
		require.Equal(t, first[3:10], r.JSON(t)["users"])
		for _, status := range []string{"green", "yellow", "grey"} {
			r := w.Send(http.MethodGet, "/chat/counts", "", kit.HeadersOf(headers["alice"])...)
			require.EqualValues(t, len(walk(w, "?limit=1000&status="+status, headers["alice"])), r.JSON(t)[status])
		}
	})
}

// TestVisibleListsReadContactsOnce: a page reads the contacts once, in as few calls as it can.
func TestVisibleListsReadContactsOnce(t *testing.T) {
	t.Parallel()
	s := &kit.LoggedStore{Store: kit.FileStore(t)}
	w, headers := apitest.NewVisibleServer(t, s)
	for n, want := range map[int]int{0: 1, 999: 3, 1000: 4, 1001: 6, store.MaxContacts: 15} {
		kit.SetContacts(t, s, "alice", many(n)...)
		for _, path := range []string{"/chat/users", "/chat/counts"} {
			s.Take()
			r := w.Send(http.MethodGet, path, "", kit.HeadersOf(headers["alice"])...)
			require.Equal(t, http.StatusOK, r.Status, r.Body)
			require.Len(t, s.Take(), want, "%s with %d contacts", path, n)
		}
	}
}

// TestVisibleListsAreCharged: each further thousand contacts counts as a request, before it is read.
func TestVisibleListsAreCharged(t *testing.T) {
	t.Parallel()
	s := &kit.LoggedStore{Store: kit.FileStore(t)}
	w, headers := apitest.NewVisibleServer(t, s, apitest.BehindProxy,
		func(c *api.Config) { c.Limits = limit.Limits{User: 2} })
	kit.SetContacts(t, s, "alice", many(store.MaxContacts)...)
	get := func(caller, path string) int {
		return w.Send(http.MethodGet, path, "", kit.HeadersOf(headers[caller])...).Status
	}
	require.Equal(t, http.StatusOK, get("alice", "/chat/users")) // a burst is of 10
	require.Equal(t, http.StatusOK, get("alice", "/chat/users/alice"))
	s.Take()
	w.Fails(problem.RateLimited, http.MethodGet, "/chat/counts", "", kit.HeadersOf(headers["alice"])...)
	require.Len(t, s.Take(), 4*3, "four thousand contacts were paid for")
	kit.SetContacts(t, s, "bob", many(1000)...)
	for i := range 5 {
		require.Equal(t, http.StatusOK, get("bob", "/chat/users"), i) // the second page is empty
	}
	w.Fails(problem.RateLimited, http.MethodGet, "/chat/counts", "", kit.HeadersOf(headers["bob"])...)
}
