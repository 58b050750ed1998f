package api

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// scatter records users at times of whom several share each, some of whom left.
func scatter(t testing.TB, s store.Store, users []string) {
	t.Helper()
	var pings, leaves []store.Sighting
	for i, user := range users {
		seen := store.Sighting{User: user, At: testNow - lastseen.Instant(i*7919%len(users)/5)*500}
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
func (w *testServer) walk(query, credentials string) (all []any) {
	w.t.Helper()
	cursor := ""
	for range 100 { // pages
		r := w.send(http.MethodGet, "/chat/users"+query+cursor, "", headersOf(credentials)...)
		require.Equal(w.t, http.StatusOK, r.status, r.body)
		page := r.json(w.t)
		all = append(all, page["users"].([]any)...)
		next, more := page["next_cursor"].(string)
		if !more {
			return all
		}
		cursor = "&cursor=" + next
	}
	w.t.Fatal("the list does not end")
	return nil
}

// TestVisibleLists compares a user's lists and counts of 5,000 contacts, half of whom have the user, with those of a
// key without the others.
func TestVisibleLists(t *testing.T) {
	t.Parallel()
	visibleStores(t, func(t *testing.T, open func() store.Store) {
		w, headers := newVisibleServer(t, open())
		users := many(store.MaxContacts + 300)
		scatter(t, w.store, users[300:])
		contacts := users[:store.MaxContacts] // the first were never seen, the last are strangers
		know(t, w.store, "alice", contacts...)
		seeing := slices.DeleteFunc(slices.Clone(contacts), func(user string) bool { return user[4]%2 == 0 })
		knowAlice(t, w.store, seeing)
		knowAlice(t, w.store, users[store.MaxContacts:]) // who have alice, but are no contacts of hers
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
			want := visible(w.walk(query, headers["all"]))
			require.NotEmpty(t, want, query)
			require.Equal(t, want, w.walk(query, headers["alice"]), query)
		}
		first := visible(w.walk("?limit=1000", headers["all"]))
		r := w.send(http.MethodGet, "/chat/users?offset=3&limit=7", "", headersOf(headers["alice"])...)
		require.Equal(t, first[3:10], r.json(t)["users"])
		for _, status := range []string{"green", "yellow", "grey"} {
			r := w.send(http.MethodGet, "/chat/counts", "", headersOf(headers["alice"])...)
			require.EqualValues(t, len(w.walk("?limit=1000&status="+status, headers["alice"])), r.json(t)[status])
		}
	})
}

// TestVisibleListsReadContactsOnce: a page reads the contacts once, in as few calls as it can.
func TestVisibleListsReadContactsOnce(t *testing.T) {
	t.Parallel()
	s := &loggedStore{Store: fileStore(t)}
	w, headers := newVisibleServer(t, s)
	for n, want := range map[int]int{0: 1, 999: 3, 1000: 4, 1001: 6, store.MaxContacts: 15} {
		know(t, s, "alice", many(n)...)
		for _, path := range []string{"/chat/users", "/chat/counts"} {
			s.take()
			r := w.send(http.MethodGet, path, "", headersOf(headers["alice"])...)
			require.Equal(t, http.StatusOK, r.status, r.body)
			require.Len(t, s.take(), want, "%s with %d contacts", path, n)
		}
	}
}

// TestVisibleListsAreCharged: each further thousand contacts counts as a request, before it is read.
func TestVisibleListsAreCharged(t *testing.T) {
	t.Parallel()
	s := &loggedStore{Store: fileStore(t)}
	w, headers := newVisibleServer(t, s, behindProxy, func(c *Config) { c.Limits = limit.Limits{User: 2} })
	know(t, s, "alice", many(store.MaxContacts)...)
	get := func(caller, path string) int {
		return w.send(http.MethodGet, path, "", headersOf(headers[caller])...).status
	}
	require.Equal(t, http.StatusOK, get("alice", "/chat/users")) // a burst is of 10
	require.Equal(t, http.StatusOK, get("alice", "/chat/users/alice"))
	s.take()
	w.fails(problem.RateLimited, http.MethodGet, "/chat/counts", "", headersOf(headers["alice"])...)
	require.Len(t, s.take(), 4*3, "four thousand contacts were paid for")
	know(t, s, "bob", many(1000)...)
	for i := range 5 {
		require.Equal(t, http.StatusOK, get("bob", "/chat/users"), i) // the second page is empty
	}
	w.fails(problem.RateLimited, http.MethodGet, "/chat/counts", "", headersOf(headers["bob"])...)
}
