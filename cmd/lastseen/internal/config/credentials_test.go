package config

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/internal/testserver"
)

// aKey is what a file says about a key.
var aKey = "keys: {a: {hash: '" + testserver.HashOf("ls_a") + "', scopes: [read], namespaces: [a]}}\n"

const (
	secret = "geheim geheim geheim geheim 0123"
	names  = "jwt-issuer: https://id.example.com\njwt-audience: lastseen\n"
)

func TestTokensOfASecret(t *testing.T) {
	for content, want := range map[string]string{
		secret:                                secret,
		secret + "\n":                         secret,
		secret + "\r\n":                       secret,
		"\ufeff" + secret + "\n":              secret,
		secret[:31] + "\n":                    "", // too short
		strings.Repeat("\xff\n", 32):          strings.Repeat("\xff\n", 32),
		strings.Repeat("\x01", 31) + "\n":     strings.Repeat("\x01", 31) + "\n",
		"\ufeff" + strings.Repeat("\xff", 32): "\ufeff" + strings.Repeat("\xff", 32),
	} {
		c, err := loadText(t, names+"jwt-secret-file: "+testserver.WriteFile(t, "secret", []byte(content)))
		if want == "" {
			require.ErrorContains(t, err, "the secret has 31 bytes: use at least 32")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, &auth.Tokens{
			Secret: []byte(want), Issuer: "https://id.example.com", Audience: "lastseen", Leeway: 30 * time.Second,
			UserClaim: "sub", NamespacesClaim: "namespaces",
		}, c.Access.Tokens)
	}
}

func TestTokensOfPublicKeys(t *testing.T) {
	first, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	second, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	content := "\ufeff" + testserver.PublicPEM(t, first) + testserver.PublicPEM(t, &second.PublicKey)
	c := load(t, names+"jwt-namespaces: [chat-*, lobby]\njwt-leeway: 0\njwt-keys-file: "+
		testserver.WriteFile(t, "keys", []byte(content)))
	require.Len(t, c.Access.Tokens.Keys, 2)
	require.True(t, first.Equal(c.Access.Tokens.Keys[0]))
	require.Equal(t, []auth.Pattern{"chat-*", "lobby"}, c.Access.Tokens.Namespaces)
	require.Zero(t, c.Access.Tokens.Leeway)
	requireRoundTrip(t, c)
}

func TestTokensOfAKeySet(t *testing.T) {
	c := load(t,
		names+"jwt-jwks-url: http://127.0.0.1:1/jwks\njwt-user-claim: uid\njwt-namespaces-claim: rooms\nanonymous-read: 'public-*'")
	require.Equal(t, auth.Config{
		AnonymousRead: []auth.Pattern{"public-*"},
		Tokens: &auth.Tokens{
			JWKS: "http://127.0.0.1:1/jwks", Issuer: "https://id.example.com", Audience: "lastseen",
			Leeway:    30 * time.Second,
			UserClaim: "uid", NamespacesClaim: "rooms",
		},
	}, c.Access)
	require.Empty(t, c.Warnings)
	require.Equal(t, "users with a JWT of https://id.example.com, anyone to read public-*", c.Callers())
}

// TestWarnsOfKeySetsThatAnyoneCanReplace checks the warning of a key set that is fetched without TLS.
func TestWarnsOfKeySetsThatAnyoneCanReplace(t *testing.T) {
	for url, warned := range map[string]bool{
		"http://id.example.com/jwks": true, "http://10.0.0.1:80/jwks": true,
		"https://id.example.com/jwks": false, "http://localhost:8080/jwks": false, "http://[::1]/jwks": false,
	} {
		c := load(t, names+"jwt-jwks-url: "+url)
		require.Equal(t, warned, strings.Contains(strings.Join(c.Warnings, "\n"), "jwt-jwks-url is "+url), url)
	}
}

