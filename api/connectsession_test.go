package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// TestConnectPermissions: what each kind of caller can do.
func TestConnectPermissions(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
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
			s := w.dialSocket("chat", headersOf(credentials)...)
			s.send(`{"hello":` + hello + `}`)
			got, content, _ := s.next()
			what := fmt.Sprintf("%s %s: %v", name, hello, content)
			want := frameProblem
			for _, a := range allowed {
				if a == name {
					want = frameWelcome
				}
			}
			require.Equal(t, want, got, what)
			if want == frameProblem {
				require.EqualValues(t, refusalStatus(name), content["status"], what)
				s.closed(closeCodes+refusalStatus(name), content["code"].(string))
			}
			require.NoError(t, s.conn.Close())
		}
	}
	public := w.dialSocket("public-1")
	public.send(`{"hello":{"watch":{"users":["alice"]}}}`)
	public.want(frameWelcome)
	ping, welcome := w.hello(connects, "Authorization: "+headers["ping"])
	require.NotContains(t, welcome, "self", "the key cannot read")
	ping.refuses(codeForbidden, `{"watch":{"add":["bob"]}}`)
}

// TestConnectTokenInHello: the credentials can be in the frame hello; if both are given, they must agree.
func TestConnectTokenInHello(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) {
		c.Auth, c.Now = authenticator, func() time.Time { return time.UnixMilli(int64(testNow)) }
	})
	alice, bob := strings.TrimPrefix(headers["alice"], "Bearer "), strings.TrimPrefix(headers["bob"], "Bearer ")
	hello := fmt.Sprintf(`{"token":%q,"user":"alice"}`, alice)
	_, welcome := w.hello(hello)
	require.Greater(t, welcome["expires_in_ms"], 0.0)
	w.hello(hello, "Authorization: "+headers["alice"])
	w.hello(fmt.Sprintf(`{"token":%q,"user":"carol"}`, strings.TrimPrefix(headers["all"], "Bearer ")))
	for _, header := range []string{headers["bob"], "Basic " + alice} {
		s := w.dialSocket("chat", "Authorization: "+header)
		s.send(`{"hello":` + hello + `}`)
		s.fails(codeInvalidParameter)
	}
	s := w.dialSocket("chat")
	s.send(fmt.Sprintf(`{"hello":{"token":%q,"user":"alice"}}`, bob))
	s.fails(codeForbidden)
	s = w.dialSocket("chat")
	s.send(`{"hello":{"token":"x","user":"alice"}}`)
	s.fails(codeUnauthenticated)
}

// signed returns an authenticator whose time is the machine's, and a function that makes tokens for it.
func signed(t *testing.T) (*auth.Authenticator, func(user string, d time.Duration) string) {
	t.Helper()
	issuer := tokens()
	issuer.Namespaces = []auth.Pattern{"*"}
	authenticator, err := auth.New(auth.Config{Tokens: issuer}, auth.Options{})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator, func(user string, d time.Duration) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"iss": "issuer", "aud": "lastseen", "sub": user, "exp": float64(time.Now().Add(d).UnixMilli()) / 1000,
		}).SignedString(tokenSecret)
		require.NoError(t, err)
		return text
	}
}

