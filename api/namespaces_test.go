package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNamespaces(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		var want []string
		for i := range 12 {
			name := fmt.Sprintf("room-%02d", i)
			want = append(want, name)
			w.post("/"+name+"/users/alice/ping", "")
		}
		var got []string
		for query := "?limit=5"; ; {
			page := w.get(query)
			for _, n := range page["namespaces"].([]any) {
				got = append(got, n.(map[string]any)["namespace"].(string))
				require.Equal(t, "2026-11-20T12:00:00.000Z", n.(map[string]any)["last_ping"])
			}
			if page["next_cursor"] == nil {
				break
			}
			query = "?limit=5&cursor=" + page["next_cursor"].(string)
		}
		require.Equal(t, want, got)
		require.True(t, slices.IsSorted(got))
		w.send(http.MethodDelete, "/room-00/users/alice", "")
		require.Nil(t, w.get("?limit=1")["namespaces"].([]any)[0].(map[string]any)["last_ping"])
		require.JSONEq(t, `{"namespace":"unused","green_ms":60000,"yellow_ms":300000,"ping_interval_ms":30000,
			"retention_ms":null,"contacts_retention_ms":null,"visibility":"everyone","shards":1,
			"ring_timeout_ms":30000,"show_calls":true}`, w.send(http.MethodGet, "/unused", "").body)
	})
}

// TestSettingsOfNamespaces: what a namespace sets is shown in milliseconds.
func TestSettingsOfNamespaces(t *testing.T) {
	t.Parallel()
	w, headers := newVisibleServer(t, fileStore(t), func(c *Config) {
		set := c.Settings
		set.Retention, set.ContactsRetention = 24*time.Hour, 48*time.Hour
		set.Visibility = ""
		c.Namespaces = map[string]Settings{"set": set}
	})
	get := func(namespace string) string {
		return w.send(http.MethodGet, "/"+namespace, "", headersOf(headers["all"])...).body
	}
	require.JSONEq(t, `{"namespace":"set","green_ms":60000,"yellow_ms":300000,"ping_interval_ms":30000,
		"retention_ms":86400000,"contacts_retention_ms":172800000,"visibility":"everyone","shards":1,
		"ring_timeout_ms":30000,"show_calls":true}`, get("set"))
	require.JSONEq(t, `{"namespace":"chat","green_ms":60000,"yellow_ms":300000,"ping_interval_ms":30000,
		"retention_ms":null,"contacts_retention_ms":null,"visibility":"contacts","shards":1,
		"ring_timeout_ms":30000,"show_calls":true}`, get("chat"))
}

// TestNamespacesAreFiltered checks that the list has only namespaces that the caller may read, in full pages.
func TestNamespacesAreFiltered(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, open *testServer) {
		authenticator, headers := callers(t)
		w := newAuthServer(t, open.store.Store, authenticator)
		all := []string{
			"a", "ch", "chat", "chat-1", "chat-2", "chats", "chats-1", "cz", "other", "other-1", "public-",
			"public-1", "z",
		}
		for _, name := range all {
			open.post("/"+name+"/users/alice/ping", "")
		}
		walk := func(name string, limit int) (found []string) {
			t.Helper()
			cursor := ""
			for {
				r := w.send(http.MethodGet, fmt.Sprintf("?limit=%d%s", limit, cursor), "", headersOf(headers[name])...)
				require.Equal(t, http.StatusOK, r.status, r.body)
				page := r.json(t)
				entries := page["namespaces"].([]any)
				for _, e := range entries {
					found = append(found, e.(map[string]any)["namespace"].(string))
				}
				next, more := page["next_cursor"].(string)
				if !more {
					return found
				}
				require.Len(t, entries, limit, "a page that is not the last is full")
				cursor = "&cursor=" + next
			}
		}
		for _, limit := range []int{1, 2, 3, 5, 50} {
			require.Equal(t, all, walk("all", limit))
			require.Equal(t, []string{"chat", "chat-1", "chat-2", "chats", "chats-1", "public-", "public-1"},
				walk("read", limit))
			require.Equal(t, []string{"chats", "chats-1", "other", "public-", "public-1"},
				walk("all, elsewhere", limit))
			require.Equal(t, []string{"chat", "public-", "public-1"}, walk("alice", limit))
			require.Equal(t, []string{"public-", "public-1"}, walk("nobody", limit))
			require.Equal(t, []string{"public-", "public-1"}, walk("ping", limit))
		}
	})
}

