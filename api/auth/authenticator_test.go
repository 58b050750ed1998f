package auth

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOpenServer(t *testing.T) {
	open, err := New(Config{}, Options{})
	require.NoError(t, err)
	for _, a := range []*Authenticator{nil, open} {
		require.True(t, a.Open())
		require.False(t, a.TakesTokens())
		caller, err := a.Authenticate(t.Context(), []string{"Basic nonsense"})
		require.NoError(t, err)
		for _, scope := range Scopes() {
			require.True(t, caller.Can(scope, "chat"))
			require.True(t, caller.CanSomewhere(scope))
		}
		require.True(t, caller.CanPing("alice"))
		require.True(t, caller.CanPingMany())
		require.False(t, caller.IsAnonymous())
		require.False(t, caller.IsBlind("chat"))
		a.Close()
	}
}

func TestAuthenticateKey(t *testing.T) {
	key, hash := NewKey()
	other, otherHash := NewKey()
	a := newAuthenticator(t, Config{Keys: []Key{
		{Name: "backend", Hash: hash, Scopes: []Scope{Ping}, Namespaces: []Pattern{"chat-*"}},
		{Name: "dashboard", Hash: otherHash, Scopes: []Scope{Read}, Namespaces: []Pattern{"*"}},
	}})
	for _, header := range []string{"Bearer " + key, "bearer " + key, "BEARER   " + key} {
		caller, err := a.Authenticate(t.Context(), []string{header})
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
	caller := a.accepts(t, other)
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
		{"Bearer " + validToken(t, nil)},
		{"Bearer " + key + ",Bearer " + other},
	} {
		caller, err := a.Authenticate(t.Context(), header)
		require.ErrorIs(t, err, ErrUnauthenticated, "%.80q", header)
		require.Nil(t, caller)
	}
}

func TestAnonymous(t *testing.T) {
	key, hash := NewKey()
	a := newAuthenticator(t, Config{
		Keys:          []Key{{Name: "k", Hash: hash, Scopes: []Scope{Ping}, Namespaces: []Pattern{"chat"}}},
		AnonymousRead: []Pattern{"public-*"},
	})
	caller, err := a.Authenticate(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, caller.IsAnonymous())
	require.True(t, caller.Can(Read, "public-1"))
	require.True(t, caller.CanSomewhere(Read))
	require.False(t, caller.Can(Read, "chat"))
	require.False(t, caller.Can(Ping, "public-1"))
	require.False(t, caller.CanSomewhere(Ping))

	caller = a.accepts(t, key)
	require.True(t, caller.Can(Read, "public-1"), "what anybody may do, somebody may")
	require.True(t, caller.IsBlind("public-1"), "what anybody may read does not include what users hide")
	require.True(t, caller.IsBlind("chat"))
}

func TestTokensAreChecked(t *testing.T) {
	token := func(change func(*Tokens)) Config {
		c := Config{Tokens: tokens()}
		change(c.Tokens)
		return c
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	for part, c := range map[string]Config{
		"exactly one":     token(func(k *Tokens) { k.Secret = nil }),
		"set exactly one": token(func(k *Tokens) { k.JWKS = "https://a.example" }),
		"32":              token(func(k *Tokens) { k.Secret = secret[:31] }),
		"0 bytes":         token(func(k *Tokens) { k.Secret = []byte{} }),
		"issuer":          token(func(k *Tokens) { k.Issuer = "" }),
		"audience":        token(func(k *Tokens) { k.Audience = "" }),
		"leeway":          token(func(k *Tokens) { k.Leeway = time.Hour }),
		"leeway is":       token(func(k *Tokens) { k.Leeway = -1 }),
		"1024":            token(func(k *Tokens) { k.Secret, k.Keys = nil, []crypto.PublicKey{weak.Public()} }),
		"URL":             token(func(k *Tokens) { k.Secret, k.JWKS = nil, "issuer.example/keys" }),
		"http":            token(func(k *Tokens) { k.Secret, k.JWKS = nil, "file:///etc/keys" }),
	} {
		_, err := New(c, Options{})
		require.ErrorContains(t, err, part)
		require.NotContains(t, err.Error(), string(secret[:8]))
	}
}
