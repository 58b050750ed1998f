package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// privatePEM writes a key as a file holds it.
func privatePEM(t testing.TB, kind string, der []byte, err error) []byte {
	t.Helper()
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// TestSign checks that a configuration accepts the tokens that it signs, for each kind of key.
func TestSign(t *testing.T) {
	ways := map[string]struct {
		tokens *Tokens
		key    crypto.Signer
	}{"HS256": {tokens(), nil}}
	for algorithm, pair := range keyPairs() {
		der, err := x509.MarshalPKCS8PrivateKey(pair)
		parsed, parseErr := ParsePrivateKey(privatePEM(t, "PRIVATE KEY", der, err))
		require.NoError(t, parseErr)
		own := tokens()
		own.Secret, own.Keys = nil, []crypto.PublicKey{keyPairs()["EdDSA"].Public(), pair.Public()}
		own.UserClaim, own.NamespacesClaim = "uid", "rooms"
		ways[algorithm] = struct {
			tokens *Tokens
			key    crypto.Signer
		}{own, parsed}
	}
	for algorithm, way := range ways {
		token, err := way.tokens.Sign(way.key, Grant{
			User: "alice", Namespaces: []Pattern{"chat", "room-*"},
			Issued: now, Expires: now.Add(time.Hour),
		})
		require.NoError(t, err, algorithm)
		caller := newAuthenticator(t, Config{Tokens: way.tokens}).accepts(t, token)
		require.Equal(t, "alice", caller.Name)
		require.Equal(t, []Pattern{"chat", "room-*"}, caller.namespaces)
		late, err := New(Config{Tokens: way.tokens},
			Options{Now: func() time.Time { return now.Add(time.Hour + time.Minute) }})
		require.NoError(t, err)
		_, err = late.bearer(t, token)
		require.ErrorIs(t, err, ErrUnauthenticated, "it expires")
	}
	configured := tokens()
	configured.Namespaces = []Pattern{"lobby"}
	token, err := configured.Sign(nil, Grant{User: "alice", Issued: now, Expires: now.Add(time.Hour)})
	require.NoError(t, err)
	caller := newAuthenticator(t, Config{Tokens: configured}).accepts(t, token)
	require.Equal(t, []Pattern{"lobby"}, caller.namespaces, "without namespaces those that are configured")
}

// TestSignRefusesInvalidGrants checks that a key that the server does not know signs no token.
func TestSignRefusesInvalidGrants(t *testing.T) {
	public := tokens()
	public.Secret, public.Keys = nil, []crypto.PublicKey{keyPairs()["ES256"].Public()}
	set := publishedTokens()
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	for _, c := range []struct {
		tokens *Tokens
		key    crypto.Signer
		want   string
	}{
		{tokens(), keyPairs()["ES256"], "a secret"},
		{public, nil, "private key"},
		{set, nil, "private key"},
		{public, keyPairs()["EdDSA"], "none of the public keys"},
		{public, keyPairs()["RS256"], "none of the public keys"},
		{set, small, "P-224"},
	} {
		_, err := c.tokens.Sign(c.key, Grant{User: "alice", Issued: now, Expires: now.Add(time.Hour)})
		require.ErrorContains(t, err, c.want)
	}
	_, err = set.Sign(keyPairs()["ES256"], Grant{User: "alice", Issued: now, Expires: now.Add(time.Hour)})
	require.NoError(t, err, "nobody can tell without the set")
}

func TestParsePrivateKey(t *testing.T) {
	r, e, ed := keyPairs()["RS256"].(*rsa.PrivateKey), keyPairs()["ES256"].(*ecdsa.PrivateKey), keyPairs()["EdDSA"].(ed25519.PrivateKey)
	ecDER, ecErr := x509.MarshalECPrivateKey(e)
	edDER, edErr := x509.MarshalPKCS8PrivateKey(ed)
	parameters := string(privatePEM(t, "EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}, nil))
	for content, want := range map[string]crypto.Signer{
		string(privatePEM(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r), nil)): r,
		// as openssl ecparam writes it
		parameters + string(privatePEM(t, "EC PRIVATE KEY", ecDER, ecErr)):                   e,
		"Bag Attributes\n" + string(privatePEM(t, "PRIVATE KEY", edDER, edErr)) + "\nmore\n": ed,
	} {
		key, err := ParsePrivateKey([]byte(content))
		require.NoError(t, err)
		require.Equal(t, want.Public(), key.Public())
	}
	publicDER, publicErr := x509.MarshalPKIXPublicKey(e.Public())
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	encrypted := pem.EncodeToMemory(&pem.Block{
		Type:    "RSA PRIVATE KEY",
		Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("geheim"),
	})
	for content, want := range map[string]string{
		"":       "no private key in PEM",
		"geheim": "no private key in PEM",
		string(privatePEM(t, "PUBLIC KEY", publicDER, publicErr)):             "holds a public key",
		string(privatePEM(t, "PRIVATE KEY", []byte("geheim"), nil)):           "cannot be read",
		string(privatePEM(t, "EC PRIVATE KEY", []byte("geheim"), nil)):        "cannot be read",
		string(privatePEM(t, "ENCRYPTED PRIVATE KEY", []byte("geheim"), nil)): "is encrypted",
		string(encrypted): "is encrypted",
		string(privatePEM(t, "OPENSSH PRIVATE KEY", []byte("geheim"), nil)):               "OPENSSH PRIVATE KEY",
		string(privatePEM(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(short), nil)): "too short",
		parameters: "no private key in PEM",
		"-----BEGIN " + strings.Repeat("geheim", 50) + "-----\n-----END " + strings.Repeat("geheim", 50) +
			"-----\n": "not a private key",
	} {
		_, err := ParsePrivateKey([]byte(content))
		require.ErrorContains(t, err, want)
	}
}

// FuzzPrivateKey checks that a file is refused or contains a key that signs.
func FuzzPrivateKey(f *testing.F) {
	for _, pair := range keyPairs() {
		der, err := x509.MarshalPKCS8PrivateKey(pair)
		f.Add(privatePEM(f, "PRIVATE KEY", der, err))
	}
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		key, err := ParsePrivateKey(content)
		if err != nil {
			return
		}
		_, err = algorithmOf(key.Public())
		require.NoError(t, err)
	})
}
