package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// visibleReads are requests by which alice could learn something of others: method, path and body.
func visibleReads() (reads [][3]string) {
	for _, user := range []string{"alice", "bob", "carol", "dave", "erin", "zoe"} {
		path := "/chat/users/" + user
		for _, more := range []string{"", "?as_of=1795176900&green=1s&yellow=2s", "/dot.svg", "/devices"} {
			reads = append(reads, [3]string{http.MethodGet, path + more, ""})
		}
	}
	for _, path := range []string{
		"/chat/lookup?user=alice&user=bob&user=carol&user=dave&user=erin&user=zoe&user=carol", "/chat/lookup?user=a,b",
		"/chat/users/alice/contacts", "/chat/users/alice/contacts?status=grey&limit=1",
		"/chat/users/alice/contacts?status=green", "", "?limit=1",
	} {
		reads = append(reads, [3]string{http.MethodGet, path, ""})
	}
	for _, query := range []string{
		"", "?status=green", "?status=yellow", "?status=grey", "?order=oldest", "?limit=1", "?offset=1",
		"?from=1795175990", "?as_of=1795176900", "?green=1h&yellow=2h",
	} {
		reads = append(reads, [3]string{http.MethodGet, "/chat/users" + query, ""})
	}
	for _, query := range []string{"", "?to=1795175999", "?as_of=1795176900"} {
		reads = append(reads, [3]string{http.MethodGet, "/chat/counts" + query, ""})
	}
	return append(reads, [3]string{
		http.MethodPost, "/chat/lookup", `{"users":["zoe","erin","dave","carol","bob","alice","a,b","carol"]}`,
	})
}

// shown returns what a caller can see of a response.
func (w *testServer) shown(read [3]string, credentials string) string {
	w.t.Helper()
	r := w.send(read[0], read[1], read[2], headersOf(credentials)...)
	r.header.Del("Date")
	r.header.Del("X-Request-Id")
	require.Equal(w.t, http.StatusOK, r.status, "%s %s: %s", read[0], read[1], r.body)
	var b strings.Builder
	require.NoError(w.t, r.header.Write(&b))
	return b.String() + r.body
}

// TestStrangersAreNotShown compares two worlds that differ in strangers alone: a user's token gets the same, with the
// same calls to the store, and none of them is about a stranger. Bob has alice among his contacts, and so has erin, who
// was never seen. Alice has bob, erin, dave and more among hers, but carol and dave do not have her.
func TestStrangersAreNotShown(t *testing.T) {
	t.Parallel()
	visibleStores(t, func(t *testing.T, open func() store.Store) {
		showKinds := func(c *Config) { c.Settings.ShowKinds = true }
		stores := []*loggedStore{{Store: open()}, {Store: open()}}
		var servers []*testServer
		var headers []map[string]string
		for _, s := range stores {
			w, callers := newVisibleServer(t, s, showKinds)
			servers, headers = append(servers, w), append(headers, callers)
			appear(t, s, "alice", testNow-7000)
			appear(t, s, "bob", testNow-61_000)
			know(t, s, "alice", "bob", "dave", "erin", "zoe")
			know(t, s, "bob", "alice", "carol")
			know(t, s, "erin", "alice")
		}
		strangers := stores[1]
		appear(t, strangers, "carol", testNow+3000) // the newest time
		appear(t, strangers, "dave", testNow-1000)
		know(t, strangers, "carol", "bob", "dave")
		know(t, strangers, "dave", "bob", "carol", "alic", "alicee")
		_, err := strangers.Leave(t.Context(), "chat", []store.Sighting{{User: "a,b", At: testNow}})
		require.NoError(t, err)
		different := 0
		for _, read := range visibleReads() {
			if servers[0].shown(read, headers[0]["all"]) != servers[1].shown(read, headers[1]["all"]) {
				different++
			}
			stores[0].take()
			stores[1].take()
			alone, among := servers[0].shown(read, headers[0]["alice"]), servers[1].shown(read, headers[1]["alice"])
			require.Equal(t, alone, among, read)
			calls := stores[1].take()
			require.Equal(t, stores[0].take(), calls, read)
			for _, call := range calls {
				if !strings.HasPrefix(call, "AreContacts") {
					require.NotRegexp(t, `"(carol|dave|a,b)"|List$|Count|Newest`, call, read)
				}
			}
		}
		require.Greater(t, different, 20, "services see a difference")
	})
}