// TestConnectTokenExpires: the connection ends with its token, and nothing is written, unless a new one comes in time.
func TestConnectTokenExpires(t *testing.T) {
	t.Parallel()
	authenticator, token := signed(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	s, _ := w.hello(fmt.Sprintf(`{"user":"alice","grace_ms":0,"token":%q}`, token("alice", 2*time.Second)))
	renewed, _ := w.hello(fmt.Sprintf(`{"user":"bob","token":%q}`, token("bob", 2*time.Second)))
	renewed.refuses(codeForbidden, fmt.Sprintf(`{"token":{"token":%q}}`, token("alice", time.Hour)))
	renewed.refuses(codeUnauthenticated, fmt.Sprintf(`{"token":{"token":%q}}`, token("bob", -time.Hour)))
	renewed.refuses(codeInvalidParameter, `{"token":{}}`)
	ok := renewed.asks(fmt.Sprintf(`{"token":{"token":%q}}`, token("bob", time.Hour)), frameOK)
	require.Greater(t, ok["expires_in_ms"], 3_500_000.0)
	s.closed(4401, string(codeUnauthenticated))
	renewed.asks(`{"activity":{"idle":false}}`, frameOK)
	alice := w.getAs(token("alice", time.Hour), "/chat/users/alice")
	require.Equal(t, "green", alice["status"], "the end of a token is no goodbye")
}

func (w *testServer) getAs(token, path string) map[string]any {
	w.t.Helper()
	r := w.send(http.MethodGet, path, "", bearer(token))
	require.Equal(w.t, http.StatusOK, r.status, r.body)
	return r.json(w.t)
}

// TestConnectKeyRemoved: a reload closes the connections of a removed key.
func TestConnectKeyRemoved(t *testing.T) {
	authenticator, headers := callers(t)
	other, _ := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	key, _ := w.hello(`{"user":"alice"}`, "Authorization: "+headers["all"])
	user, _ := w.hello(`{"user":"alice"}`, "Authorization: "+headers["alice"])
	w.reload(func(c *Config) { c.Auth = other })
	key.closed(4403, string(codeForbidden))
	user.asks(`{"activity":{"idle":true}}`, frameOK)
	w.reload(func(c *Config) { c.RefuseUnknown = true })
	user.closed(4404, string(codeNotFound))
	s := w.dialSocket("chat", "Authorization: "+headers["alice"])
	s.send(`{"hello":{"user":"alice"}}`)
	s.fails(codeNotFound)
}

// TestCheckAuthenticatesOnce: after a reload, the credentials of many connections are verified once, API keys first.
func TestCheckAuthenticatesOnce(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	for _, name := range []string{"alice", "all", "alice", "bob", "all", "alice"} {
		user := name
		if name == "all" {
			user = "carol"
		}
		w.hello(`{"user":"`+user+`"}`, "Authorization: "+headers[name])
	}
	w.dialSocket("chat") // has no caller yet
	sessions := w.config.Shared.sockets.all()
	require.Len(t, sessions, 7)
	groups := groupByCredentials(sessions)
	require.Len(t, groups, 3)
	require.Equal(t, []string{headers["all"]}, groups[0].credentials)
	var mu sync.Mutex
	times := map[string]int{}
	checkSessions(sessions, func(credentials []string) (*auth.Caller, error) {
		mu.Lock()
		times[credentials[0]]++
		mu.Unlock()
		return authenticator.Authenticate(t.Context(), credentials)
	})
	require.Equal(t, map[string]int{headers["all"]: 1, headers["alice"]: 1, headers["bob"]: 1}, times)
	require.Equal(t, 7, w.config.Shared.WebSockets(), "nobody was closed")
}

// TestCheckThatPanics: a defect in authenticating some clients again closes their connections alone.
func TestCheckThatPanics(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	alice, _ := w.hello(`{"user":"alice"}`, "Authorization: "+headers["alice"])
	bob, _ := w.hello(`{"user":"bob"}`, "Authorization: "+headers["bob"])
	checkSessions(w.config.Shared.sockets.all(), func(credentials []string) (*auth.Caller, error) {
		if credentials[0] == headers["alice"] {
			panic("a defect")
		}
		return authenticator.Authenticate(t.Context(), credentials)
	})
	alice.closed(codeInternal.closeCode(), string(codeInternal))
	bob.asks(`{"activity":{"idle":true}}`, frameOK)
}

// TestConnectCallerLimits: how many connections a user's token and an API key can have.
func TestConnectCallerLimits(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) {
		c.Auth, c.WebSockets = authenticator, WebSocketLimits{PerUser: 1, PerCaller: 2}
	})
	for name, most := range map[string]int{"alice": 1, "all": 2} {
		header := "Authorization: " + headers[name]
		var last *testSocket
		for range most {
			last, _ = w.hello(`{"watch":{"users":["alice"]}}`, header)
		}
		s := w.dialSocket("chat", header)
		s.send(`{"hello":{}}`)
		s.fails(codeRateLimited)
		require.NoError(t, last.conn.Close())
		require.Eventually(t, func() bool {
			conn, err := w.tryDial("chat", header)
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"hello":{}}`)))
			_, text, err := conn.ReadMessage()
			return err == nil && strings.Contains(string(text), frameWelcome)
		}, eventually, tick)
	}
}

// TestConnectIsCharged: a hello counts as a request, and each user watched as a lookup.
func TestConnectIsCharged(t *testing.T) {
	guarded, _, _, token := twoKeys(t)
	w := newSocketServer(t, guarded)
	s, _ := w.hello(`{"user":"alice"}`, bearer(token("alice")))
	for range limit.Burst(2) - 1 {
		s.asks(`{"watch":{"add":["bob"]}}`, frameChanges)
	}
	require.Contains(t, s.refuses(codeRateLimited, `{"watch":{"add":["bob"]}}`), "Rate limit")
	s.refuses(codeRateLimited, `{"watch":{"everyone":true}}`)
	two := w.dialSocket("chat", bearer(token("alice")))
	two.send(`{"hello":{}}`)
	two.fails(codeRateLimited)
	office := from("203.0.113.7")
	for range limit.Burst(1) {
		bad := w.dialSocket("chat", office, bearer("wrong"))
		bad.send(`{"hello":{}}`)
		bad.fails(codeUnauthenticated)
	}
	bad := w.dialSocket("chat", office, bearer("wrong"))
	bad.send(`{"hello":{}}`)
	bad.fails(codeRateLimited)
}

// TestConnectWatchesAreCounted: a user with a token follows a limited number of users over all connections.
func TestConnectWatchesAreCounted(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	s, _ := w.hello(`{"watch":{"users":["bob","bob","carol"]}}`, "Authorization: "+headers["alice"])
	counts := func() int {
		w.config.Shared.watched.mu.Lock()
		defer w.config.Shared.watched.mu.Unlock()
		return w.config.Shared.watched.counts[limit.ByUser("issuer", "alice")]
	}
	require.Equal(t, 2, counts())
	s.asks(`{"watch":{"add":["carol","dave"]}}`, frameChanges)
	require.Equal(t, 3, counts())
	s.asks(`{"watch":{"remove":["bob","dave","eve"]}}`, frameOK)
	require.Equal(t, 1, counts())
	w.config.Shared.watched.mu.Lock()
	w.config.Shared.watched.counts[limit.ByUser("issuer", "alice")] += store.MaxWatched - 1
	w.config.Shared.watched.mu.Unlock()
	s.refuses(codeRateLimited, `{"watch":{"add":["eve"]}}`)
	w.config.Shared.watched.drop(limit.ByUser("issuer", "alice"), store.MaxWatched-1)
	require.NoError(t, s.conn.Close())
	require.Eventually(t, func() bool { return counts() == 0 }, eventually, tick)
}

// TestConnectCountsWatchesOfCaller: users are counted to the same caller at the end as at the start, although a reload
// can change the caller of a session.
func TestConnectCountsWatchesOfCaller(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t)
	s, _ := w.hello(`{"watch":{"users":["bob"]}}`, "Authorization: "+headers["alice"])
	w.reload(func(c *Config) { c.Auth = authenticator })
	n := w.config.Shared.sockets.all()[0]
	require.Eventually(t, func() bool { return n.currentCaller() != nil }, eventually, tick)
	s.asks(`{"watch":{"add":["carol"]}}`, frameChanges)
	require.NoError(t, s.conn.Close())
	require.Eventually(t, func() bool { return w.config.Shared.WebSockets() == 0 }, eventually, tick)
	select {
	case <-n.following.done:
	case <-time.After(eventually):
	}
	require.Empty(t, w.config.Shared.watched.counts)
}

// TestConnectForgotten: deleting a user closes the user's connections.
func TestConnectForgotten(t *testing.T) {
	w := newSocketServer(t)
	s, _ := w.hello(`{"user":"alice"}`)
	other, _ := w.hello(`{"user":"bob"}`)
	require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat/users/alice", "").status)
	s.closed(4410, string(codeConnectionClosed))
	require.Equal(t, "grey", w.get("/chat/users/alice")["status"])
	require.Nil(t, w.get("/chat/users/alice")["last_seen"])
	other.asks(`{"activity":{"idle":true}}`, frameOK)
}
