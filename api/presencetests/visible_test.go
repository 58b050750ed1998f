package presencetests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// visibleStores runs a test with a function that opens one kind of store.
func visibleStores(t *testing.T, test func(t *testing.T, open func() store.Store)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(t, func() store.Store { return kit.FileStore(t) })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, func() store.Store { return kit.RedisStore(t, redistest.Start(t), kit.Sharded) })
	})
}

// appear has a user ping with an idle device, and set an availability.
func appear(t testing.TB, s store.Store, user string, at lastseen.Instant) {
	t.Helper()
	ctx := context.Background()
	_, err := s.RecordDevices(ctx, "chat", time.Minute, []store.DeviceEvent{
		{User: user, ID: "d", Kind: lastseen.Mobile, At: at, Idle: at},
	})
	require.NoError(t, err)
	busy := lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "of " + user}
	_, err = s.SetAvailability(ctx, "chat", user, busy, at)
	require.NoError(t, err)
}

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
func shown(w *apitest.Server, read [3]string, credentials string) string {
	w.T.Helper()
	r := w.Send(read[0], read[1], read[2], kit.HeadersOf(credentials)...)
	r.Header.Del("Date")
	r.Header.Del("X-Request-Id")
	require.Equal(w.T, http.StatusOK, r.Status, "%s %s: %s", read[0], read[1], r.Body)
	var b strings.Builder
	require.NoError(w.T, r.Header.Write(&b))
	return b.String() + r.Body
}

