package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestConnectPermissions: what each kind of caller can do.
func TestConnectPermissions(t *testing.T) {
	w, headers := newGuardedSocketServer(t)
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
			s := w.greet(hello, headersOf(credentials)...)
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
				s.closed(problem.CloseCodes+refusalStatus(name), content["code"].(string))
			}
			require.NoError(t, s.conn.Close())
		}
	}
	public := w.dialSocket("public-1")
	public.send(`{"hello":{"watch":{"users":["alice"]}}}`)
	public.want(frameWelcome)
	ping, welcome := w.hello(connects, "Authorization: "+headers["ping"])
	require.NotContains(t, welcome, "self", "the key cannot read")
	ping.refuses(problem.Forbidden, `{"watch":{"add":["bob"]}}`)
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
		w.greet(hello, "Authorization: "+header).fails(problem.InvalidParameter)
	}
	w.greet(fmt.Sprintf(`{"token":%q,"user":"alice"}`, bob)).fails(problem.Forbidden)
	w.greet(`{"token":"x","user":"alice"}`).fails(problem.Unauthenticated)
}

// TestConnectTokenExpires: the connection ends with its token, and nothing is written, unless a new one comes in time.
func TestConnectTokenExpires(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		w.connects()
		authenticator, token := signed(t)
		w.reload(func(c *Config) { c.Auth = authenticator })
		s, _ := w.hello(fmt.Sprintf(`{"user":"alice","grace_ms":0,"token":%q}`, token("alice", 2*time.Second)))
		renewed, _ := w.hello(fmt.Sprintf(`{"user":"bob","token":%q}`, token("bob", 2*time.Second)))
		renewed.refuses(problem.Forbidden, fmt.Sprintf(`{"token":{"token":%q}}`, token("alice", time.Hour)))
		renewed.refuses(problem.Unauthenticated, fmt.Sprintf(`{"token":{"token":%q}}`, token("bob", -time.Hour)))
		renewed.refuses(problem.InvalidParameter, `{"token":{}}`)
		ok := renewed.asks(fmt.Sprintf(`{"token":{"token":%q}}`, token("bob", time.Hour)), frameOK)
		require.Greater(t, ok["expires_in_ms"], 3_500_000.0)
		begun := time.Now()
		s.closed(4401, string(problem.Unauthenticated))
		require.Less(t, time.Since(begun), 3*time.Second)
		renewed.quiet()
		alice := w.do("GET", "/users/alice", "", bearer(token("alice", time.Hour)))
		require.Equal(t, "green", alice["status"], "the end of a token is no goodbye")
	})
}

// TestConnectKeyRemoved: a reload closes the connections of a removed key.
func TestConnectKeyRemoved(t *testing.T) {
	authenticator, headers := callers(t)
	other, _ := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	key, _ := w.hello(`{"user":"alice"}`, "Authorization: "+headers["all"])
	user, _ := w.hello(`{"user":"alice"}`, "Authorization: "+headers["alice"])
	w.reload(func(c *Config) { c.Auth = other })
	key.closed(4403, string(problem.Forbidden))
	user.quiet()
	w.reload(func(c *Config) { c.RefuseUnknown = true })
	user.closed(4404, string(problem.NotFound))
	w.greet(`{"user":"alice"}`, "Authorization: "+headers["alice"]).fails(problem.NotFound)
}

// TestCheckAuthenticatesOnce: after a reload, the credentials of many connections are verified once, API keys first.
func TestCheckAuthenticatesOnce(t *testing.T) {
	t.Parallel()
	w, headers := newGuardedSocketServer(t)
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
		return w.config.Auth.Authenticate(t.Context(), credentials)
	})
	require.Equal(t, map[string]int{headers["all"]: 1, headers["alice"]: 1, headers["bob"]: 1}, times)
	require.Equal(t, 7, w.config.Shared.WebSockets(), "nobody was closed")
}

