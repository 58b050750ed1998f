package main

import (
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
)

// writeFile writes a file of a given name and returns its path.
func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

const (
	secret = "geheim geheim geheim geheim 0123"
	names  = "jwt-issuer: https://id.example.com\njwt-audience: lastseen\n"
)

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
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

	bKey := strings.ReplaceAll(strings.ReplaceAll(aKey, hashOf("ls_a"), hashOf("ls_b")), "scopes: [read]",
		"scopes: [read, ping]")
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
	require.Contains(t, r.write("green: 50s"),
		`problem="no keys and no JWTs are left, so anyone would have full access: set auth: none to allow it"`)
	require.False(t, r.authenticator.Open())
	require.Contains(t, r.write("auth: none"), "keys.a removed")
	require.True(t, r.authenticator.Open())
	require.Contains(t, r.write(aKey), "keys.a added")
	require.False(t, r.authenticator.Open())
}

// sign returns a JWT for alice.
func sign(t *testing.T, secret string) string {
	t.Helper()
	return token(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"alg": "HS256"},
		claims(map[string]any{"namespaces": nil}))
}

// TestAccessOfTheProcess: what a server started with keys does, and says.
func TestAccessOfTheProcess(t *testing.T) {
	file := writeConfig(t, aKey)
	s := start(t, "--config", file, "--listen", ":0")
	ask := func(key string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/namespaces/a/users/alice",
			nil)
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
	require.NoError(t, os.WriteFile(file, []byte("log-level: debug\n"+strings.ReplaceAll(aKey, hashOf("ls_a"),
		hashOf("ls_b"))), 0o600))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return ask("ls_a") == http.StatusUnauthorized }, 30*time.Second,
		time.Millisecond)
	require.Equal(t, http.StatusOK, ask("ls_b"))
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "level=DEBUG") }, 30*time.Second,
		time.Millisecond, "why ls_a is refused now")
	require.NotContains(t, s.log.String(), "ls_a")
	require.Zero(t, s.terminate(t))
}

func TestSaysWhomItIsFor(t *testing.T) {
	_, stdout, _ := execute(t, "--listen", "127.0.0.1:0")
	require.Contains(t, stdout, "\n  for   anyone, with full access\n")
	_, stdout, _ = execute(t, "--listen", "127.0.0.1:0", "--config",
		writeConfig(t, aKey+names+"jwt-jwks-url: http://127.0.0.1:1\nanonymous-read: a, b"))
	require.Contains(t, stdout,
		"\n  for   callers with an API key (1), users with a JWT of https://id.example.com, anyone to read a, b\n")

	code, stdout, stderr := execute(t, "--listen", ":0")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "listen is :0 (flag --listen): other machines can reach this address")
	code, _, stderr = execute(t, "--listen", ":0", "--auth", "none")
	require.Zero(t, code, stderr)
}