// TestStrangersAreNotShown compares two namespaces that differ in strangers alone: a user's token gets the same, with
// the same calls to the store, and none of them is about a stranger. Bob has alice among his contacts, and so has erin,
// who was never seen. Alice has bob, erin, dave and more among hers, but carol and dave do not have her.
func TestStrangersAreNotShown(t *testing.T) {
	t.Parallel()
	visibleStores(t, func(t *testing.T, open func() store.Store) {
		showKinds := func(c *api.Config) { c.Settings.ShowKinds = true }
		stores := []*kit.LoggedStore{{Store: open()}, {Store: open()}}
		var servers []*apitest.Server
		var headers []map[string]string
		for _, s := range stores {
			w, callers := apitest.NewVisibleServer(t, s, showKinds)
			servers, headers = append(servers, w), append(headers, callers)
			appear(t, s, "alice", kit.Now-7000)
			appear(t, s, "bob", kit.Now-61_000)
			kit.SetContacts(t, s, "alice", "bob", "dave", "erin", "zoe")
			kit.SetContacts(t, s, "bob", "alice", "carol")
			kit.SetContacts(t, s, "erin", "alice")
		}
		strangers := stores[1]
		appear(t, strangers, "carol", kit.Now+3000) // the newest time
		appear(t, strangers, "dave", kit.Now-1000)
		kit.SetContacts(t, strangers, "carol", "bob", "dave")
		kit.SetContacts(t, strangers, "dave", "bob", "carol", "alic", "alicee")
		_, err := strangers.Leave(t.Context(), "chat", []store.PresenceEvent{{User: "a,b", At: kit.Now}})
		require.NoError(t, err)
		different := 0
		for _, read := range visibleReads() {
			if shown(servers[0], read, headers[0]["all"]) != shown(servers[1], read, headers[1]["all"]) {
				different++
			}
			stores[0].Take()
			stores[1].Take()
			alone, among := shown(servers[0], read, headers[0]["alice"]), shown(servers[1], read, headers[1]["alice"])
			require.Equal(t, alone, among, read)
			calls := stores[1].Take()
			require.Equal(t, stores[0].Take(), calls, read)
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
	w, headers := apitest.NewVisibleServer(t, kit.FileStore(t), func(c *api.Config) { c.Settings.ShowKinds = true })
	for _, user := range []string{"alice", "bob", "carol"} {
		appear(t, w.Store, user, kit.Now)
	}
	get := func(caller, path string) map[string]any {
		r := w.Send(http.MethodGet, path, "", kit.HeadersOf(headers[caller])...)
		require.Equal(t, http.StatusOK, r.Status, r.Body)
		return r.JSON(t)
	}
	sees := func(caller string, listed []string, named ...string) {
		t.Helper()
		for _, user := range []string{"alice", "bob", "carol"} {
			one, shown := get(caller, "/chat/users/"+user), slices.Contains(named, user)
			require.Equal(t, shown, one["note"] == "of "+user && one["status"] == "green", "%s sees %s", caller, user)
			require.Equal(t, shown, one["last_seen"] != nil)
			require.Equal(t, shown, len(get(caller, "/chat/users/"+user+"/devices")["kinds"].([]any)) == 1)
			dot := w.Send(http.MethodGet, "/chat/users/"+user+"/dot.svg", "", kit.HeadersOf(headers[caller])...).Body
			require.Equal(t, shown, strings.Contains(dot, user+" is busy: of "+user), dot)
		}
		require.Equal(t, listed, append([]string{}, kit.Names(get(caller, "/chat/users"))...), "the list of "+caller)
		require.EqualValues(t, len(listed), get(caller, "/chat/counts")["green"], caller)
		last := get(caller, "")["namespaces"].([]any)[0].(map[string]any)["last_ping"]
		require.Equal(t, caller == "all", last != nil, caller)
	}
	change := func(method, user, body string) {
		r := w.Send(method, "/chat/users/"+user+"/contacts", body, kit.HeadersOf(headers[user])...)
		require.Equal(t, http.StatusNoContent, r.Status, r.Body)
	}
	kit.SetContacts(t, w.Store, "alice", "bob", "carol")
	sees("alice", []string{}, "alice")
	change(http.MethodPut, "bob", `{"users":["alice"]}`)
	sees("alice", []string{"bob"}, "alice", "bob")
	sees("bob", []string{"alice"}, "alice", "bob")
	sees("all", []string{"carol", "bob", "alice"}, "alice", "bob", "carol")
	require.Equal(t, []string{"bob", "carol"}, kit.Names(get("alice", "/chat/users/alice/contacts")))
	require.Equal(t, []string{"bob"}, kit.Names(get("alice", "/chat/users/alice/contacts?status=green")))
	change(http.MethodPatch, "bob", `{"remove":["alice"]}`)
	sees("alice", []string{}, "alice")
	change(http.MethodPatch, "bob", `{"add":["alice"]}`)
	sees("alice", []string{"bob"}, "alice", "bob")
	change(http.MethodDelete, "bob", "")
	sees("alice", []string{}, "alice")

	bob := func() bool { return get("alice", "/chat/users/bob")["last_seen"] != nil }
	w.Reload(func(c *api.Config) { c.Settings.Visibility = api.VisibleToEveryone })
	require.True(t, bob())
	w.Reload(func(c *api.Config) { c.Namespaces = map[string]api.Settings{"chat": c.Settings}; apitest.ToContacts(c) })
	require.True(t, bob(), "by the setting of the namespace")
	w.Reload(func(c *api.Config) { c.Namespaces = nil })
	require.False(t, bob())
	kit.SetContacts(t, w.Store, "bob", "alice")
	r := w.Send(http.MethodDelete, "/chat/users/bob", "", kit.HeadersOf(headers["admin"])...)
	require.Equal(t, http.StatusNoContent, r.Status, r.Body)
	appear(t, w.Store, "bob", kit.Now)
	require.False(t, bob(), "the contacts were deleted with the user")
}

// TestAnonymousCallersSeeNobody: the configuration does not let them read such a namespace, but a mistake there must
// show nothing.
func TestAnonymousCallersSeeNobody(t *testing.T) {
	t.Parallel()
	w, _ := apitest.NewVisibleServer(t, kit.FileStore(t), func(c *api.Config) { c.Settings.ShowKinds = true })
	ping := []store.PresenceEvent{{User: "carol", At: kit.Now}}
	_, err := w.Store.Ping(t.Context(), "public-x", ping)
	require.NoError(t, err)
	require.NoError(t, w.Store.SetContacts(t.Context(), "public-x", "carol", []string{"alice"}))
	require.Nil(t, w.Get("/public-x/users/carol")["last_seen"])
	require.Nil(t, w.Get("/public-x/lookup?user=carol")["users"].([]any)[0].(map[string]any)["last_seen"])
	require.Empty(t, kit.Names(w.Get("/public-x/users")))
	require.Zero(t, w.Total("public-x"))
	require.Nil(t, w.Get("")["namespaces"].([]any)[0].(map[string]any)["last_ping"])
}

// TestVisibilityFailsClosed: if contacts cannot be read, nothing is shown but the caller's own presence.
func TestVisibilityFailsClosed(t *testing.T) {
	t.Parallel()
	s := &kit.LoggedStore{Store: kit.FileStore(t)}
	w, headers := apitest.NewVisibleServer(t, s, func(c *api.Config) { c.Settings.ShowKinds = true })
	appear(t, s, "alice", kit.Now)
	appear(t, s, "bob", kit.Now)
	kit.SetContacts(t, s, "bob", "alice")
	kit.SetContacts(t, s, "alice", "bob")
	alice := kit.HeadersOf(headers["alice"])
	lists := []string{"/chat/users", "/chat/users?as_of=1795176000", "/chat/counts"}
	all := slices.Concat(lists, []string{
		"/chat/users/bob", "/chat/users/bob/dot.svg", "/chat/lookup?user=bob&user=alice", "/chat/users/bob/devices",
		"/chat/users/alice/contacts",
	})
	away := fmt.Errorf("%w: away", store.ErrUnavailable)
	s.Fail(away, nil)
	for _, path := range all {
		w.Fails(problem.StoreUnavailable, http.MethodGet, path, "", alice...)
	}
	w.Fails(problem.StoreUnavailable, http.MethodPost, "/chat/lookup", `{"users":["bob"]}`, alice...)
	require.Equal(t, http.StatusOK, w.Send(http.MethodGet, "/chat/users/alice", "", alice...).Status)
	w.Send(http.MethodGet, "/chat/users/bob", "", kit.HeadersOf(headers["all"])...).Is(t, http.StatusOK)
	s.Fail(nil, away)
	for _, path := range lists {
		w.Fails(problem.StoreUnavailable, http.MethodGet, path, "", alice...)
	}
}
