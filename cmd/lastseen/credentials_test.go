package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
)

// writeFile writes a file of a given name and returns its path.
func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

// aKey is what a file says about a key.
var aKey = "keys: {a: {hash: '" + hashOf("ls_a") + "', scopes: [read], namespaces: [a]}}\n"

const (
	secret = "geheim geheim geheim geheim 0123"
	names  = "jwt-issuer: https://id.example.com\njwt-audience: lastseen\n"
)

func TestTokensOfASecret(t *testing.T) {
	for content, want := range map[string]string{
		secret:                            secret,
		secret + "\n":                     secret,
		secret + "\r\n":                   secret,
		secret[:31] + "\n":                "", // too short
		strings.Repeat("\xff\n", 32):      strings.Repeat("\xff\n", 32),
		strings.Repeat("\x01", 31) + "\n": strings.Repeat("\x01", 31) + "\n",
	} {
		c, err := loadText(t, names+"jwt-secret-file: "+writeFile(t, "secret", []byte(content)))
		if want == "" {
			require.ErrorContains(t, err, "the secret has 31 bytes: use at least 32")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, &auth.Tokens{
			Secret: []byte(want), Issuer: "https://id.example.com", Audience: "lastseen", Leeway: 30 * time.Second,
			UserClaim: "sub", NamespacesClaim: "namespaces",
		}, c.access.Tokens)
	}
}

func TestTokensOfPublicKeys(t *testing.T) {
	first, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	second, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	content := publicPEM(t, first) + publicPEM(t, &second.PublicKey)
	c, err := loadText(t, names+"jwt-namespaces: [chat-*, lobby]\njwt-leeway: 0\njwt-keys-file: "+writeFile(t, "keys", []byte(content)))
	require.NoError(t, err)
	require.Len(t, c.access.Tokens.Keys, 2)
	require.True(t, first.Equal(c.access.Tokens.Keys[0]))
	require.Equal(t, []auth.Pattern{"chat-*", "lobby"}, c.access.Tokens.Namespaces)
	require.Zero(t, c.access.Tokens.Leeway)
	requireRoundTrip(t, c)
}

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestTokensOfAKeySet(t *testing.T) {
	c, err := loadText(t, names+"jwt-jwks-url: http://127.0.0.1:1/jwks\njwt-user-claim: uid\njwt-namespaces-claim: rooms\nanonymous-read: 'public-*'")
	require.NoError(t, err)
	require.Equal(t, auth.Config{
		AnonymousRead: []auth.Pattern{"public-*"},
		Tokens: &auth.Tokens{
			JWKS: "http://127.0.0.1:1/jwks", Issuer: "https://id.example.com", Audience: "lastseen", Leeway: 30 * time.Second,
			UserClaim: "uid", NamespacesClaim: "rooms",
		},
	}, c.access)
	require.Empty(t, c.warnings)
	require.Equal(t, "users with a JWT of https://id.example.com, anyone to read public-*", c.callers())
}

// TestWarnsOfKeySetsThatAnyoneCanReplace on their way.
func TestWarnsOfKeySetsThatAnyoneCanReplace(t *testing.T) {
	for url, warned := range map[string]bool{
		"http://id.example.com/jwks": true, "http://10.0.0.1:80/jwks": true,
		"https://id.example.com/jwks": false, "http://localhost:8080/jwks": false, "http://[::1]/jwks": false,
	} {
		c, err := loadText(t, names+"jwt-jwks-url: "+url)
		require.NoError(t, err)
		require.Equal(t, warned, strings.Contains(strings.Join(c.warnings, "\n"), "jwt-jwks-url is "+url), url)
	}
}