// TestCheckThatPanics: a defect in authenticating some clients again closes their connections alone.
func TestCheckThatPanics(t *testing.T) {
	t.Parallel()
	w, headers := newGuardedSocketServer(t)
	alice, _ := w.hello(`{"user":"alice"}`, "Authorization: "+headers["alice"])
	bob, _ := w.hello(`{"user":"bob"}`, "Authorization: "+headers["bob"])
	checkSessions(w.config.Shared.sockets.all(), func(credentials []string) (*auth.Caller, error) {
		if credentials[0] == headers["alice"] {
			panic("a defect")
		}
		return w.config.Auth.Authenticate(t.Context(), credentials)
	})
	alice.closed(problem.Internal.CloseCode(), string(problem.Internal))
	bob.quiet()
}

// TestConnectCallerLimits: how many connections a user's token and an API key can have.
func TestConnectCallerLimits(t *testing.T) {
	w, headers := newGuardedSocketServer(t, func(c *Config) {
		c.WebSockets = WebSocketLimits{
			PerUser:   1,
			PerCaller: 2,
		}
	})
	for name, most := range map[string]int{"alice": 1, "all": 2} {
		var last *testSocket
		for range most {
			last, _ = w.hello(`{"watch":{"users":["alice"]}}`, bearerOf(headers[name]))
		}
		w.greet(`{}`, bearerOf(headers[name])).fails(problem.RateLimited)
		require.NoError(t, last.conn.Close())
		await(t, func() bool {
			again := w.greet(`{}`, bearerOf(headers[name]))
			defer again.conn.Close()
			_, text, err := again.conn.ReadMessage()
			return err == nil && strings.Contains(string(text), frameWelcome)
		})
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
	require.Contains(t, s.refuses(problem.RateLimited, `{"watch":{"add":["bob"]}}`), "Rate limit")
	s.refuses(problem.RateLimited, `{"watch":{"everyone":true}}`)
	w.greet(`{}`, bearer(token("alice"))).fails(problem.RateLimited)
	office := from("203.0.113.7")
	for range limit.Burst(1) {
		w.greet(`{}`, office, bearer("wrong")).fails(problem.Unauthenticated)
	}
	w.refused(problem.RateLimited, office)
}

// TestConnectWatchesAreCounted: a user with a token follows a limited number of users over all connections.
func TestConnectWatchesAreCounted(t *testing.T) {
	w, headers := newGuardedSocketServer(t)
	s, _ := w.hello(`{"watch":{"users":["bob","bob","carol"]}}`, bearerOf(headers["alice"]))
	watched, alice := &w.config.Shared.watched, limit.ByUser("issuer", "alice")
	counts := func() int { return locked(&watched.mu, func() int { return watched.counts[alice] }) }
	require.Equal(t, 2, counts())
	s.asks(`{"watch":{"add":["carol","dave"]}}`, frameChanges)
	require.Equal(t, 3, counts())
	s.asks(`{"watch":{"remove":["bob","dave","eve"]}}`, frameOK)
	require.Equal(t, 1, counts())
	more, err := watched.take(w.session().currentCaller(), store.MaxWatched-1)
	require.NoError(t, err)
	s.refuses(problem.RateLimited, `{"watch":{"add":["eve"]}}`)
	more()
	require.NoError(t, s.conn.Close())
	await(t, func() bool { return counts() == 0 })
}

// TestConnectCountsWatchesOfCaller: users are counted to the same caller at the end as at the start, although a reload
// can change the caller of a session.
func TestConnectCountsWatchesOfCaller(t *testing.T) {
	authenticator, headers := callers(t)
	w := newSocketServer(t)
	s, _ := w.hello(`{"watch":{"users":["bob"]}}`, "Authorization: "+headers["alice"])
	w.reload(func(c *Config) { c.Auth = authenticator })
	n := w.session()
	await(t, func() bool { return n.currentCaller() != nil })
	s.asks(`{"watch":{"add":["carol"]}}`, frameChanges)
	require.NoError(t, s.conn.Close())
	w.awaitSockets(0)
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
	w.send("DELETE", "/chat/users/alice", "").is(t, http.StatusNoContent)
	s.closed(4410, string(problem.ConnectionClosed))
	require.Equal(t, "grey", w.get("/chat/users/alice")["status"])
	require.Nil(t, w.get("/chat/users/alice")["last_seen"])
	other.quiet()
}
