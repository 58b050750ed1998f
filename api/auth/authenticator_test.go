package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// secret is what tokens are signed with by HS256 in tests.
var secret = []byte(strings.Repeat("s3cret! ", 4))

// now is when the tests happen.
var now = time.Unix(1_795_176_000, 0)

// keyPairs are private keys of all kinds that are taken, by algorithm. Making one of RSA takes a while.
var keyPairs = sync.OnceValue(func() map[string]crypto.Signer {
	r, err1 := rsa.GenerateKey(rand.Reader, 2048)
	e, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, ed, err3 := ed25519.GenerateKey(rand.Reader)
	if err1 != nil || err2 != nil || err3 != nil {
		panic("no keys")
	}
	return map[string]crypto.Signer{"RS256": r, "ES256": e, "EdDSA": ed}
})

// claimsWith returns the claims of a good token, with some in their place; nil leaves one out.
func claimsWith(changes map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": "https://issuer.example", "aud": "lastseen", "sub": "alice",
		"exp": now.Add(time.Hour).Unix(), "namespaces": []string{"chat", "room-*"},
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// sign makes a token.
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

// good is a token as it should be, but for some claims.
func good(t testing.TB, changes map[string]any) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, secret, claimsWith(changes))
}

func tokens() *Tokens {
	return &Tokens{Secret: secret, Issuer: "https://issuer.example", Audience: "lastseen", Leeway: 30 * time.Second}
}

