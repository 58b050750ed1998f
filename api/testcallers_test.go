package api

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
)

// tokenSecret signs the tokens of these tests.
var tokenSecret = []byte(strings.Repeat("secret..", 4))

// token returns a JWT of a user that expires at an instant, for some namespaces.
func token(t testing.TB, user string, until lastseen.Instant, namespaces ...string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "issuer", "aud": "lastseen", "sub": user, "exp": int64(until / 1000),
		"namespaces": append([]string{}, namespaces...),
	}).SignedString(tokenSecret)
	require.NoError(t, err)
	return text
}

func tokens() *auth.Tokens {
	return &auth.Tokens{Secret: tokenSecret, Issuer: "issuer", Audience: "lastseen"}
}

// newAuthenticator returns an authenticator whose time is testNow.
func newAuthenticator(t *testing.T, c auth.Config) *auth.Authenticator {
	t.Helper()
	authenticator, err := auth.New(c, auth.Options{Now: func() time.Time { return time.UnixMilli(int64(testNow)) }})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator
}

// callers returns an authenticator, and Authorization headers of all kinds of callers by name: none, invalid ones,
// services with each of the scopes, and users.
func callers(t *testing.T) (*auth.Authenticator, map[string]string) {
	t.Helper()
	c := auth.Config{Tokens: tokens(), AnonymousRead: []auth.Pattern{"public-*"}}
	unknown, _ := auth.NewKey()
	const hour = 3_600_000
	headers := map[string]string{
		"nobody": "", "stranger": "Bearer " + unknown, "garbage": "Bearer x.y.z", "basic": "Basic YTpi",
		"empty":            "Bearer",
		"alice":            "Bearer " + token(t, "alice", testNow+hour, "chat", "chadow"),
		"alice, expired":   "Bearer " + token(t, "alice", testNow-hour, "chat"),
		"alice, elsewhere": "Bearer " + token(t, "alice", testNow+hour, "other"),
		"alice, nowhere":   "Bearer " + token(t, "alice", testNow+hour),
		"bob":              "Bearer " + token(t, "bob", testNow+hour, "chat", "chadow"),
	}
	for name, key := range map[string]auth.Key{
		"ping": {Scopes: []auth.Scope{auth.Ping}}, "read": {Scopes: []auth.Scope{auth.Read}},
		"admin":          {Scopes: []auth.Scope{auth.Admin}},
		"all":            {Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"*"}},
		"all, elsewhere": {Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"other", "chats*"}},
	} {
		text, hash := auth.NewKey()
		key.Name, key.Hash = name, hash
		if key.Namespaces == nil {
			key.Namespaces = []auth.Pattern{"cha*"}
		}
		c.Keys = append(c.Keys, key)
		headers[name] = "Bearer " + text
	}
	return newAuthenticator(t, c), headers
}

func headersOf(credentials string) []string {
	if credentials == "" {
		return nil
	}
	return []string{"Authorization: " + credentials}
}

// twoKeys configures two keys and JWTs that the returned function makes.
func twoKeys(t *testing.T) (guarded func(*Config), one, two string, token func(user string) string) {
	t.Helper()
	oneKey, oneHash := auth.NewKey()
	twoKey, twoHash := auth.NewKey()
	scopes, everywhere, secret := auth.Scopes(), []auth.Pattern{"*"}, bytes.Repeat([]byte("s"), 32)
	authenticator, err := auth.New(auth.Config{
		Keys: []auth.Key{
			{Name: "one", Hash: oneHash, Scopes: scopes, Namespaces: everywhere},
			{Name: "two", Hash: twoHash, Scopes: scopes, Namespaces: everywhere},
		},
		Tokens:        &auth.Tokens{Secret: secret, Issuer: "issuer", Audience: "lastseen", Namespaces: everywhere},
		AnonymousRead: everywhere,
	}, auth.Options{})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
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
		c.Auth = authenticator
		c.Limits = limit.Limits{Caller: 1, User: 2}
	}, oneKey, twoKey, token
}

func bearer(credentials string) string { return "Authorization: Bearer " + credentials }

// withoutKeys returns an authenticator whose issuer is unreachable.
func withoutKeys(t *testing.T) *auth.Authenticator {
	t.Helper()
	issuer := &auth.Tokens{JWKS: "https://issuer.example/keys", Issuer: "issuer", Audience: "lastseen"}
	authenticator, err := auth.New(auth.Config{Tokens: issuer},
		auth.Options{Transport: unreachable{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator
}

// unreachable is the transport of a server without a network.
type unreachable struct{}

// RoundTrip fails; see [http.RoundTripper].
func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

// rsToken looks like a token of an issuer that publishes its keys.
const rsToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.AAAA"
