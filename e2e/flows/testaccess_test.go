package flows

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// authServer is a service with authentication, and what is needed to make tokens for it.
type authServer struct {
	*testserver.Server
	method jwt.SigningMethod
	key    any    // that signs good tokens
	file   string // content of the file that the service verifies them by
}

const authServerKeys = `
keys:
  reader: {hash: "%s", scopes: [read], namespaces: ["mine-*"]}
  writer: {hash: "%s", scopes: [ping], namespaces: ["mine-*"]}
  all: {hash: "%s", scopes: [ping, read, admin], namespaces: ["*"]}
`

// eachAuthServer runs a test on a service for each kind of key that verifies tokens.
func eachAuthServer(t *testing.T, test func(t *testing.T, g authServer)) {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for _, g := range []authServer{
		{nil, jwt.SigningMethodHS256, []byte(testserver.Secret), testserver.Secret},
		{nil, jwt.SigningMethodRS256, rsaKey, testserver.PublicPEM(t, &rsaKey.PublicKey)},
		{nil, jwt.SigningMethodEdDSA, edKey, testserver.PublicPEM(t, edPublic)},
	} {
		t.Run(g.method.Alg(), func(t *testing.T) {
			setting := map[bool]string{
				true:  "jwt-secret-file",
				false: "jwt-keys-file",
			}[g.method == jwt.SigningMethodHS256]
			g.Server = testserver.Start(t, "--config", testserver.WriteConfig(t,
				testserver.Issuer+"user-rate-limit: off\n"+setting+": "+
					testserver.WriteFile(t, "verify", []byte(g.file))+fmt.Sprintf(authServerKeys,
					testserver.HashOf("ls_reader"), testserver.HashOf("ls_writer"), testserver.HashOf("ls_all"))))
			test(t, g)
		})
	}
}

// good returns a valid token with some claims changed.
func (g authServer) good(t *testing.T, changes map[string]any) string {
	t.Helper()
	return testserver.Token(t, g.method, g.key, map[string]any{"alg": g.method.Alg(), "typ": "JWT"},
		testserver.Claims(changes))
}

// ask sends a request with some headers, as they are, and returns status and body.
func (g authServer) ask(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s",
		method, path, len(body), strings.Join(append(headers, ""), "\r\n"), body)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

const bearer = "Authorization: Bearer "

// forgedTokens returns tokens that must be refused, by what is wrong with them.
func (g authServer) forgedTokens(t *testing.T) map[string]string {
	t.Helper()
	hs, file := jwt.SigningMethodHS256, []byte(g.file)
	good := g.good(t, nil)
	parts := strings.Split(good, ".")
	with := func(changes map[string]any) map[string]any { // a header
		header := map[string]any{"alg": g.method.Alg(), "typ": "JWT"}
		maps.Copy(header, changes)
		return header
	}
	again := func(header, body map[string]any) string { return testserver.Token(t, g.method, g.key, header, body) }
	forged := map[string]string{
		"for none, unsigned": testserver.Segment(t, map[string]any{"alg": "none"}) + "." + parts[1] + ".",
		"for none, with a signature": testserver.Segment(t, map[string]any{"alg": "none"}) + "." + parts[1] + "." +
			parts[2],
		"for nOnE":             testserver.Segment(t, map[string]any{"alg": "nOnE"}) + "." + parts[1] + ".",
		"without an algorithm": testserver.Segment(t, map[string]any{}) + "." + parts[1] + "." + parts[2],
		"with a list of algorithms": testserver.Segment(t, map[string]any{"alg": []string{g.method.Alg()}}) + "." +
			parts[1] + "." + parts[2],
		"with the algorithm in lower case": again(with(map[string]any{"alg": strings.ToLower(g.method.Alg())}),
			testserver.Claims(nil)),
		"signed with nothing": testserver.Token(t, hs, []byte{}, map[string]any{"alg": "HS256"}, testserver.Claims(nil)),
		"signed with zeros": testserver.Token(t, hs, make([]byte, 32), map[string]any{"alg": "HS256"},
			testserver.Claims(nil)),
		"signed with a key that it carries": g.carriesItsKey(t),
		"with a critical extension": again(with(map[string]any{"crit": []string{"b64"}, "b64": false}),
			testserver.Claims(nil)),
		"for others":                        g.good(t, map[string]any{"aud": "another"}),
		"for others too, which is a list":   g.good(t, map[string]any{"aud": []string{"another"}}),
		"of another issuer":                 g.good(t, map[string]any{"iss": "https://id.example.com.evil"}),
		"of an issuer in capitals":          g.good(t, map[string]any{"iss": "HTTPS://ID.EXAMPLE.COM"}),
		"expired":                           g.good(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"without an end":                    g.good(t, map[string]any{"exp": nil}),
		"with an end that is text":          g.good(t, map[string]any{"exp": "2099-01-01"}),
		"not valid yet":                     g.good(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"without a user":                    g.good(t, map[string]any{"sub": nil}),
		"with an empty user":                g.good(t, map[string]any{"sub": ""}),
		"of a number":                       g.good(t, map[string]any{"sub": 7}),
		"of a user that is a path":          g.good(t, map[string]any{"sub": ".."}),
		"of a user with a NUL":              g.good(t, map[string]any{"sub": "alice\x00"}),
		"for invalid namespaces":            g.good(t, map[string]any{"namespaces": []string{"../mine-1"}}),
		"for namespaces that are an object": g.good(t, map[string]any{"namespaces": map[string]any{"mine-1": true}}),
		"for invalid patterns":              g.good(t, map[string]any{"namespaces": "*-1"}),
		"with another body": parts[0] + "." + testserver.Segment(t, testserver.Claims(map[string]any{"sub": "bob"})) + "." +
			parts[2],
		"without a signature": parts[0] + "." + parts[1] + ".",
		"of two parts":        parts[0] + "." + parts[1],
		"of four parts":       good + ".x",
		"encrypted":           good + ".x.y",
		"padded":              good + "=",
		"cut":                 good[:len(good)-1],
		"in quotes":           `"` + good + `"`,
		"twice":               good + "," + good,
		"of 9,000 bytes":      g.good(t, map[string]any{"x": strings.Repeat("x", 9000)}),
		"of dots":             strings.Repeat(".", 8000),
		"of nested JSON": base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("[", 4000))) +
			"." + parts[1] + "." + parts[2],
		"a key's hash":                    testserver.HashOf("ls_all"),
		"a key's beginning":               "ls_al",
		"a key and more":                  "ls_all0",
		"a key in capitals":               "LS_ALL",
		"a key with a space in it":        "ls_ all",
		"the secret or public key itself": base64.RawURLEncoding.EncodeToString(file),
		"nothing":                         "",
	}
	if g.method != hs {
		forged["signed with the public key"] = testserver.Token(t, hs, file, map[string]any{"alg": "HS256"}, testserver.Claims(nil))
		forged["signed with the public key, without its last line break"] = testserver.Token(t, hs, file[:len(file)-1],
			map[string]any{"alg": "HS256"}, testserver.Claims(nil))
	}
	return forged
}

// carriesItsKey returns a token that contains or names the key that signed it, in every way that the standard has.
func (g authServer) carriesItsKey(t *testing.T) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	header := map[string]any{
		"alg": "EdDSA", "kid": "../../../../dev/null", "jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/x",
		"jwk": map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public)},
	}
	return testserver.Token(t, jwt.SigningMethodEdDSA, private, header, testserver.Claims(nil))
}
