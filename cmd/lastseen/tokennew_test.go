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
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

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
		private[algorithm] = testserver.WriteFile(t, algorithm,
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		all += testserver.PublicPEM(t, key.Public())
	}
	return private, testserver.WriteFile(t, "public", []byte(all))
}

// TestTokenNew: what it prints is taken by a server with the same configuration, for what it was made for and nothing
// else.
func TestTokenNew(t *testing.T) {
	private, public := privateKeyFiles(t)
	ways := map[string][]string{
		"HS256": {"jwt-secret-file: " + testserver.WriteFile(t, "secret", []byte(testserver.Secret+"\n"))},
	}
	for algorithm, file := range private {
		ways[algorithm] = []string{"jwt-keys-file: " + public, "--jwt-private-key", file}
	}
	for algorithm, way := range ways {
		t.Run(algorithm, func(t *testing.T) {
			file := testserver.WriteConfig(t, testserver.Issuer+"jwt-user-claim: uid\njwt-namespaces-claim: rooms\n"+way[0]+"\n")
			s := testserver.Start(t, "--config", file)
			token := newToken(t, append([]string{
				"--config", file, "--user", "alice", "--namespaces", "chat,room-*",
				"--ttl", "90s",
			}, way[1:]...)...)
			for path, want := range map[string]int{
				"chat/users/alice/ping": 200, "room-7/users/alice/ping": 200, "chat/users/bob/ping": 403,
				"other/users/alice/ping": 403,
			} {
				require.Equal(t, want, statusOf(t, s, http.MethodPost, "/v1/namespaces/"+path, token), path)
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

// TestTokenNewDefaults: an hour, and the namespaces that are configured for tokens without any.
func TestTokenNewDefaults(t *testing.T) {
	t.Setenv("LASTSEEN_JWT_SECRET_FILE", testserver.WriteFile(t, "secret", []byte(testserver.Secret)))
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
	file := testserver.WriteFile(t, "secret", []byte(testserver.Secret))
	other, _ := privateKeyFiles(t)
	keySet := testserver.WriteConfig(t, testserver.Issuer+"jwt-jwks-url: https://id.example.com/keys")
	names := " --jwt-issuer x --jwt-audience y"
	bySecret, byKeys := "--jwt-secret-file "+file+names, "--jwt-keys-file "+public+names
	const chat = " --user alice --namespaces chat"
	requireRefused(t, []string{"token", "new"}, map[string]string{
		bySecret + " --namespaces chat":                                       "--user: the user is missing or empty",
		bySecret + " --user= --namespaces chat":                               "--user: ",
		bySecret + " --namespaces chat --user " + strings.Repeat("x", 257):    "--user: ",
		bySecret + " --user alice":                                            "--namespaces is missing: ",
		bySecret + " --user alice --namespaces a/b":                           "--namespaces: ",
		bySecret + " --user alice --namespaces b" + strings.Repeat(",a", 100): "101 are too many; the maximum is 100",
		bySecret + chat + " --ttl 60":                                         `--ttl: "60" is not valid; use a duration`,
		bySecret + chat + " --ttl 0s":                                         "--ttl: ",
		bySecret + chat + " --ttl 999ms":                                      `"999ms" is not valid; use a duration from 1s to 168h`,
		bySecret + chat + " --ttl 168h1s":                                     `--ttl: "168h1s" is not valid`,
		bySecret + chat + " --ttl=-1h":                                        "--ttl: ",
		bySecret + chat + " --jwt-private-key " + private["ES256"]:            "tokens are verified by a secret",
		bySecret + chat + " --jwt-user-claim iss":                             "would reject this token",
		bySecret + " alice":                                                   "alice",
		byKeys + chat:                                                         "--jwt-private-key is missing: ",
		byKeys + chat + " --jwt-private-key " + other["ES256"]:                "belongs to none of the public keys",
		byKeys + chat + " --jwt-private-key " + public:                        "--jwt-private-key: the file holds a public key",
		byKeys + chat + " --jwt-private-key none":                             "--jwt-private-key: no such file",
		byKeys + chat + " --jwt-private-key " + file:                          "there is no private key in PEM",
		chat:                               "no JWTs are configured: set jwt-secret-file, jwt-keys-file or jwt-jwks-url",
		"--jwt-secret-file " + file + chat: "jwt-issuer is missing",
		"--config " + keySet + chat:        "--jwt-private-key is missing: ",
	})
	args := "token new --config " + keySet + chat + " --jwt-private-key " + private["EdDSA"]
	code, stdout, stderr := execute(t, strings.Fields(args)...)
	require.Zero(t, code, stderr)
	require.NotEmpty(t, stdout, "whether the issuer publishes the key is not looked up")
}
