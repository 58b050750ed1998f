package sockettests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestConnectPermissions: what each kind of caller can do.
func TestConnectPermissions(t *testing.T) {
	w, headers := apitest.NewGuardedSocketServer(t)
	const (
		connects = `{"user":"alice"}`
		watches  = `{"watch":{"users":["bob"]}}`
		both     = `{"user":"alice","watch":{"users":["bob"]}}`
		nothing  = `{}`
	)
	for hello, allowed := range map[string][]string{
		connects: {"ping", "all", "alice"}, watches: {"read", "all", "alice", "bob"}, both: {"all", "alice"},
		nothing: {"read", "all", "alice", "bob"},
	} {
		for name, credentials := range headers {
			s := w.Greet(hello, kit.HeadersOf(credentials)...)
			got, content, _ := s.Next()
			what := fmt.Sprintf("%s %s: %v", name, hello, content)
			want := "problem"
			for _, a := range allowed {
				if a == name {
					want = "welcome"
				}
			}
			require.Equal(t, want, got, what)
			if want == "problem" {
				require.EqualValues(t, kit.RefusalStatus(name), content["status"], what)
				s.Closed(problem.CloseCodes+kit.RefusalStatus(name), content["code"].(string))
			}
			require.NoError(t, s.Conn.Close())
		}
	}
	public := w.DialSocket("public-1")
	public.Send(`{"hello":{"watch":{"users":["alice"]}}}`)
	public.Want("welcome")
	ping, welcome := w.Hello(connects, "Authorization: "+headers["ping"])
	require.NotContains(t, welcome, "self", "the key cannot read")
	ping.Refuses(problem.Forbidden, `{"watch":{"add":["bob"]}}`)
}

// TestConnectTokenInHello: the credentials can be in the frame hello; if both are given, they must agree.
func TestConnectTokenInHello(t *testing.T) {
	authenticator, headers := kit.Callers(t)
	w := apitest.NewSocketServer(t, func(c *api.Config) {
		c.Auth, c.Now = authenticator, func() time.Time { return time.UnixMilli(int64(kit.Now)) }
	})
	alice, bob := strings.TrimPrefix(headers["alice"], "Bearer "), strings.TrimPrefix(headers["bob"], "Bearer ")
	hello := fmt.Sprintf(`{"token":%q,"user":"alice"}`, alice)
	_, welcome := w.Hello(hello)
	require.Greater(t, welcome["expires_in_ms"], 0.0)
	w.Hello(hello, "Authorization: "+headers["alice"])
	w.Hello(fmt.Sprintf(`{"token":%q,"user":"carol"}`, strings.TrimPrefix(headers["all"], "Bearer ")))
	for _, header := range []string{headers["bob"], "Basic " + alice} {
		w.Greet(hello, "Authorization: "+header).Fails(problem.InvalidParameter)
	}
	w.Greet(fmt.Sprintf(`{"token":%q,"user":"alice"}`, bob)).Fails(problem.Forbidden)
	w.Greet(`{"token":"x","user":"alice"}`).Fails(problem.Unauthenticated)
}

// TestConnectTokenExpires: the connection ends with its token, and nothing is written, unless a new one comes in time.
func TestConnectTokenExpires(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		w.Connects()
		authenticator, token := kit.Signed(t)
		w.Reload(func(c *api.Config) { c.Auth = authenticator })
		s, _ := w.Hello(fmt.Sprintf(`{"user":"alice","grace_ms":0,"token":%q}`, token("alice", 2*time.Second)))
		renewed, _ := w.Hello(fmt.Sprintf(`{"user":"bob","token":%q}`, token("bob", 2*time.Second)))
		renewed.Refuses(problem.Forbidden, fmt.Sprintf(`{"token":{"token":%q}}`, token("alice", time.Hour)))
		renewed.Refuses(problem.Unauthenticated, fmt.Sprintf(`{"token":{"token":%q}}`, token("bob", -time.Hour)))
		renewed.Refuses(problem.InvalidParameter, `{"token":{}}`)
		ok := renewed.Asks(fmt.Sprintf(`{"token":{"token":%q}}`, token("bob", time.Hour)), "ok")
		require.Greater(t, ok["expires_in_ms"], 3_500_000.0)
		begun := time.Now()
		s.Closed(4401, string(problem.Unauthenticated))
		require.Less(t, time.Since(begun), 3*time.Second)
		renewed.Quiet()
		alice := w.Do("GET", "/users/alice", "", kit.Bearer(token("alice", time.Hour)))
		require.Equal(t, "green", alice["status"], "the end of a token is no leave")
	})
}

