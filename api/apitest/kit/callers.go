package kit

import (
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
)

// tokenSecret signs the tokens of these tests.
var tokenSecret = []byte(strings.Repeat("secret..", 4))

// Token returns a JWT of a user that expires at an instant, for some namespaces.
func Token(t testing.TB, user string, until lastseen.Instant, namespaces ...string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "issuer", "aud": "lastseen", "sub": user, "exp": int64(until / 1000),
		"namespaces": append([]string{}, namespaces...),
	}).SignedString(tokenSecret)
	require.NoError(t, err)
	return text
}

// Tokens returns how the tokens of [Token] are verified.
func Tokens() *auth.Tokens {
	return &auth.Tokens{Secret: tokenSecret, Issuer: "issuer", Audience: "lastseen"}
}

// NewAuthenticator returns an authenticator whose time is Now.
func NewAuthenticator(t *testing.T, c auth.Config) *auth.Authenticator {
	t.Helper()
	authenticator, err := auth.New(c, auth.Options{Now: func() time.Time { return time.UnixMilli(int64(Now)) }})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator
}

// NewKey returns a key for the namespaces of a pattern, and its text.
func NewKey(name string, namespaces auth.Pattern, scopes ...auth.Scope) (key auth.Key, text string) {
	text, hash := auth.NewKey()
	return auth.Key{Name: name, Hash: hash, Scopes: scopes, Namespaces: []auth.Pattern{namespaces}}, text
}

// Callers returns an authenticator, and Authorization headers of all kinds of callers by name: none, invalid ones,
// services with each of the scopes, and users.
func Callers(t *testing.T) (*auth.Authenticator, map[string]string) {
	t.Helper()
	c := auth.Config{Tokens: Tokens(), AnonymousRead: []auth.Pattern{"public-*"}}
	unknown, _ := auth.NewKey()
	const hour = 3_600_000
	headers := map[string]string{
		"nobody": "", "stranger": "Bearer " + unknown, "garbage": "Bearer x.y.z", "basic": "Basic YTpi",
		"empty":            "Bearer",
		"alice":            "Bearer " + Token(t, "alice", Now+hour, "chat", "chadow"),
		"alice, expired":   "Bearer " + Token(t, "alice", Now-hour, "chat"),
		"alice, elsewhere": "Bearer " + Token(t, "alice", Now+hour, "other"),
		"alice, nowhere":   "Bearer " + Token(t, "alice", Now+hour),
		"bob":              "Bearer " + Token(t, "bob", Now+hour, "chat", "chadow"),
	}
	for name, scopes := range map[string][]auth.Scope{
		"ping": {auth.Ping}, "read": {auth.Read}, "admin": {auth.Admin}, "all": auth.Scopes(),
		"all, elsewhere": auth.Scopes(),
	} {
		key, text := NewKey(name, "cha*", scopes...)
		switch name {
		case "all":
			key.Namespaces = []auth.Pattern{"*"}
		case "all, elsewhere":
			key.Namespaces = []auth.Pattern{"other", "chats*"}
		}
		c.Keys = append(c.Keys, key)
		headers[name] = "Bearer " + text
	}
	return NewAuthenticator(t, c), headers
}

// HeadersOf returns the header with credentials of [Callers], if there are any.
func HeadersOf(credentials string) []string {
	if credentials == "" {
		return nil
	}
	return []string{BearerOf(credentials)}
}

// BearerOf returns the header with credentials of [Callers].
func BearerOf(credentials string) string { return "Authorization: " + credentials }

// Bearer returns the header with a token or the text of a key.
func Bearer(credentials string) string { return "Authorization: Bearer " + credentials }

// WithoutKeys returns an authenticator whose issuer is unreachable.
func WithoutKeys(t *testing.T) *auth.Authenticator {
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

// RSToken looks like a token of an issuer that publishes its keys.
const RSToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.AAAA"

// Signed returns an authenticator whose time is the machine's, and a function that makes tokens for it.
func Signed(
	t *testing.T, changes ...func(*auth.Config),
) (*auth.Authenticator, func(user string, d time.Duration) string) {
	t.Helper()
	c := auth.Config{Tokens: Tokens()}
	c.Tokens.Namespaces = []auth.Pattern{"*"}
	for _, change := range changes {
		change(&c)
	}
	authenticator, err := auth.New(c, auth.Options{})
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
