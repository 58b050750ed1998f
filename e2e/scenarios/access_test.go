package scenarios

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// mine is the path of a user in a namespace to which the callers below have access.
const mine = "/v1/namespaces/mine-1/users/alice"

// startGuarded starts a server with JWTs, and with keys that read some namespaces, or do everything.
func startGuarded(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, "--log-level", "debug", "--config", testserver.WriteConfig(t, testserver.Issuer+
		"user-rate-limit: off\njwt-secret-file: "+testserver.WriteFile(t, "secret", []byte(testserver.Secret))+
		fmt.Sprintf(`
keys:
  reader: {hash: "%s", scopes: [read], namespaces: ["mine-*"]}
  all: {hash: "%s", scopes: [ping, read, admin], namespaces: ["*"]}
`, testserver.HashOf("ls_reader"), testserver.HashOf("ls_all"))))
}

const bearer = "Authorization: Bearer "

// TestInvalidCredentials: what is not a valid key or token, or not in its place, is refused. Neither the response nor
// the log shows it, and all responses are the same. Packages api/auth and api test everything that can be wrong.
func TestInvalidCredentials(t *testing.T) {
	t.Parallel()
	s, good := startGuarded(t), testserver.UserToken(t, nil)
	parts := strings.Split(good, ".")
	responses := map[string]bool{}
	for what, headers := range map[string][]string{
		"nothing":           nil,
		"an unknown key":    {bearer + "ls_a-key-that-is-not-configured"},
		"a key's hash":      {bearer + testserver.HashOf("ls_all")},
		"without signature": {bearer + testserver.Segment(t, map[string]any{"alg": "none"}) + "." + parts[1] + "."},
		"for another user": {bearer + parts[0] + "." +
			testserver.Segment(t, testserver.Claims(map[string]any{"sub": "bob"})) + "." + parts[2]},
		"by another secret": {bearer + testserver.Token(t, jwt.SigningMethodHS256, []byte("another"),
			map[string]any{"alg": "HS256"}, testserver.Claims(nil))},
		"expired":           {bearer + testserver.UserToken(t, map[string]any{"exp": 1})},
		"for others":        {bearer + testserver.UserToken(t, map[string]any{"aud": "another"})},
		"of another issuer": {bearer + testserver.UserToken(t, map[string]any{"iss": "https://id.example.com.evil"})},
		"not Bearer":        {"Authorization: Basic " + good},
		"two headers":       {bearer + good, bearer + "ls_all"},
		"other headers":     {"Proxy-Authorization: Bearer " + good, "X-Api-Key: ls_all", "Cookie: token=" + good},
		"a name of a proxy": {"X-Forwarded-User: alice", "X-Forwarded-For: 127.0.0.1"},
	} {
		for method, path := range map[string]string{
			"POST": mine + "/ping", "GET": mine + "?token=" + good, "DELETE": mine,
		} {
			status, _, body := s.Ask(t, method, path, "", headers...)
			require.Equal(t, http.StatusUnauthorized, status, "%s: %s", what, body)
			var problem map[string]any
			require.NoError(t, json.Unmarshal([]byte(body), &problem))
			delete(problem, "request_id")
			responses[fmt.Sprint(len(headers) > 0 && strings.HasPrefix(headers[0], "Authorization"), problem)] = true
		}
		for _, header := range headers {
			if _, secret, found := strings.Cut(header, "Bearer "); found {
				require.NotContains(t, s.Log.String(), secret, what)
			}
		}
	}
	require.Len(t, responses, 2, "no credentials, and any that are wrong: the responses do not reveal what is wrong")
	_, _, body := s.Ask(t, "GET", "/v1/namespaces/mine-1/counts", "", bearer+"ls_all")
	require.Contains(t, body, `"total":0`, "nothing was recorded")
	status, _, body := s.Ask(t, "POST", mine+"/ping", "", bearer+good)
	require.Equal(t, http.StatusOK, status, "a good token is accepted: %s", body)
}

// TestPermissionsAreNotExceeded sends requests that valid credentials do not permit, in many spellings. Nothing
// changes.
func TestPermissionsAreNotExceeded(t *testing.T) {
	t.Parallel()
	s := startGuarded(t)
	const namespaces = "/v1/namespaces/"
	everything := func() (lists string) {
		for _, namespace := range []string{"mine-1", "yours", "mine"} {
			_, _, list := s.Ask(t, "GET", namespaces+namespace+"/users?as_of=2000000000", "", bearer+"ls_all")
			lists += list
		}
		return lists
	}
	for _, namespace := range []string{"mine-1", "yours", "mine"} {
		status, _, body := s.Ask(t, "POST", namespaces+namespace+"/pings",
			`{"pings":[{"user":"alice","at":1},{"user":"bob","at":2}]}`, bearer+"ls_all")
		require.Equal(t, http.StatusOK, status, body)
	}
	before, alice := everything(), testserver.UserToken(t, nil)
	for _, c := range [][3]string{
		{"POST", "mine-1/users/bob/ping", alice},
		{"POST", "mine-1/users/alice%2F..%2Fbob/ping", alice},
		{"POST", "mine-1/users/alic%D0%B5/ping", alice}, // in Cyrillic
		{"POST", "mine-1/pings", alice},
		{"POST", "yours/users/alice/ping", alice},
		{"GET", "yours/users/alice", alice},
		{"DELETE", "mine-1/users/alice", alice},
		{"DELETE", "mine-1?confirm=mine-1", alice},
		{"GET", "yours/users", "ls_reader"},
		{"GET", "mine/users", "ls_reader"},
		{"GET", "yours%2f..%2fmine-1/users", "ls_reader"},
		{"POST", "mine-1/users/alice/ping", "ls_reader"},
		{"DELETE", "mine-1/users/alice", "ls_reader"},
	} {
		status, _, body := s.Ask(t, c[0], namespaces+c[1], `{"pings":[{"user":"eve"}]}`, bearer+c[2])
		require.Equal(t, http.StatusForbidden, status, "%s: %s", c, body)
		require.NotContains(t, body, "last_seen")
	}
	require.Equal(t, before, everything(), "nothing changed")
	_, _, body := s.Ask(t, "GET", "/v1/namespaces?limit=1", "", bearer+"ls_reader")
	require.Contains(t, body, `"namespace":"mine-1"`)
	require.Contains(t, body, `"next_cursor":null`, "the others are not even counted")
}
