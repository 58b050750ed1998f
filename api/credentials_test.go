package api

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// TestPingsThatTellNothing: whoever may not read is not told by the answer what is stored.
func TestPingsThatTellNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, open *world) {
		guard, headers := callers(t)
		w := newGuardedWorld(t, open.store.Store, guard)
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

// TestPrivateCaching: what somebody is told is for them alone; what everybody may know, caches may keep apart.
func TestPrivateCaching(t *testing.T) {
	guard, headers := callers(t)
	w := newGuardedWorld(t, fileStore(t), guard)
	open := newWorld(t, fileStore(t))
	for _, path := range []string{"/%s/users/alice", "/%s/lookup?user=alice"} {
		for _, condition := range []string{"X: y", "If-None-Match: *"} {
			r := w.send(http.MethodGet, fmt.Sprintf(path, "chat"), "", "Authorization: "+headers["read"], condition)
			require.Equal(t, "private, max-age=5", r.header.Get("Cache-Control"))
			require.Equal(t, "Authorization", r.header.Get("Vary"))
			r = w.send(http.MethodGet, fmt.Sprintf(path, "public-1"), "", condition)
			require.Equal(t, "max-age=5", r.header.Get("Cache-Control"))
			require.Equal(t, "Authorization", r.header.Get("Vary"))
			r = open.send(http.MethodGet, fmt.Sprintf(path, "chat"), "", "Authorization: nonsense", condition)
			require.Equal(t, "max-age=5", r.header.Get("Cache-Control"))
			require.Empty(t, r.header.Get("Vary"), "who asks makes no difference")
		}
	}
	for _, path := range []string{"/chat/users", "/chat/counts", "/chat", ""} {
		require.Equal(t, "no-store", w.send(http.MethodGet, path, "",
			"Authorization: "+headers["read"]).header.Get("Cache-Control"))
	}
}

// TestNamespacesOfOthers: the list has what the caller may read and nothing else, in pages that are full.
func TestNamespacesOfOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, open *world) {
		guard, headers := callers(t)
		w := newGuardedWorld(t, open.store.Store, guard)
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

func headersOf(credentials string) []string {
	if credentials == "" {
		return nil
	}
	return []string{"Authorization: " + credentials}
}

// TestBeacon: a page that closes says goodbye with the token in the body, as text/plain, and with no other credentials.
func TestBeacon(t *testing.T) {
	const hour = 3_600_000
	eachStore(t, func(t *testing.T, open *world) {
		guard, headers := callers(t)
		w := newGuardedWorld(t, open.store.Store, guard)
		beacon := func(token string) string { return fmt.Sprintf(`{"token":%q,"at":%d}`, token, noon/1000) }
		alice, expired := token(t, "alice", noon+hour, "chat"), token(t, "alice", noon-hour, "chat")
		leave, text := "/chat/users/alice/leave", "Content-Type: text/plain;charset=UTF-8"

		open.post("/chat/users/alice/ping", fmt.Sprintf(`{"at":%d}`, noon/1000-10))
		r := w.send(http.MethodPost, leave, beacon(alice), text)
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, true, r.json(t)["left"])
		require.Equal(t, "grey", open.get("/chat/users/alice")["status"])

		for body, want := range map[string]code{
			"": codeUnauthenticated, "{}": codeUnauthenticated, `{"token":""}`: codeUnauthenticated,
			beacon("x"):     codeUnauthenticated,
			beacon(expired): codeUnauthenticated, beacon(strings.TrimPrefix(headers["all"],
				"Bearer ")): codeUnauthenticated,
			beacon(token(t, "bob", noon+hour, "chat")):    codeForbidden,
			beacon(token(t, "alice", noon+hour, "other")): codeForbidden,
			`{"token":5}`: codeInvalidJSON, `{"token":null}`: codeUnauthenticated,
			`{"token":"a","token":"b"}`: codeInvalidJSON,
		} {
			problem := w.fails(want, http.MethodPost, leave, body, text)
			require.NotContains(t, fmt.Sprint(problem), "eyJ", "a token is not repeated")
		}
		for _, path := range []string{"/chat/users/alice/ping", "/chat/leaves", "/chat/pings"} {
			w.fails(codeUnauthenticated, http.MethodPost, path, beacon(alice), text)
		}
		w.fails(codeUnauthenticated, http.MethodPost, leave, beacon(alice), text, "Authorization: Bearer x")
		w.fails(codeForbidden, http.MethodPost, leave, beacon(alice), text, "Authorization: "+headers["bob"])
		require.Equal(t, http.StatusOK, w.send(http.MethodPost, leave, beacon("x"), text,
			"Authorization: "+headers["alice"]).status)
		require.Equal(t, http.StatusOK, open.send(http.MethodPost, leave, beacon("x"), text).status, "nobody is asked")
		require.NotContains(t, w.log.String(), alice)
		require.NotContains(t, w.log.String(), expired)
	})
}