func TestWrongCredentials(t *testing.T) {
	dir := t.TempDir()
	good := writeFile(t, "secret", []byte(secret))
	short := writeFile(t, "short", []byte("geheim"))
	public := writeFile(t, "public", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("which is no secret, so nothing may be signed by it")}))
	set := writeFile(t, "set", []byte(` {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "no secret either"}]}`))
	for content, want := range map[string]string{
		"jwt-issuer: x": "jwt-issuer is x (lastseen.yaml:1): this setting requires jwt-secret-file, jwt-keys-file or jwt-jwks-url",
		names + "jwt-secret-file: " + good + "\njwt-jwks-url: http://a": "jwt-secret-file (lastseen.yaml:3) and jwt-jwks-url (lastseen.yaml:4): set only one of them to verify JWTs",
		"jwt-issuer: x\njwt-secret-file: " + good:                       "jwt-secret-file (lastseen.yaml:2): jwt-audience is missing: it is required to reject JWTs issued for other services",
		"jwt-audience: x\njwt-jwks-url: https://a/b":                    "jwt-jwks-url (lastseen.yaml:2): jwt-issuer is missing: it is required to reject JWTs issued for other services",
		names + "jwt-secret-file: " + dir + "/none":                     "lastseen.yaml:3: jwt-secret-file: no such file or directory",
		names + "jwt-secret-file: " + dir:                               "lastseen.yaml:3: jwt-secret-file: is a directory",
		names + "jwt-secret-file: " + short:                             "lastseen.yaml:3: jwt-secret-file: the secret has 6 bytes: use at least 32; openssl rand -base64 48 generates one",
		names + "jwt-secret-file: " + public:                            "lastseen.yaml:3: jwt-secret-file: the file holds PEM: set public keys with jwt-keys-file",
		names + "jwt-secret-file: " + set:                               "lastseen.yaml:3: jwt-secret-file: the file holds JSON: set a key set with jwt-jwks-url",
		names + "jwt-jwks-url: id.example.com/keys":                     "lastseen.yaml:3: jwt-jwks-url: is not an http or https URL; use a URL such as https://id.example.com/jwks.json",
		names + "jwt-jwks-url: 'https://u:geheim@a/'":                   "lastseen.yaml:3: jwt-jwks-url: has a user name or a password: a key set is public and needs neither; use a URL such as https://id.example.com/jwks.json",
		"anonymous-read: '*'":                                           "anonymous-read is * (lastseen.yaml:1): without keys and JWTs anyone has full access; configure API keys or JWTs, or remove this setting",
		"auth: none\n" + aKey:                                           "auth is none (lastseen.yaml:1), but keys.a (lastseen.yaml:2) is configured: with auth none, anyone has full access",
		"auth: none\n" + names + "jwt-secret-file: " + good:             "auth is none (lastseen.yaml:1), but jwt-secret-file (lastseen.yaml:4) is configured: with auth none, anyone has full access",
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

// TestSecretInPlaceOfItsFileIsNotShown, whatever else is wrong.
func TestSecretInPlaceOfItsFileIsNotShown(t *testing.T) {
	t.Setenv("LASTSEEN_JWT_SECRET_FILE", secret)
	for _, args := range [][]string{
		{},
		{"--jwt-issuer", "x"},
		{"--jwt-jwks-url", "http://a"},
		{"--auth", "none"},
		{"--jwt-issuer", "x", "--jwt-audience", "y"},
		{"--listen", ":8080", "--tls-cert", "x"},
	} {
		code, stdout, stderr := execute(t, append([]string{"config"}, args...)...)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, "LASTSEEN_JWT_SECRET_FILE")
		require.NotContains(t, stdout+stderr, "geheim")
	}
}

// TestListensOpenlyOnlyIfToldTo: who may do what decides where it may listen.
func TestListensOpenlyOnlyIfToldTo(t *testing.T) {
	for listen, private := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "'[::1]:80'": true, "localhost:80": true, "'[::ffff:127.0.0.1]:80'": true,
		":80": false, "0.0.0.0:80": false, "'[::]:80'": false, "10.0.0.1:80": false, "example.com:80": false, "localhost.example.com:80": false,
	} {
		listen = "listen: " + listen + "\n"
		require.Equal(t, private, problemsOf(t, listen) == nil, listen)
		require.Empty(t, problemsOf(t, listen+"auth: none"))
		require.Empty(t, problemsOf(t, listen+aKey))
		require.Empty(t, problemsOf(t, listen+names+"jwt-jwks-url: https://a/b"))
	}
}

