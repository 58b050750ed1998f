package api

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
)

// knowing has a server know two keys and the tokens that the returned function makes.
func knowing(t *testing.T) (guarded func(*Config), one, two string, token func(user string) string) {
	t.Helper()
	oneKey, oneHash := auth.NewKey()
	twoKey, twoHash := auth.NewKey()
	scopes, everywhere, secret := auth.Scopes(), []auth.Pattern{"*"}, bytes.Repeat([]byte("s"), 32)
	guard, err := auth.New(auth.Config{
		Keys: []auth.Key{
			{Name: "one", Hash: oneHash, Scopes: scopes, Namespaces: everywhere},
			{Name: "two", Hash: twoHash, Scopes: scopes, Namespaces: everywhere},
		},
		Tokens:        &auth.Tokens{Secret: secret, Issuer: "issuer", Audience: "lastseen", Namespaces: everywhere},
		AnonymousRead: everywhere,
	}, auth.Options{})
	require.NoError(t, err)
	t.Cleanup(guard.Close)
	token = func(user string) string {
		claims := jwt.MapClaims{
			"iss": "issuer", "aud": "lastseen", "sub": user,
			"exp": time.Now().Add(time.Hour).Unix(),
		}
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		require.NoError(t, err)
		return signed
	}
	return func(c *Config) {
		behindProxy(c)
		c.Auth = guard
		c.Limits = limit.Limits{Caller: 1, User: 2}
	}, oneKey, twoKey, token
}

func bearer(credentials string) string { return "Authorization: Bearer " + credentials }

// TestLimitsOfCallers: who says who they are is counted as who they are, wherever they are.
func TestLimitsOfCallers(t *testing.T) {
	guarded, one, two, token := knowing(t)
	w := newWorld(t, fileStore(t), guarded)
	home, cafe := from("203.0.113.7"), from("198.51.100.1")
	refused := func(headers ...string) http.Header {
		t.Helper()
		r := w.send(http.MethodGet, "/chat", "", headers...)
		require.Equal(t, http.StatusTooManyRequests, r.status, r.body)
		return r.header
	}
	w.spend(bearer(one), home)
	require.Equal(t, `"key";q=5;w=5`, refused(bearer(one), cafe).Get("RateLimit-Policy"))
	refused(bearer(one)) // from this machine, too
	w.spend(bearer(two), home)

	w.spend(bearer(token("alice")), home)
	w.spend(bearer(token("alice")), cafe)
	require.Equal(t, `"user";q=10;w=5`, refused(bearer(token("alice"))).Get("RateLimit-Policy"),
		"another token of the same user")
	w.spend(bearer(token("one")), home)

	w.spend(home)
	require.Equal(t, `"address";q=5;w=5`, refused(home).Get("RateLimit-Policy"), "who does not say who they are")
	w.spend(bearer(token("bob")), home) // is nothing to who does
}

// TestLimitsOfGuessing: credentials that are wrong count for the address that they come from, and for nobody else.
func TestLimitsOfGuessing(t *testing.T) {
	guarded, one, _, _ := knowing(t)
	w := newWorld(t, fileStore(t), guarded)
	wrong, office := bearer("ls_wrong"), from("203.0.113.7")
	for range limit.Burst(1) {
		w.fails(codeUnauthenticated, http.MethodGet, "/chat", "", wrong, office)
	}
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", wrong, office)
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", office)
	w.spend(bearer(one), office)
	w.fails(codeUnauthenticated, http.MethodGet, "/chat", "", wrong, from("203.0.113.8"))
}

// TestLimitsOfForbidden: what a caller may not do counts as well.
func TestLimitsOfForbidden(t *testing.T) {
	guarded, _, _, token := knowing(t)
	w := newWorld(t, fileStore(t), guarded)
	for range limit.Burst(2) {
		w.fails(codeForbidden, http.MethodDelete, "/chat/users/alice", "", bearer(token("alice")))
	}
	w.fails(codeRateLimited, http.MethodDelete, "/chat/users/alice", "", bearer(token("alice")))
}

// TestLimitsOfBeacons: a token in a body is as good as one in a header, also for this.
func TestLimitsOfBeacons(t *testing.T) {
	guarded, _, _, token := knowing(t)
	w := newWorld(t, fileStore(t), guarded)
	body := `{"token":"` + token("alice") + `"}`
	for range limit.Burst(2) {
		r := w.send(http.MethodPost, "/chat/users/alice/leave", body)
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/leave", body)
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/ping", "", bearer(token("alice")))

	office := from("203.0.113.7")
	for range limit.Burst(1) / 2 { // each counts as a request of somebody unknown, and as a failure
		w.fails(codeUnauthenticated, http.MethodPost, "/chat/users/alice/leave", `{"token":"wrong"}`, office)
	}
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/leave", `{"token":"wrong"}`, office)
}
