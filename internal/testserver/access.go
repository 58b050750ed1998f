package testserver

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
)

// Secret is a secret that signs JWTs.
const Secret = "geheim geheim geheim geheim 0123"

// Issuer are the settings of the issuer and the audience of JWTs.
const Issuer = "jwt-issuer: https://id.example.com\njwt-audience: lastseen\n"

// PublicPEM returns a public key as a file holds it.
func PublicPEM(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// HashOf returns the hash of a key as a file holds it.
func HashOf(key string) string { return auth.FormatKeyHash(sha256.Sum256([]byte(key))) }

// Claims are those of a good token for alice, with some changed; nil takes one away.
func Claims(changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": "https://id.example.com", "aud": "lastseen", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(),
		"namespaces": "mine-1",
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// Token signs claims under a header, which need not be true.
func Token(t testing.TB, method jwt.SigningMethod, key any, header, claims map[string]any) string {
	t.Helper()
	signed := Segment(t, header) + "." + Segment(t, claims)
	signature, err := method.Sign(signed, key)
	require.NoError(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// UserToken returns a token that [Secret] signs. Its claims are those of [Claims].
func UserToken(t testing.TB, changes map[string]any) string {
	t.Helper()
	return Token(t, jwt.SigningMethodHS256, []byte(Secret), map[string]any{"alg": "HS256"}, Claims(changes))
}

// Segment returns a part of a JWT: JSON in base64.
func Segment(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(raw)
}