// TestConnectKeyRemoved: a reload closes the connections of a removed key.
func TestConnectKeyRemoved(t *testing.T) {
	authenticator, headers := kit.Callers(t)
	other, _ := kit.Callers(t)
	w := apitest.NewSocketServer(t, func(c *api.Config) { c.Auth = authenticator })
	key, _ := w.Hello(`{"user":"alice"}`, "Authorization: "+headers["all"])
	user, _ := w.Hello(`{"user":"alice"}`, "Authorization: "+headers["alice"])
	w.Reload(func(c *api.Config) { c.Auth = other })
	key.Closed(4403, string(problem.Forbidden))
	user.Quiet()
	w.Reload(func(c *api.Config) { c.RefuseUnknown = true })
	user.Closed(4404, string(problem.NotFound))
	w.Greet(`{"user":"alice"}`, "Authorization: "+headers["alice"]).Fails(problem.NotFound)
}

// TestConnectCallerLimits: how many connections a user's token and an API key can have.
func TestConnectCallerLimits(t *testing.T) {
	w, headers := apitest.NewGuardedSocketServer(t, func(c *api.Config) {
		c.WebSockets = api.WebSocketLimits{
			PerUser:   1,
			PerCaller: 2,
		}
	})
	for name, most := range map[string]int{"alice": 1, "all": 2} {
		var last *kit.Socket
		for range most {
			last, _ = w.Hello(`{"watch":{"users":["alice"]}}`, kit.BearerOf(headers[name]))
		}
		w.Greet(`{}`, kit.BearerOf(headers[name])).Fails(problem.RateLimited)
		require.NoError(t, last.Conn.Close())
		kit.Await(t, func() bool {
			again := w.Greet(`{}`, kit.BearerOf(headers[name]))
			defer again.Conn.Close()
			_, text, err := again.Conn.ReadMessage()
			return err == nil && strings.Contains(string(text), "welcome")
		})
	}
}

// TestConnectIsCharged: a hello counts as a request, and each user watched as a lookup.
func TestConnectIsCharged(t *testing.T) {
	guarded, _, _, token := apitest.TwoKeys(t)
	w := apitest.NewSocketServer(t, guarded)
	s, _ := w.Hello(`{"user":"alice"}`, kit.Bearer(token("alice")))
	for range limit.Burst(2) - 1 {
		s.Asks(`{"watch":{"add":["bob"]}}`, "changes")
	}
	require.Contains(t, s.Refuses(problem.RateLimited, `{"watch":{"add":["bob"]}}`), "Rate limit")
	s.Refuses(problem.RateLimited, `{"watch":{"everyone":true}}`)
	w.Greet(`{}`, kit.Bearer(token("alice"))).Fails(problem.RateLimited)
	office := kit.ForwardedFor("203.0.113.7")
	for range limit.Burst(1) {
		w.Greet(`{}`, office, kit.Bearer("wrong")).Fails(problem.Unauthenticated)
	}
	w.Refused(problem.RateLimited, office)
}

// TestConnectForgotten: deleting a user closes the user's connections.
func TestConnectForgotten(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{"user":"alice"}`)
	other, _ := w.Hello(`{"user":"bob"}`)
	w.Send("DELETE", "/chat/users/alice", "").Is(t, http.StatusNoContent)
	s.Closed(4410, string(problem.ConnectionClosed))
	require.Equal(t, "grey", w.Get("/chat/users/alice")["status"])
	require.Nil(t, w.Get("/chat/users/alice")["last_seen"])
	other.Quiet()
}