// newGuard makes a guard at the time of the tests.
func newGuard(t testing.TB, c Config) *Authenticator {
	t.Helper()
	g, err := New(c, Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func (a *Authenticator) bearer(t testing.TB, credentials string) (*Caller, error) {
	t.Helper()
	return a.Authenticate(t.Context(), []string{"Bearer " + credentials})
}

func TestOpenServer(t *testing.T) {
	open, err := New(Config{}, Options{})
	require.NoError(t, err)
	for _, g := range []*Authenticator{nil, open} {
		require.True(t, g.Open())
		require.False(t, g.TakesTokens())
		caller, err := g.Authenticate(t.Context(), []string{"Basic nonsense"})
		require.NoError(t, err)
		for _, scope := range Scopes() {
			require.True(t, caller.Can(scope, "chat"))
			require.True(t, caller.CanSomewhere(scope))
		}
		require.True(t, caller.CanPing("alice"))
		require.True(t, caller.CanPingMany())
		require.False(t, caller.IsAnonymous())
		require.False(t, caller.IsBlind("chat"))
		g.Close()
	}
}

func TestIdentifyKey(t *testing.T) {
	key, hash := NewKey()
	other, otherHash := NewKey()
	g := newGuard(t, Config{Keys: []Key{
		{Name: "backend", Hash: hash, Scopes: []Scope{Ping}, Namespaces: []Pattern{"chat-*"}},
		{Name: "dashboard", Hash: otherHash, Scopes: []Scope{Read}, Namespaces: []Pattern{"*"}},
	}})
	for _, header := range []string{"Bearer " + key, "bearer " + key, "BEARER   " + key} {
		caller, err := g.Authenticate(t.Context(), []string{header})
		require.NoError(t, err)
		require.Equal(t, ByKey, caller.Kind)
		require.Equal(t, "backend", caller.Name)
		require.True(t, caller.Can(Ping, "chat-1"))
		require.False(t, caller.Can(Ping, "chat"))
		require.False(t, caller.Can(Read, "chat-1"), "no scope contains another")
		require.False(t, caller.Can(Admin, "chat-1"))
		require.True(t, caller.IsBlind("chat-1"))
		require.True(t, caller.CanPing("alice"))
		require.True(t, caller.CanPingMany())
	}
	caller, err := g.bearer(t, other)
	require.NoError(t, err)
	require.Equal(t, "dashboard", caller.Name)
	unknown, _ := NewKey()
	for _, header := range [][]string{
		{""},
		{"Bearer"},
		{"Bearer "},
		{key},
		{"Basic " + key},
		{"Bearer" + key},
		{"Bearer\t" + key},
		{"Bearer " + unknown},
		{"Bearer " + key + " "},
		{"Bearer " + key[:len(key)-1]},
		{"Bearer " + key + "A"},
		{"Bearer " + strings.ToUpper(key)},
		{"Bearer " + FormatKeyHash(hash)},
		{"Bearer " + key, "Bearer " + key},
		{"Bearer ls_" + strings.Repeat("x", 100_000)},
		{"Bearer " + good(t, nil)},
		{"Bearer " + key + ",Bearer " + other},
	} {
		caller, err := g.Authenticate(t.Context(), header)
		require.ErrorIs(t, err, ErrUnauthenticated, "%.80q", header)
		require.Nil(t, caller)
	}
}

func TestAnonymous(t *testing.T) {
	key, hash := NewKey()
	g := newGuard(t, Config{
		Keys:          []Key{{Name: "k", Hash: hash, Scopes: []Scope{Ping}, Namespaces: []Pattern{"chat"}}},
		AnonymousRead: []Pattern{"public-*"},
	})
	caller, err := g.Authenticate(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, caller.IsAnonymous())
	require.True(t, caller.Can(Read, "public-1"))
	require.True(t, caller.CanSomewhere(Read))
	require.False(t, caller.Can(Read, "chat"))
	require.False(t, caller.Can(Ping, "public-1"))
	require.False(t, caller.CanSomewhere(Ping))

	caller, err = g.bearer(t, key)
	require.NoError(t, err)
	require.True(t, caller.Can(Read, "public-1"), "what anybody may do, somebody may")
	require.False(t, caller.IsBlind("public-1"))
	require.True(t, caller.IsBlind("chat"))
}

func TestConfigIsChecked(t *testing.T) {
	key := func(change func(*Key)) Config {
		k := Key{Name: "k", Hash: sha256.Sum256([]byte("k")), Scopes: []Scope{Read}, Namespaces: []Pattern{"*"}}
		change(&k)
		return Config{Keys: []Key{k}}
	}
	token := func(change func(*Tokens)) Config {
		c := Config{Tokens: tokens()}
		change(c.Tokens)
		return c
	}
	twice := key(func(*Key) {})
	twice.Keys = append(twice.Keys, twice.Keys[0])
	sameHash := key(func(*Key) {})
	sameHash.Keys = append(sameHash.Keys, sameHash.Keys[0])
	sameHash.Keys[1].Name = "other"
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	for part, c := range map[string]Config{
		"name": key(func(k *Key) { k.Name = "" }), "no hash": key(func(k *Key) { k.Hash = [32]byte{} }),
		"no scopes": key(func(k *Key) { k.Scopes = nil }), "no namespaces": key(func(k *Key) { k.Namespaces = nil }),
		"unknown scope": key(func(k *Key) { k.Scopes = []Scope{"write"} }), "duplicate name": twice,
		"name or hash":    sameHash,
		"exactly one":     token(func(k *Tokens) { k.Secret = nil }),
		"set exactly one": token(func(k *Tokens) { k.JWKS = "https://a.example" }),
		"32":              token(func(k *Tokens) { k.Secret = secret[:31] }),
		"0 bytes":         token(func(k *Tokens) { k.Secret = []byte{} }),
		"issuer":          token(func(k *Tokens) { k.Issuer = "" }), "audience": token(func(k *Tokens) { k.Audience = "" }),
		"leeway":    token(func(k *Tokens) { k.Leeway = time.Hour }),
		"leeway is": token(func(k *Tokens) { k.Leeway = -1 }),
		"1024":      token(func(k *Tokens) { k.Secret, k.Keys = nil, []crypto.PublicKey{weak.Public()} }),
		"URL":       token(func(k *Tokens) { k.Secret, k.JWKS = nil, "issuer.example/keys" }),
		"http":      token(func(k *Tokens) { k.Secret, k.JWKS = nil, "file:///etc/keys" }),
	} {
		_, err := New(c, Options{})
		require.ErrorContains(t, err, part)
		require.NotContains(t, err.Error(), string(secret[:8]))
	}
}

// pemOf encodes public keys of all kinds.
func pemOf(t testing.TB, keys ...crypto.Signer) []byte {
	t.Helper()
	var content []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return content
}

func TestParsePublicKeys(t *testing.T) {
	pairs := keyPairs()
	all := slices.Collect(maps.Values(pairs))
	keys, err := ParsePublicKeys(append([]byte("the keys of our issuer\n"), pemOf(t, all...)...))
	require.NoError(t, err)
	require.Len(t, keys, 3)

	rsaKey := pairs["RS256"].(*rsa.PrivateKey)
	pkcs1 := pem.EncodeToMemory(&pem.Block{
		Type:  "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey),
	})
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, rsaKey.Public(), rsaKey)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for _, content := range [][]byte{pkcs1, certificate} {
		keys, err := ParsePublicKeys(content)
		require.NoError(t, err)
		require.Equal(t, []crypto.PublicKey{rsaKey.Public()}, keys)
	}

	private, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	long, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxRSABits), E: 65537})
	require.NoError(t, err)
	for part, content := range map[string][]byte{
		"too long":             pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: long}),
		"no public key in PEM": []byte("ssh-rsa AAAA"), "there is no": nil,
		"only public keys": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"P-256":            pemOf(t, p384), "1024 bits": pemOf(t, weak),
		"key 2":          append(pemOf(t, all[0]), pemOf(t, weak)...),
		"cannot be read": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
	} {
		_, err := ParsePublicKeys(content)
		require.ErrorContains(t, err, part)
	}
}
