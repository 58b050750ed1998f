package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// newToken runs lastseen token new, and returns what it prints.
func newToken(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := execute(t, append([]string{"token", "new"}, args...)...)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	token, ended := strings.CutSuffix(stdout, "\n")
	require.True(t, ended)
	require.Regexp(t, `^[\w-]+\.[\w-]+\.[\w-]+$`, token, "the token and nothing else")
	return token
}

// privateKeyFiles returns files of private keys of all kinds, and one of their public keys.
func privateKeyFiles(t *testing.T) (private map[string]string, public string) {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	private, all := map[string]string{}, ""
	for algorithm, key := range map[string]crypto.Signer{"RS256": r, "ES256": e, "EdDSA": ed} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		private[algorithm] = writeFile(t, algorithm, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		all += publicPEM(t, key.Public())
	}
	return private, writeFile(t, "public", []byte(all))
}

// TestTokenNew: what it prints is taken by a server with the same configuration, for what it was made for and nothing
// else.
func TestTokenNew(t *testing.T) {
	private, public := privateKeyFiles(t)
	ways := map[string][]string{"HS256": {"jwt-secret-file: " + writeFile(t, "secret", []byte(secret+"\n"))}}
	for algorithm, file := range private {
		ways[algorithm] = []string{"jwt-keys-file: " + public, "--jwt-private-key", file}
	}
	for algorithm, way := range ways {
		t.Run(algorithm, func(t *testing.T) {
			file := writeConfig(t, names+"jwt-user-claim: uid\njwt-namespaces-claim: rooms\n"+way[0]+"\n")
			s := start(t, "--config", file)
			token := newToken(t, append([]string{
				"--config", file, "--user", "alice", "--namespaces", "chat,room-*",
				"--ttl", "90s",
			}, way[1:]...)...)
			for path, want := range map[string]int{
				"chat/users/alice/ping": 200, "room-7/users/alice/ping": 200, "chat/users/bob/ping": 403,
				"other/users/alice/ping": 403,
			} {
				require.Equal(t, want, s.status(t, http.MethodPost, "/v1/namespaces/"+path, token), path)
			}
			claims := jwt.MapClaims{}
			parsed, _, err := jwt.NewParser().ParseUnverified(token, claims)
			require.NoError(t, err)
			require.Equal(t, algorithm, parsed.Method.Alg())
			require.InDelta(t, float64(time.Now().Unix()+90), claims["exp"], 60)
			require.InDelta(t, 90, claims["exp"].(float64)-claims["iat"].(float64), 0)
			require.Equal(t, "alice", claims["uid"])
		})
	}
}

// status returns the status of a request with a token.
func (s *service) status(t *testing.T, method, path, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	return response.StatusCode
}

// TestTokenNewDefaults: an hour, and the namespaces that are configured for tokens without any.
func TestTokenNewDefaults(t *testing.T) {
	t.Setenv("LASTSEEN_JWT_SECRET_FILE", writeFile(t, "secret", []byte(secret)))
	t.Setenv("LASTSEEN_JWT_ISSUER", "x")
	t.Setenv("LASTSEEN_JWT_AUDIENCE", "y")
	t.Setenv("LASTSEEN_JWT_NAMESPACES", "lobby")
	claims := jwt.MapClaims{}
	_, _, err := jwt.NewParser().ParseUnverified(newToken(t, "--user", "a b/ü"), claims)
	require.NoError(t, err)
	require.InDelta(t, 3600, claims["exp"].(float64)-claims["iat"].(float64), 0)
	require.Equal(t, "a b/ü", claims["sub"])
	require.NotContains(t, claims, "namespaces")
}