func TestValues(t *testing.T) {
	for content, want := range map[string]string{
		"log-level: loud":                       `lastseen.yaml:1: log-level: "loud" is not a log level; use debug, info, warn or error`,
		"rate-limit: 0":                         `lastseen.yaml:1: rate-limit: "0" is not valid; use off, or a number from 1 to 1000000`,
		"user-rate-limit: 1.5":                  `lastseen.yaml:1: user-rate-limit: "1.5" is not valid; use off, or a number from 1 to 1000000`,
		"trusted-proxies: 10.0.0.1/8":           `lastseen.yaml:1: trusted-proxies: "10.0.0.1/8" has bits set after its prefix: for the network, write 10.0.0.0/8; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: nginx":                `lastseen.yaml:1: trusted-proxies: "nginx" is not an IP address or network; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: '10.0.0.1,,10.0.0.2'": `lastseen.yaml:1: trusted-proxies: has an empty item; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: []":                   `lastseen.yaml:1: trusted-proxies is empty; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
		"trusted-proxies: {a: b}":               `lastseen.yaml:1: trusted-proxies holds a mapping; use comma-separated IP addresses and networks, such as 10.0.0.0/8`,
	} {
		require.Equal(t, []string{want}, problemsOf(t, content), content)
	}
	c, err := loadText(t, "rate-limit: off\nuser-rate-limit: 7\ntrusted-proxies: [10.0.0.0/8, '::1']\ncors-origins: 'https://a.example.com,http://localhost:3000'\n")
	require.NoError(t, err)
	require.EqualValues(t, 0, c.RateLimit)
	require.EqualValues(t, 7, c.UserRateLimit)
	require.Equal(t, "[10.0.0.0/8 ::1/128]", strings.TrimSpace(fmtAny(c.TrustedProxies)))
	require.Equal(t, origins{"https://a.example.com", "http://localhost:3000"}, c.CORSOrigins)
	requireRoundTrip(t, c)
}

// TestAccessReloads: keys and secrets that are given out or taken back take effect with the next request.
func TestAccessReloads(t *testing.T) {
	one, two := secret+" one", secret+" two"
	secretFile := writeFile(t, "secret", []byte(one))
	tokens := names + "jwt-secret-file: " + secretFile + "\n"
	r := newReloadTest(t, tokens+aKey)
	allowed := func(credentials string) bool {
		_, err := r.authenticator.Authenticate(t.Context(), []string{"Bearer " + credentials})
		return err == nil
	}
	require.True(t, allowed("ls_a"))
	require.True(t, allowed(sign(t, one)))
	guard := r.authenticator
	require.Contains(t, r.write(tokens+aKey+"green: 50s"), `changes="green: 60s → 50s"`)
	require.Same(t, guard, r.authenticator, "nothing about it changed")

	bKey := strings.ReplaceAll(strings.ReplaceAll(aKey, hashOf("ls_a"), hashOf("ls_b")), "scopes: [read]", "scopes: [read, ping]")
	require.NoError(t, os.WriteFile(secretFile, []byte(two), 0o600))
	log := r.write(tokens + bKey + "rate-limit: 7\ncors-origins: https://a.example.com")
	require.Contains(t, log, "green: 50s → 60s")
	require.Contains(t, log, "rate-limit: 5000 → 7")
	require.Contains(t, log, "cors-origins: not set → https://a.example.com")
	require.Contains(t, log, "keys.a.hash: "+hashOf("ls_a")+" → "+hashOf("ls_b"))
	require.Contains(t, log, "keys.a.scopes: [read] → [read, ping]")
	require.Contains(t, log, "jwt-secret-file: the secret changed")
	require.NotContains(t, log, "geheim")
	require.False(t, allowed("ls_a"))
	require.True(t, allowed("ls_b"))
	require.False(t, allowed(sign(t, one)))
	require.True(t, allowed(sign(t, two)))
	require.Equal(t, 7, r.served().Limits.Caller)
	require.Equal(t, []string{"https://a.example.com"}, r.served().CORSOrigins)

	require.Contains(t, r.write(tokens), "keys.a removed")
	require.False(t, allowed("ls_b"))
	require.Contains(t, r.write(tokens+aKey), "keys.a added")
}

// TestReloadOpensNothingUnasked: a file that was cut off must not let everyone in.
func TestReloadOpensNothingUnasked(t *testing.T) {
	r := newReloadTest(t, aKey)
	require.Contains(t, r.write("green: 50s"), `problem="no keys and no JWTs are left, so anyone would have full access: set auth: none to allow it"`)
	require.False(t, r.authenticator.Open())
	require.Contains(t, r.write("auth: none"), "keys.a removed")
	require.True(t, r.authenticator.Open())
	require.Contains(t, r.write(aKey), "keys.a added")
	require.False(t, r.authenticator.Open())
}

// sign returns a JWT for alice.
func sign(t *testing.T, secret string) string {
	t.Helper()
	return token(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"alg": "HS256"}, claims(map[string]any{"namespaces": nil}))
}

// TestAccessOfTheProcess: what a server started with keys does, and says.
func TestAccessOfTheProcess(t *testing.T) {
	file := writeConfig(t, aKey)
	s := start(t, "--config", file, "--listen", ":0")
	ask := func(key string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/namespaces/a/users/alice", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, ask("ls_a"))
	require.Equal(t, http.StatusUnauthorized, ask("ls_b"))
	require.NotContains(t, s.log.String(), "level=DEBUG")
	require.NoError(t, os.WriteFile(file, []byte("log-level: debug\n"+strings.ReplaceAll(aKey, hashOf("ls_a"), hashOf("ls_b"))), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return ask("ls_a") == http.StatusUnauthorized }, 30*time.Second, time.Millisecond)
	require.Equal(t, http.StatusOK, ask("ls_b"))
	require.Contains(t, s.log.String(), "level=DEBUG", "why ls_a is refused now")
	require.NotContains(t, s.log.String(), "ls_a")
	require.Zero(t, s.terminate(t))
}

func TestSaysWhomItIsFor(t *testing.T) {
	_, stdout, _ := execute(t, "--listen", "127.0.0.1:0")
	require.Contains(t, stdout, "\n  for   anyone, with full access\n")
	_, stdout, _ = execute(t, "--listen", "127.0.0.1:0", "--config", writeConfig(t, aKey+names+"jwt-jwks-url: http://127.0.0.1:1\nanonymous-read: a, b"))
	require.Contains(t, stdout, "\n  for   callers with an API key (1), users with a JWT of https://id.example.com, anyone to read a, b\n")

	code, stdout, stderr := execute(t, "--listen", ":0")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "listen is :0 (flag --listen): other machines can reach this address")
	code, _, stderr = execute(t, "--listen", ":0", "--auth", "none")
	require.Zero(t, code, stderr)
}
