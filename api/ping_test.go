package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPing(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		r := w.send(http.MethodPost, "/chat/users/alice/ping", "")
		require.JSONEq(t, `{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,
			"valid_until":"2026-11-20T12:01:00.000Z","as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"ping_after_ms":27000}`, r.body)
		require.Equal(t, "application/json", r.header.Get("Content-Type"))

		older := w.post("/chat/users/alice/ping", `{"at":"2026-11-20T11:00:00Z"}`)
		require.Equal(t, "2026-11-20T12:00:00.000Z", older["last_seen"], "what is stored")
		ahead := w.post("/chat/users/alice/ping", `{"at":1795176005}`)
		require.Equal(t, "2026-11-20T12:00:05.000Z", ahead["last_seen"], "5 seconds ahead are allowed")
		require.Equal(t, "green", ahead["status"])
		require.Equal(t, "2026-11-20T12:01:05.000Z", ahead["valid_until"])
	})
}

func TestTimeFormats(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for i, at := range []string{
		`"2026-11-20T11:00:00.1239Z"`, `"2026-11-20T12:00:00.123+01:00"`, `1795172400.1239`, `"1795172400.123"`,
		`17951724001.239e-1`,
	} {
		response := w.post(fmt.Sprintf("/chat/users/u%d/ping", i), `{"at":`+at+`}`)
		require.Equal(t, "2026-11-20T11:00:00.123Z", response["last_seen"], at)
	}
}

func TestPingAfter(t *testing.T) {
	for random, want := range map[float64]int64{0: 24_000, 0.5: 27_000, 0.9999999: 29_999} {
		s := &server{Shared: NewShared(Config{}), Config: Config{Random: func() float64 { return random }}}
		require.Equal(t, want, s.pingAfter(Settings{PingInterval: 30 * time.Second}))
	}
}

func TestPreferMinimal(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, prefer := range []string{"return=minimal", "respond-async, Return=minimal; foo", `return="minimal"`} {
		r := w.send(http.MethodPost, "/chat/users/alice/ping", "", "Prefer: "+prefer)
		require.Equal(t, http.StatusNoContent, r.status, prefer)
		require.Equal(t, "return=minimal", r.header.Get("Preference-Applied"))
		require.Equal(t, "27000", r.header.Get("Lastseen-Ping-After-Ms"))
		r = w.send(http.MethodPost, "/chat/users/alice/leave", "", "Prefer: "+prefer)
		require.Equal(t, http.StatusNoContent, r.status)
		require.Empty(t, r.header.Get("Lastseen-Ping-After-Ms"), "who leaves need not ping")
	}
	for _, prefer := range []string{"return=representation", "minimal", ""} {
		require.Equal(t, http.StatusOK, w.send(http.MethodPost, "/chat/users/alice/ping", "", "Prefer: "+prefer).status)
	}
}

// TestWriteOnlyKeyGetsNoBody checks that the response to a caller that may not read does not reveal what is stored.
func TestWriteOnlyKeyGetsNoBody(t *testing.T) {
	eachStore(t, func(t *testing.T, open *testServer) {
		authenticator, headers := callers(t)
		w := newAuthServer(t, open.store.Store, authenticator)
		as := func(name string) string { return "Authorization: " + headers[name] }
		for _, verb := range []string{"ping", "leave"} {
			r := w.send(http.MethodPost, "/chat/users/alice/"+verb, "", as("ping"))
			require.Equal(t, http.StatusNoContent, r.status)
			require.Equal(t, "return=minimal", r.header.Get("Preference-Applied"))
			require.Equal(t, verb == "ping", r.header.Get("Lastseen-Ping-After-Ms") != "")
		}
		require.Equal(t, "green", w.post("/chat/users/alice/ping", `{"at":1795176001}`, as("alice"))["status"],
			"users see themselves")
		require.Equal(t, "green", w.post("/chat/users/alice/ping", "", as("all"))["status"])
		w.fails(codeForbidden, http.MethodPost, "/public-1/users/alice/ping", "", as("ping"))
	})
}
