package presencetests

import (
	"fmt"
	"net/http"
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
)

// TestGetDevices checks every field.
func TestGetDevices(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		nothing := w.Send("GET", "/chat/users/alice/devices", "")
		require.JSONEq(t, `{"user":"alice","as_of":"2026-11-20T12:00:00.000Z","kinds":[],"activity":null,"idle_since":null,
			"devices":[]}`, nothing.Body)
		require.Equal(t, "no-store", nothing.Header.Get("Cache-Control"))

		w.Post("/chat/users/alice/ping",
			`{"device":{"id":"tab","kind":"web","meta":{ "page": ["in<box>"]}},"activity":"idle"}`)
		w.Store.Pass(1000)
		w.Post("/chat/users/alice/ping", `{"device":{"id":"phone","kind":"mobile"},"activity":"active"}`)
		w.Post("/chat/users/alice/ping", `{"device":{"id":"other tab","kind":"web"}}`)
		w.Store.Pass(1000)
		w.Post("/chat/users/alice/leave", `{"device":{"id":"phone","kind":"mobile"}}`)
		w.Post("/chat/users/alice/leave", `{"device":{"id":"other tab","kind":"web"}}`)
		w.Post("/chat/users/alice/ping", `{"device":{"id":"tab","kind":"web"},"activity":"idle"}`)
		require.JSONEq(t, `{"user":"alice","as_of":"2026-11-20T12:00:02.000Z","kinds":["web"],"activity":"idle",
			"idle_since":"2026-11-20T12:00:00.000Z","devices":[
			{"id":"other tab","kind":"web","meta":null,"since":"2026-11-20T12:00:01.000Z",
				"last_seen":"2026-11-20T12:00:02.000Z","activity":"active","idle_since":null,"gone":true,"live":false},
			{"id":"phone","kind":"mobile","meta":null,"since":"2026-11-20T12:00:01.000Z",
				"last_seen":"2026-11-20T12:00:02.000Z","activity":"active","idle_since":null,"gone":true,"live":false},
			{"id":"tab","kind":"web","meta":{"page":["in<box>"]},"since":"2026-11-20T12:00:00.000Z",
				"last_seen":"2026-11-20T12:00:02.000Z","activity":"idle","idle_since":"2026-11-20T12:00:00.000Z",
				"gone":false,"live":true}]}`, w.Send("GET", "/chat/users/alice/devices", "").Body)
		w.Store.Pass(150_001) // two green thresholds and a ping interval
		require.Equal(t, []any{}, w.Get("/chat/users/alice/devices")["kinds"], "it died in silence")
	})
}

// TestGetDevicesOfConnections checks that a connection is shown with the ID of its device, and that what is no JSON in
// the store is not shown.
func TestGetDevicesOfConnections(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	settings := w.Config.Settings
	window := lastseen.DeviceWindow(settings.Thresholds, settings.PingInterval)
	_, err := w.Store.RecordDevices(t.Context(), "chat", window, []store.DeviceEvent{
		{User: "alice", ID: "tab~abcdefgh", Kind: lastseen.Web, At: kit.Now, Meta: "{"},
		{User: "alice", ID: "tab~bcdefghi", Kind: lastseen.Web, At: kit.Now},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"tab", "tab"}, devices(w, "alice"))
	require.Nil(t, kit.FirstOf(w.Get("/chat/users/alice/devices"), "devices")["meta"])
	require.Equal(t, []any{"web"}, w.Get("/chat/users/alice/devices")["kinds"])
}

// TestWhoSeesDevices checks who sees the devices of alice, and who at most their kinds.
func TestWhoSeesDevices(t *testing.T) {
	t.Parallel()
	authenticator, headers := kit.Callers(t)
	s := kit.FileStore(t)
	hidden, shown := apitest.NewAuthServer(t, s, authenticator), apitest.NewAuthServer(t, s, authenticator)
	shown.Reload(func(c *api.Config) { c.Settings.ShowKinds = true })
	for _, namespace := range []string{"chat", "public-1"} {
		apitest.NewServer(t, s).Post("/"+namespace+"/users/alice/ping", `{"device":{"id":"tab","kind":"web"}}`)
	}
	// caller, namespace, and what is seen if kinds are hidden and shown: all, kinds or a code
	for _, c := range [][4]string{
		{"alice", "chat", "all", "all"},
		{"read", "chat", "all", "all"},
		{"all", "chat", "all", "all"},
		{"bob", "chat", "forbidden", "kinds"},
		{"ping", "chat", "forbidden", "forbidden"},
		{"nobody", "chat", "unauthenticated", "unauthenticated"},
		{
			"alice, elsewhere", "chat", "forbidden",
			"forbidden",
		},
		{"alice, expired", "chat", "unauthenticated", "unauthenticated"},
		{"all", "public-1", "all", "all"},
		{"nobody", "public-1", "unauthenticated", "kinds"},
		{"ping", "public-1", "forbidden", "kinds"},
		{"alice", "public-1", "forbidden", "kinds"}, // of a namespace that is not in the token
	} {
		for i, w := range []*apitest.Server{hidden, shown} {
			r := w.Send("GET", "/"+c[1]+"/users/alice/devices", "", kit.HeadersOf(headers[c[0]])...)
			what := c[0] + " in " + c[1] + ": " + r.Body
			switch body := r.JSON(t); c[2+i] {
			case "all":
				require.Len(t, body["devices"], 1, what)
			case "kinds":
				require.Equal(t, []any{"web"}, body["kinds"], what)
				require.Len(t, body, 3, what)
			default:
				require.Equal(t, c[2+i], body["code"], what)
			}
		}
	}
}

