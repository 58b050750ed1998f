package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// secret signs the HS256 tokens of the tests.
var secret = []byte(strings.Repeat("s3cret! ", 4))

// now is the time of the tests.
var now = time.Unix(1_795_176_000, 0)

// keyPairs returns private keys of all supported kinds by algorithm. Generating the RSA key takes a while.
var keyPairs = sync.OnceValue(func() map[string]crypto.Signer {
	r, err1 := rsa.GenerateKey(rand.Reader, 2048)
	e, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, ed, err3 := ed25519.GenerateKey(rand.Reader)
	if err1 != nil || err2 != nil || err3 != nil {
		panic("no keys")
	}
	return map[string]crypto.Signer{"RS256": r, "ES256": e, "EdDSA": ed}
})

// claimsWith returns the claims of a valid token with some changed; nil removes a claim.
func claimsWith(changes map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": "https://issuer.example", "aud": "lastseen", "sub": "alice",
		"exp": now.Add(time.Hour).Unix(), "namespaces": []string{"chat", "room-*"},
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, header ...any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i].(string)] = header[i+1]
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

// validToken returns a valid token, except for the changed claims.
func validToken(t testing.TB, changes map[string]any) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, secret, claimsWith(changes))
}

func tokens() *Tokens {
	return &Tokens{Secret: secret, Issuer: "https://issuer.example", Audience: "lastseen", Leeway: 30 * time.Second}
}

// newAuthenticator returns an authenticator whose time is now.
func newAuthenticator(t testing.TB, c Config) *Authenticator {
	t.Helper()
	a, err := New(c, Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// publishedTokens are tokens whose issuer publishes its keys.
func publishedTokens() *Tokens {
	own := tokens()
	own.Secret, own.JWKS = nil, "https://issuer.example/keys"
	return own
}

func (a *Authenticator) bearer(t testing.TB, credentials string) (*Caller, error) {
	t.Helper()
	return a.Authenticate(t.Context(), []string{"Bearer " + credentials})
}

func (a *Authenticator) accepts(t testing.TB, credentials string, why ...any) *Caller {
	t.Helper()
	caller, err := a.bearer(t, credentials)
	require.NoError(t, err, why...)
	return caller
}

func (a *Authenticator) refuses(t testing.TB, credentials string, why ...any) {
	t.Helper()
	_ = a.fails(t, ErrUnauthenticated, credentials, why...)
}

func (a *Authenticator) fails(t testing.TB, want error, credentials string, why ...any) error {
	t.Helper()
	_, err := a.bearer(t, credentials)
	require.ErrorIs(t, err, want, why...)
	return err
}