// TestBeaconNeedsTokens: where there are only keys, nobody's body is read.
func TestBeaconNeedsTokens(t *testing.T) {
	_, hash := auth.NewKey()
	guard := newGuard(t, auth.Config{Keys: []auth.Key{{
		Name: "k", Hash: hash, Scopes: auth.Scopes(),
		Namespaces: []auth.Pattern{"*"},
	}}})
	w := newGuardedWorld(t, fileStore(t), guard)
	w.fails(codeUnauthenticated, http.MethodPost, "/chat/users/alice/leave", "{")
}

// TestCredentialsStayOutOfTheLog: the reason is there for operators, under the ID of the request, the credentials are
// not.
func TestCredentialsStayOutOfTheLog(t *testing.T) {
	guard, headers := callers(t)
	w := newGuardedWorld(t, fileStore(t), guard)
	for name, reason := range map[string]string{
		"alice, expired": "expired", "stranger": "no such key", "garbage": "malformed", "basic": "not Bearer",
	} {
		r := w.send(http.MethodGet, "/chat/users/alice", "", "Authorization: "+headers[name])
		require.Contains(t, w.log.String(), r.header.Get("X-Request-Id"))
		require.Contains(t, w.log.String(), reason)
	}
	long := strings.Repeat("x", 3000)
	w.send(http.MethodGet, "/chat", "",
		"Authorization: Bearer "+encoded(`{"alg":"HS256"}`)+"."+encoded(`{"`+long+`":1,"`+long+`":2}`)+".x")
	require.Contains(t, w.log.String(), "duplicate")
	require.NotContains(t, w.log.String(), long)
	for _, credentials := range headers {
		w.send(http.MethodPost, "/chat/users/alice/ping", "{", headersOf(credentials)...)
		w.send(http.MethodDelete, "/chat?"+url.QueryEscape(credentials), "", headersOf(credentials)...)
	}
	for name, credentials := range headers {
		if _, secret, _ := strings.Cut(credentials, " "); len(secret) > 10 {
			require.NotContains(t, w.log.String(), secret, name)
		}
	}
}

// encoded is a part of a JWT.
func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// TestReloadedAccess: a reload changes the authenticator.
func TestReloadedAccess(t *testing.T) {
	guard, headers := callers(t)
	w := newGuardedWorld(t, fileStore(t), guard)
	status := func() int {
		return w.send(http.MethodGet, "/chat/counts", "", "Authorization: "+headers["read"]).status
	}
	require.Equal(t, http.StatusOK, status())
	other, _ := callers(t)
	w.reload(func(c *Config) { c.Auth = other })
	require.Equal(t, http.StatusUnauthorized, status(), "the key is revoked")
	w.reload(func(c *Config) { c.Auth = nil })
	require.Equal(t, http.StatusOK, status(), "credentials are not needed any longer")
}

// withoutKeys is a guard whose issuer cannot be asked for its keys.
func withoutKeys(t *testing.T) *auth.Authenticator {
	t.Helper()
	issuer := &auth.Tokens{JWKS: "https://issuer.example/keys", Issuer: "issuer", Audience: "lastseen"}
	guard, err := auth.New(auth.Config{Tokens: issuer},
		auth.Options{Transport: unreachable{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(guard.Close)
	return guard
}

// unreachable is the network of a server without one.
type unreachable struct{}

// RoundTrip fails; see [http.RoundTripper].
func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

// rsToken looks like a token of an issuer that publishes its keys.
const rsToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.AAAA"

// TestKeysUnavailable: unknown is not unauthenticated.
func TestKeysUnavailable(t *testing.T) {
	w := newGuardedWorld(t, fileStore(t), withoutKeys(t))
	for _, r := range []reply{
		w.send(http.MethodGet, "/chat/users/alice", "", "Authorization: Bearer "+rsToken),
		w.send(http.MethodPost, "/chat/users/alice/leave", `{"token":"`+rsToken+`"}`),
	} {
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.Equal(t, string(codeKeysUnavailable), r.json(t)["code"])
		require.NotEmpty(t, r.header.Get("Retry-After"))
		require.Empty(t, r.header.Get("WWW-Authenticate"))
		require.NotContains(t, r.body, "no route")
		require.Contains(t, w.log.String(), "no route to host")
		require.NotContains(t, w.log.String(), "level=ERROR", "anybody can send such tokens; the guard says it once")
	}
	w.fails(codeUnauthenticated, http.MethodGet, "/chat/users/alice", "")
	w.fails(codeUnauthenticated, http.MethodGet, "/chat/users/alice", "", "Authorization: Bearer ls_x")
}

// refusals provokes what is answered to callers who may not, for all requests.
func refusals(t *testing.T, s store.Store, calls []call) map[string]bool {
	t.Helper()
	guard := newGuard(t, auth.Config{Tokens: tokens()})
	answered := map[string]bool{}
	for _, refused := range []struct {
		guard *auth.Authenticator
		token string
	}{{guard, "x"}, {guard, token(t, "alice", noon+1000)}, {withoutKeys(t), rsToken}} {
		w := newGuardedWorld(t, s, refused.guard)
		for _, c := range calls {
			if !isPublic(c.path) {
				c.headers = append([]string{"Authorization: Bearer " + refused.token}, c.headers...)
				c.send(w)
			}
		}
		maps.Copy(answered, w.answers())
	}
	return answered
}