// knowsChat configures the namespace chat and refuses others.
func knowsChat(c *Config) {
	c.RefuseUnknown = true
	c.Namespaces = map[string]Settings{"chat": c.Settings}
}

// TestUnknownNamespaces checks that an unknown namespace is an error on every route except those that delete
// users and namespaces, and that the list of namespaces is not affected.
func TestUnknownNamespaces(t *testing.T) {
	w := newTestServer(t, fileStore(t), knowsChat)
	requests := 0
	for _, r := range (&server{}).routes() {
		if !strings.Contains(r.path, ":namespace") || r.permission == greeting { // see TestConnectKeyRemoved
			continue
		}
		requests++
		for _, namespace := range []string{"chat", "chta"} {
			path := strings.NewReplacer(
				"/v1/namespaces", "", ":namespace", namespace, ":user", "alice", ":id", "x").Replace(r.path)
			body := ""
			switch r.method + " " + path[strings.LastIndex(path, "/")+1:] {
			case "POST pings":
				body = `{"pings":[]}`
			case "POST leaves":
				body = `{"leaves":[]}`
			case "POST lookup", "POST changes":
				body = `{"users":["alice"]}`
			case "POST calls":
				body = `{"from":"alice","to":"bob"}`
			case "GET lookup", "GET calls":
				path += "?user=alice"
			case "PUT availability", "PATCH contacts":
				body = "{}"
			case "PUT contacts":
				body = `{"users":[]}`
			case "DELETE " + namespace:
				path += "?confirm=" + namespace
			}
			if namespace == "chat" && strings.Contains(r.path, ":id") {
				w.fails(codeCallNotFound, r.method, path, `{"user":"alice"}`)
				continue
			}
			if namespace == "chat" || r.permission == admin {
				require.Less(t, w.send(r.method, path, body).status, 300, "%s %s", r.method, path)
				continue
			}
			problem := w.fails(codeNotFound, r.method, path, body)
			require.Contains(t, problem["detail"], `"chta" is not configured`, path)
		}
	}
	require.Equal(t, 31, requests)
	require.Equal(t, http.StatusOK, w.send(http.MethodGet, "", "").status)
	w.fails(codeInvalidNamespace, http.MethodGet, "/.hidden", "")
}

// TestUnknownNamespacesAreNotRevealed checks that callers without the permission get the same response for known and
// unknown namespaces.
func TestUnknownNamespacesAreNotRevealed(t *testing.T) {
	authenticator, credentials := callers(t)
	w := newTestServer(t, fileStore(t), knowsChat, func(c *Config) { c.Auth = authenticator })
	const post = http.MethodPost
	for _, path := range []string{"/users/alice/ping", "/users/alice/leave"} {
		for _, namespace := range []string{"/chat", "/chta"} {
			w.fails(codeUnauthenticated, post, namespace+path, "")
			w.fails(codeForbidden, post, namespace+path, "", "Authorization: "+credentials["all, elsewhere"])
			w.fails(codeForbidden, post, namespace+path, "", "Authorization: "+credentials["alice, elsewhere"])
		}
		require.Equal(t, http.StatusOK, w.send(post, "/chat"+path, "", "Authorization: "+credentials["all"]).status)
		w.fails(codeNotFound, post, "/chta"+path, "", "Authorization: "+credentials["all"])
	}
}