// TestVisibleToContacts checks what each kind of caller is shown of each kind of user. Their contacts and the settings
// count from the next request on.
func TestVisibleToContacts(t *testing.T) {
	t.Parallel()
	w, headers := newVisibleServer(t, fileStore(t), func(c *Config) { c.Settings.ShowKinds = true })
	for _, user := range []string{"alice", "bob", "carol"} {
		appear(t, w.store, user, testNow)
	}
	get := func(caller, path string) map[string]any {
		r := w.send(http.MethodGet, path, "", headersOf(headers[caller])...)
		require.Equal(t, http.StatusOK, r.status, r.body)
		return r.json(t)
	}
	sees := func(caller string, listed []string, named ...string) {
		t.Helper()
		for _, user := range []string{"alice", "bob", "carol"} {
			one, shown := get(caller, "/chat/users/"+user), slices.Contains(named, user)
			require.Equal(t, shown, one["note"] == "of "+user && one["status"] == "green", "%s sees %s", caller, user)
			require.Equal(t, shown, one["last_seen"] != nil)
			require.Equal(t, shown, len(get(caller, "/chat/users/"+user+"/devices")["kinds"].([]any)) == 1)
			dot := w.send(http.MethodGet, "/chat/users/"+user+"/dot.svg", "", headersOf(headers[caller])...).body
			require.Equal(t, shown, strings.Contains(dot, user+" is busy: of "+user), dot)
		}
		require.Equal(t, listed, append([]string{}, names(get(caller, "/chat/users"))...), "the list of "+caller)
		require.EqualValues(t, len(listed), get(caller, "/chat/counts")["green"], caller)
		last := get(caller, "")["namespaces"].([]any)[0].(map[string]any)["last_ping"]
		require.Equal(t, caller == "all", last != nil, caller)
	}
	change := func(method, user, body string) {
		r := w.send(method, "/chat/users/"+user+"/contacts", body, headersOf(headers[user])...)
		require.Equal(t, http.StatusNoContent, r.status, r.body)
	}
	know(t, w.store, "alice", "bob", "carol")
	sees("alice", []string{}, "alice")
	change(http.MethodPut, "bob", `{"users":["alice"]}`)
	sees("alice", []string{"bob"}, "alice", "bob")
	sees("bob", []string{"alice"}, "alice", "bob")
	sees("all", []string{"carol", "bob", "alice"}, "alice", "bob", "carol")
	require.Equal(t, []string{"bob", "carol"}, names(get("alice", "/chat/users/alice/contacts")))
	require.Equal(t, []string{"bob"}, names(get("alice", "/chat/users/alice/contacts?status=green")))
	change(http.MethodPatch, "bob", `{"remove":["alice"]}`)
	sees("alice", []string{}, "alice")
	change(http.MethodPatch, "bob", `{"add":["alice"]}`)
	sees("alice", []string{"bob"}, "alice", "bob")
	change(http.MethodDelete, "bob", "")
	sees("alice", []string{}, "alice")

	bob := func() bool { return get("alice", "/chat/users/bob")["last_seen"] != nil }
	w.reload(func(c *Config) { c.Settings.Visibility = VisibleToEveryone })
	require.True(t, bob())
	w.reload(func(c *Config) { c.Namespaces = map[string]Settings{"chat": c.Settings}; toContacts(c) })
	require.True(t, bob(), "by the setting of the namespace")
	w.reload(func(c *Config) { c.Namespaces = nil })
	require.False(t, bob())
	know(t, w.store, "bob", "alice")
	r := w.send(http.MethodDelete, "/chat/users/bob", "", headersOf(headers["admin"])...)
	require.Equal(t, http.StatusNoContent, r.status, r.body)
	appear(t, w.store, "bob", testNow)
	require.False(t, bob(), "the contacts were deleted with the user")
}

// TestAnonymousCallersSeeNobody: the configuration does not let them read such a namespace, but a mistake there must
// show nothing.
func TestAnonymousCallersSeeNobody(t *testing.T) {
	t.Parallel()
	w, _ := newVisibleServer(t, fileStore(t), func(c *Config) { c.Settings.ShowKinds = true })
	ping := []store.Sighting{{User: "carol", At: testNow}}
	_, err := w.store.Ping(t.Context(), "public-x", ping)
	require.NoError(t, err)
	require.NoError(t, w.store.SetContacts(t.Context(), "public-x", "carol", []string{"alice"}))
	require.Nil(t, w.get("/public-x/users/carol")["last_seen"])
	require.Nil(t, w.get("/public-x/lookup?user=carol")["users"].([]any)[0].(map[string]any)["last_seen"])
	require.Empty(t, names(w.get("/public-x/users")))
	require.Zero(t, w.total("public-x"))
	require.Nil(t, w.get("")["namespaces"].([]any)[0].(map[string]any)["last_ping"])
}

// TestVisibilityFailsClosed: if contacts cannot be read, nothing is shown but the caller's own presence.
func TestVisibilityFailsClosed(t *testing.T) {
	t.Parallel()
	s := &loggedStore{Store: fileStore(t)}
	w, headers := newVisibleServer(t, s, func(c *Config) { c.Settings.ShowKinds = true })
	appear(t, s, "alice", testNow)
	appear(t, s, "bob", testNow)
	know(t, s, "bob", "alice")
	know(t, s, "alice", "bob")
	alice := headersOf(headers["alice"])
	lists := []string{"/chat/users", "/chat/users?as_of=1795176000", "/chat/counts"}
	all := slices.Concat(lists, []string{
		"/chat/users/bob", "/chat/users/bob/dot.svg", "/chat/lookup?user=bob&user=alice", "/chat/users/bob/devices",
		"/chat/users/alice/contacts",
	})
	away := fmt.Errorf("%w: away", store.ErrUnavailable)
	s.fail(away, nil)
	for _, path := range all {
		w.fails(problem.StoreUnavailable, http.MethodGet, path, "", alice...)
	}
	w.fails(problem.StoreUnavailable, http.MethodPost, "/chat/lookup", `{"users":["bob"]}`, alice...)
	require.Equal(t, http.StatusOK, w.send(http.MethodGet, "/chat/users/alice", "", alice...).status)
	require.Equal(t, http.StatusOK, w.send(http.MethodGet, "/chat/users/bob", "", headersOf(headers["all"])...).status)
	s.fail(nil, away)
	for _, path := range lists {
		w.fails(problem.StoreUnavailable, http.MethodGet, path, "", alice...)
	}
}