// TestCloseConnections checks that other processes learn which connections to close, also of a user who is deleted, and
// which namespace is deleted.
func TestCloseConnections(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		_, position, err := w.Store.Disconnects(t.Context(), "")
		require.NoError(t, err)
		w.Post("/chat/users/bob/ping", "")
		w.Send("DELETE", "/chat/users/alice/connections", "").Is(t, http.StatusNoContent)
		w.Send("DELETE", "/chat/users/bob", "").Is(t, http.StatusNoContent)
		w.Send("DELETE", "/chat?confirm=chat", "").Is(t, http.StatusNoContent)
		disconnects, _, err := w.Store.Disconnects(t.Context(), position)
		require.NoError(t, err)
		require.Len(t, disconnects, 3)
		require.Equal(t, "chat", disconnects[2].Namespace)
		require.Empty(t, disconnects[2].User)
		require.Equal(t, "alice", disconnects[0].User)
		require.Equal(t, "bob", disconnects[1].User)
		require.Equal(t, "chat", disconnects[1].Namespace)
		require.Nil(t, w.Get("/chat/users/bob")["last_seen"])
	})
}

func TestNamespaces(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		var want, got []string
		for i := range 12 {
			want = append(want, fmt.Sprintf("room-%02d", i))
			w.Post("/"+want[i]+"/users/alice/ping", "")
		}
		for query := "?limit=5"; ; {
			page := w.Get(query)
			got = append(got, kit.Each(page, "namespaces", "namespace")...)
			for _, pinged := range kit.Each(page, "namespaces", "last_ping") {
				require.Equal(t, "2026-11-20T12:00:00.000Z", pinged)
			}
			if page["next_cursor"] == nil {
				break
			}
			query = "?limit=5&cursor=" + page["next_cursor"].(string)
		}
		require.Equal(t, want, got)
		w.Send("DELETE", "/room-00/users/alice", "")
		require.Nil(t, kit.FirstOf(w.Get("?limit=1"), "namespaces")["last_ping"])
	})
}

// TestSettingsOfNamespaces: what a namespace sets is shown in milliseconds.
func TestSettingsOfNamespaces(t *testing.T) {
	t.Parallel()
	w, headers := apitest.NewVisibleServer(t, kit.FileStore(t), func(c *api.Config) {
		set := c.Settings
		set.Retention, set.ContactsRetention, set.Visibility = 24*time.Hour, 48*time.Hour, ""
		c.Namespaces = map[string]api.Settings{"set": set}
	})
	for namespace, set := range map[string]string{
		"set":  `"retention_ms":86400000,"contacts_retention_ms":172800000,"visibility":"everyone"`,
		"chat": `"retention_ms":null,"contacts_retention_ms":null,"visibility":"contacts"`,
	} {
		require.JSONEq(t, `{"namespace":"`+namespace+`","green_ms":60000,"yellow_ms":300000,"ping_interval_ms":30000,`+
			set+`,"shards":1,"ring_timeout_ms":30000,"show_calls":true}`,
			w.Send("GET", "/"+namespace, "", kit.BearerOf(headers["all"])).Body)
	}
}

// TestNamespacesAreFiltered checks that the list has only namespaces that the caller may read, in full pages.
func TestNamespacesAreFiltered(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, open *apitest.Server) {
		authenticator, headers := kit.Callers(t)
		w := apitest.NewAuthServer(t, open.Store.Store, authenticator)
		all := strings.Fields("a ch chat chat-1 chat-2 chats chats-1 cz other other-1 public- public-1 z")
		for _, name := range all {
			open.Post("/"+name+"/users/alice/ping", "")
		}
		walk := func(name string, limit int) (found []string) {
			t.Helper()
			for cursor := ""; ; {
				page := w.Get(fmt.Sprintf("?limit=%d%s", limit, cursor), kit.HeadersOf(headers[name])...)
				found = append(found, kit.Each(page, "namespaces", "namespace")...)
				next, more := page["next_cursor"].(string)
				if !more {
					return found
				}
				require.Len(t, page["namespaces"], limit, "a page that is not the last is full")
				cursor = "&cursor=" + next
			}
		}
		for _, limit := range []int{1, 2, 3, 5, 50} {
			for caller, want := range map[string]string{
				"all": strings.Join(all, " "), "read": "chat chat-1 chat-2 chats chats-1 public- public-1",
				"all, elsewhere": "chats chats-1 other public- public-1", "alice": "chat public- public-1",
				"nobody": "public- public-1", "ping": "public- public-1",
			} {
				require.Equal(t, strings.Fields(want), walk(caller, limit))
			}
		}
	})
}

// TestUnknownNamespacesAreNotRevealed checks that callers without the permission get the same response for known and
// unknown namespaces.
func TestUnknownNamespacesAreNotRevealed(t *testing.T) {
	authenticator, credentials := kit.Callers(t)
	w := apitest.NewServer(t, kit.FileStore(t), apitest.KnowsChat, func(c *api.Config) { c.Auth = authenticator })
	const post = "POST"
	for _, path := range []string{"/users/alice/ping", "/users/alice/leave"} {
		for _, namespace := range []string{"/chat", "/chta"} {
			w.Fails(problem.Unauthenticated, post, namespace+path, "")
			w.Fails(problem.Forbidden, post, namespace+path, "", "Authorization: "+credentials["all, elsewhere"])
			w.Fails(problem.Forbidden, post, namespace+path, "", "Authorization: "+credentials["alice, elsewhere"])
		}
		w.Send(post, "/chat"+path, "", "Authorization: "+credentials["all"]).Is(t, http.StatusOK)
		w.Fails(problem.NotFound, post, "/chta"+path, "", "Authorization: "+credentials["all"])
	}
}
