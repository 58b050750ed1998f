package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// TestGetDevices checks every field.
func TestGetDevices(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		nothing := w.send(http.MethodGet, "/chat/users/alice/devices", "")
		require.JSONEq(t, `{"user":"alice","as_of":"2026-11-20T12:00:00.000Z","kinds":[],"activity":null,"idle_since":null,
			"devices":[]}`, nothing.body)
		require.Equal(t, "no-store", nothing.header.Get("Cache-Control"))

		w.post("/chat/users/alice/ping",
			`{"device":{"id":"tab","kind":"web","meta":{ "page": ["in<box>"]}},"activity":"idle"}`)
		w.store.now += 1000
		w.post("/chat/users/alice/ping", `{"device":{"id":"phone","kind":"mobile"},"activity":"active"}`)
		w.post("/chat/users/alice/ping", `{"device":{"id":"other tab","kind":"web"}}`)
		w.store.now += 1000
		w.post("/chat/users/alice/leave", `{"device":{"id":"phone","kind":"mobile"}}`)
		w.post("/chat/users/alice/leave", `{"device":{"id":"other tab","kind":"web"}}`)
		w.post("/chat/users/alice/ping", `{"device":{"id":"tab","kind":"web"},"activity":"idle"}`)
		require.JSONEq(t, `{"user":"alice","as_of":"2026-11-20T12:00:02.000Z","kinds":["web"],"activity":"idle",
			"idle_since":"2026-11-20T12:00:00.000Z","devices":[
			{"id":"other tab","kind":"web","meta":null,"since":"2026-11-20T12:00:01.000Z",
				"last_seen":"2026-11-20T12:00:02.000Z","activity":"active","idle_since":null,"gone":true,"live":false},
			{"id":"phone","kind":"mobile","meta":null,"since":"2026-11-20T12:00:01.000Z",
				"last_seen":"2026-11-20T12:00:02.000Z","activity":"active","idle_since":null,"gone":true,"live":false},
			{"id":"tab","kind":"web","meta":{"page":["in<box>"]},"since":"2026-11-20T12:00:00.000Z",
				"last_seen":"2026-11-20T12:00:02.000Z","activity":"idle","idle_since":"2026-11-20T12:00:00.000Z",
				"gone":false,"live":true}]}`, w.send(http.MethodGet, "/chat/users/alice/devices", "").body)
		w.store.now += 150_001 // two green thresholds and a ping interval
		require.Equal(t, []any{}, w.get("/chat/users/alice/devices")["kinds"], "it died in silence")
	})
}

// TestGetDevicesOfConnections checks that a connection is shown with the ID of its device, and that what is no JSON in
// the store is not shown.
func TestGetDevicesOfConnections(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	settings := w.config.Settings
	window := lastseen.DeviceWindow(settings.Thresholds, settings.PingInterval)
	_, err := w.store.RecordDevices(t.Context(), "chat", window, []store.DeviceSighting{
		{User: "alice", ID: "tab~abcdefgh", Kind: lastseen.Web, At: testNow, Meta: "{"},
		{User: "alice", ID: "tab~bcdefghi", Kind: lastseen.Web, At: testNow},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"tab", "tab"}, w.devices("alice"))
	require.Nil(t, w.get("/chat/users/alice/devices")["devices"].([]any)[0].(map[string]any)["meta"])
	require.Equal(t, []any{"web"}, w.get("/chat/users/alice/devices")["kinds"])
}

// TestWhoSeesDevices checks who sees the devices of alice, and who at most their kinds.
func TestWhoSeesDevices(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	s := fileStore(t)
	show := func(c *Config) { c.Settings.ShowKinds = true }
	hidden, shown := newAuthServer(t, s, authenticator), newAuthServer(t, s, authenticator)
	shown.reload(show)
	for _, namespace := range []string{"chat", "public-1"} {
		newTestServer(t, s).post("/"+namespace+"/users/alice/ping", `{"device":{"id":"tab","kind":"web"}}`)
	}
	for _, c := range []struct {
		caller, namespace string
		hidden, shown     string // what is seen: all, kinds or the code of an error
	}{
		{"alice", "chat", "all", "all"},
		{"read", "chat", "all", "all"},
		{"all", "chat", "all", "all"},
		{"bob", "chat", "forbidden", "kinds"},
		{"ping", "chat", "forbidden", "forbidden"},
		{"nobody", "chat", "unauthenticated", "unauthenticated"},
		{"alice, elsewhere", "chat", "forbidden", "forbidden"},
		{"alice, expired", "chat", "unauthenticated", "unauthenticated"},
		{"nobody", "public-1", "unauthenticated", "kinds"},
		{"alice", "public-1", "forbidden", "kinds"}, // of a namespace that is not in the token
		{"ping", "public-1", "forbidden", "kinds"},
		{"all", "public-1", "all", "all"},
	} {
		for want, w := range map[string]*testServer{c.hidden: hidden, c.shown: shown} {
			r := w.send(http.MethodGet, "/"+c.namespace+"/users/alice/devices", "", headersOf(headers[c.caller])...)
			what := c.caller + " in " + c.namespace + ": " + r.body
			body := r.json(t)
			switch want {
			case "all":
				require.Len(t, body["devices"], 1, what)
			case "kinds":
				require.Equal(t, []any{"web"}, body["kinds"], what)
				require.Len(t, body, 3, what)
			default:
				require.Equal(t, want, body["code"], what)
			}
		}
	}
}

// TestCanSeeDevices checks an open server, where everyone sees everything.
func TestCanSeeDevices(t *testing.T) {
	require.True(t, (*auth.Caller)(nil).CanSeeDevices("chat", "alice"))
}

// TestCloseConnections checks that other processes learn which connections to close, also of a user who is deleted.
func TestCloseConnections(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		_, place, err := w.store.Closings(t.Context(), "")
		require.NoError(t, err)
		w.post("/chat/users/bob/ping", "")
		require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat/users/alice/connections", "").status)
		require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat/users/bob", "").status)
		closings, _, err := w.store.Closings(t.Context(), place)
		require.NoError(t, err)
		require.Len(t, closings, 2)
		require.Equal(t, "alice", closings[0].User)
		require.Equal(t, "bob", closings[1].User)
		require.Equal(t, "chat", closings[1].Namespace)
		require.Nil(t, w.get("/chat/users/bob")["last_seen"])
	})
}