func TestTokenNewErrors(t *testing.T) {
	private, public := privateKeyFiles(t)
	file := writeFile(t, "secret", []byte(secret))
	bySecret := []string{"--jwt-secret-file", file, "--jwt-issuer", "x", "--jwt-audience", "y"}
	byKeys := []string{"--jwt-keys-file", public, "--jwt-issuer", "x", "--jwt-audience", "y"}
	other, _ := privateKeyFiles(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{append(bySecret, "--namespaces", "chat"), "--user: the user is empty"},
		{append(bySecret, "--user", "", "--namespaces", "chat"), "--user: "},
		{append(bySecret, "--user", strings.Repeat("x", 257), "--namespaces", "chat"), "--user: "},
		{append(bySecret, "--user", "alice"), "--namespaces is missing: "},
		{append(bySecret, "--user", "alice", "--namespaces", "a/b"), "--namespaces: "},
		{
			append(bySecret, "--user", "alice", "--namespaces", strings.Repeat("a,", 100)+"b"),
			"--namespaces: 101 are too many; the maximum is 100",
		},
		{
			append(bySecret, "--user", "alice", "--namespaces", "chat", "--ttl", "60"),
			`--ttl: "60" is not valid; use a duration`,
		},
		{append(bySecret, "--user", "alice", "--namespaces", "chat", "--ttl", "0s"), "--ttl: "},
		{
			append(bySecret, "--user", "alice", "--namespaces", "chat", "--ttl", "999ms"),
			`--ttl: "999ms" is not valid; use a duration from 1s to 168h`,
		},
		{
			append(bySecret, "--user", "alice", "--namespaces", "chat", "--ttl", "168h1s"),
			`--ttl: "168h1s" is not valid`,
		},
		{append(bySecret, "--user", "alice", "--namespaces", "chat", "--ttl=-1h"), "--ttl: "},
		{
			append(bySecret, "--user", "alice", "--namespaces", "chat", "--jwt-private-key", private["ES256"]),
			"--jwt-private-key: tokens are verified by a secret",
		},
		{
			append(bySecret, "--user", "alice", "--namespaces", "chat", "--jwt-user-claim", "iss"),
			"a server with these settings would reject this token",
		},
		{append(byKeys, "--user", "alice", "--namespaces", "chat"), "--jwt-private-key is missing: "},
		{
			append(byKeys, "--user", "alice", "--namespaces", "chat", "--jwt-private-key", other["ES256"]),
			"--jwt-private-key: the private key belongs to none of the public keys",
		},
		{
			append(byKeys, "--user", "alice", "--namespaces", "chat", "--jwt-private-key", public),
			"--jwt-private-key: the file holds a public key",
		},
		{
			append(byKeys, "--user", "alice", "--namespaces", "chat", "--jwt-private-key", "none"),
			"--jwt-private-key: no such file",
		},
		{
			append(byKeys, "--user", "alice", "--namespaces", "chat", "--jwt-private-key", file),
			"--jwt-private-key: there is no private key in PEM",
		},
		{
			[]string{"--user", "alice", "--namespaces", "chat"},
			"no JWTs are configured: set jwt-secret-file, jwt-keys-file or jwt-jwks-url",
		},
		{[]string{"--jwt-secret-file", file, "--user", "alice", "--namespaces", "chat"}, "jwt-issuer is missing"},
		{[]string{
			"--config", writeConfig(t, names+"jwt-jwks-url: https://id.example.com/keys"), "--user", "alice",
			"--namespaces", "chat",
		}, "--jwt-private-key is missing: "},
		{append(bySecret, "alice"), "alice"},
	} {
		code, stdout, stderr := execute(t, append([]string{"token", "new"}, c.args...)...)
		require.Equal(t, 2, code, "%v: %s", c.args, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, c.want)
		require.NotContains(t, stderr, "geheim")
	}
	code, stdout, stderr := execute(t, "token", "new", "--config",
		writeConfig(t,
			names+"jwt-jwks-url: https://id.example.com/keys"), "--user", "alice", "--namespaces", "chat", "--jwt-private-key", private["EdDSA"])
	require.Zero(t, code, stderr)
	require.NotEmpty(t, stdout, "whether the issuer publishes the key is not looked up")
}

// TestAccessGuide runs what docs/access.md says, and the token is taken.
func TestAccessGuide(t *testing.T) {
	for _, tool := range []string{"sh", "openssl", "curl"} {
		testenv.Program(t, tool, tool)
	}
	guide, err := os.ReadFile("../../docs/access.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	config := regexp.MustCompile("(?s)```yaml\n(jwt-secret-file: .*?)```").FindStringSubmatch(string(guide))
	require.Len(t, blocks, 2)
	require.NotNil(t, config)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lastseen.yaml"), []byte(config[1]), 0o600))
	require.NoError(t, os.Symlink(os.Getenv(binaryVar), filepath.Join(dir, "lastseen")))
	sh := func(script string) string {
		cmd := testenv.Command("sh", "-euc", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		return string(out)
	}
	sh(blocks[0][1])
	s := start(t, "--config", filepath.Join(dir, "lastseen.yaml"), "--jwt-secret-file",
		filepath.Join(dir, "jwt-secret"))
	out := sh(strings.ReplaceAll(blocks[1][1], "http://127.0.0.1:8080", s.url))
	require.Contains(t, out, `"status":"green"`)
}