func TestWrongCredentials(t *testing.T) {
	dir := t.TempDir()
	good := testserver.WriteFile(t, "secret", []byte(secret))
	short := testserver.WriteFile(t, "short", []byte("geheim"))
	public := testserver.WriteFile(t, "public", pem.EncodeToMemory(&pem.Block{
		Type:  "PUBLIC KEY",
		Bytes: []byte("which is no secret, so nothing may be signed by it"),
	}))
	set := testserver.WriteFile(t, "set", []byte(` {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "no secret either"}]}`))
	for content, want := range map[string]string{
		"jwt-issuer: x": "jwt-issuer is x (lastseen.yaml:1): this setting requires jwt-secret-file, jwt-keys-file or jwt-jwks-url",
		names + "jwt-secret-file: " + good +
			"\njwt-jwks-url: http://a": "jwt-secret-file (lastseen.yaml:3) and jwt-jwks-url (lastseen.yaml:4): set only one of them to verify JWTs",
		"jwt-issuer: x\njwt-secret-file: " +
			good: "jwt-secret-file (lastseen.yaml:2): jwt-audience is missing: it is required to reject JWTs issued for other services",
		"jwt-audience: x\njwt-jwks-url: https://a/b": "jwt-jwks-url (lastseen.yaml:2): jwt-issuer is missing: it is required to reject JWTs issued for other services",
		names + "jwt-secret-file: " + dir +
			"/none": "lastseen.yaml:3: jwt-secret-file: no such file or directory",
		names + "jwt-secret-file: " +
			dir: "lastseen.yaml:3: jwt-secret-file: is a directory",
		names + "jwt-secret-file: " +
			short: "lastseen.yaml:3: jwt-secret-file: the secret has 6 bytes: use at least 32; openssl rand -base64 48 generates one",
		names + "jwt-secret-file: " +
			public: "lastseen.yaml:3: jwt-secret-file: the file holds PEM: set public keys with jwt-keys-file",
		names + "jwt-secret-file: " +
			set: "lastseen.yaml:3: jwt-secret-file: the file holds JSON: set a key set with jwt-jwks-url",
		names + "jwt-jwks-url: id.example.com/keys":   "lastseen.yaml:3: jwt-jwks-url: is not an http or https URL without user and password; use a URL such as https://id.example.com/jwks.json",
		names + "jwt-jwks-url: 'https://u:geheim@a/'": "lastseen.yaml:3: jwt-jwks-url: is not an http or https URL without user and password; use a URL such as https://id.example.com/jwks.json",
		"anonymous-read: '*'":                         "anonymous-read is * (lastseen.yaml:1): without keys and JWTs anyone has full access; configure API keys or JWTs, or remove this setting",
		"auth: none\n" +
			aKey: "auth is none (lastseen.yaml:1), but keys or JWTs are configured: with auth none, anyone has full access",
		"auth: none\n" + names + "jwt-secret-file: " +
			good: "auth is none (lastseen.yaml:1), but keys or JWTs are configured: with auth none, anyone has full access",
		"auth: keys": `lastseen.yaml:1: auth: "keys" is not valid; use auto or none`,
		"listen: :8080": "listen is :8080 (lastseen.yaml:1): other machines can reach this address, so it requires keys or JWTs. " +
			"Create a key (lastseen key new), listen on 127.0.0.1, or give full access to anyone (--auth=none, LASTSEEN_AUTH=none)",
	} {
		problems := problemsOf(t, content)
		require.Equal(t, []string{want}, problems, content)
		require.NotContains(t, problems[0], "geheim")
	}
	problems := problemsOf(t, names+"jwt-keys-file: "+short)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "lastseen.yaml:3: jwt-keys-file: ")
	require.NotContains(t, problems[0], "geheim")
}

// TestOpenAddressRequiresCredentials, or auth none.
func TestOpenAddressRequiresCredentials(t *testing.T) {
	for listen, private := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "'[::1]:80'": true, "localhost:80": true,
		"'[::ffff:127.0.0.1]:80'": true,
		":80":                     false, "0.0.0.0:80": false, "'[::]:80'": false, "10.0.0.1:80": false,
		"example.com:80":           false,
		"localhost.example.com:80": false,
	} {
		listen = "listen: " + listen + "\n"
		require.Equal(t, private, problemsOf(t, listen) == nil, listen)
		require.Empty(t, problemsOf(t, listen+"auth: none"))
		require.Empty(t, problemsOf(t, listen+aKey))
		require.Empty(t, problemsOf(t, listen+names+"jwt-jwks-url: https://a/b"))
	}
}
