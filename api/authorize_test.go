package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
)

// TestPermissions sends a request of every kind of caller to every route. Callers without the permission get 401 or
// 403, whatever else is wrong with the request, and the store is not called.
func TestPermissions(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	authenticator, headers := kit.Callers(t)
	asked := kit.Failing(kit.FileStore(t), errors.New("the store was asked"))
	unreached := apitest.NewAuthServer(t, asked, authenticator)
	refused := map[string][]kit.Response{} // of unreached, which are the same in both subtests
	policy := kit.PermissionsByRoute()
	apitest.EachStore(t, func(t *testing.T, open *apitest.Server) {
		w := apitest.NewAuthServer(t, open.Store.Store, authenticator)
		sent := 0
		for i, r := range api.Routes() {
			if strings.HasSuffix(r.Path, "/connect") {
				continue // see TestConnectPermissions
			}
			request, known := policy[r.Method+" "+r.Path]
			require.True(t, known || kit.IsPublic(r.Path), "who may do %s %s?", r.Method, r.Path)
			id := "c" + strconv.Itoa(i)
			path := strings.NewReplacer(":namespace", "chat", ":user", "alice", ":id", id, "*", "faq",
				":webhook", "app").Replace(r.Path)
			if strings.Contains(path, "/calls") {
				w.HangUp("alice")
			}
			if strings.Contains(path, "/calls/") {
				w.Ring(id, "bob", "alice")
			}
			for name, credentials := range headers {
				// Files take long to unpack under the race detector.
				header := append(kit.HeadersOf(credentials), "Accept-Encoding: identity")
				acts := r.Method == "POST" && strings.Contains(path, "/calls")
				if acts { // so that it succeeds each time
					header = append(header, "Idempotency-Key: 1")
				}
				what := fmt.Sprintf("%s: %s %s", name, r.Method, r.Path)
				response := w.SendTo(r.Method, path+"?"+request.Query, request.Body, header...)
				sent++
				if kit.IsPublic(r.Path) || slices.Contains(request.Allowed, name) {
					require.Less(t, response.Status, 300, "%s: %s", what, response.Body)
					continue
				}
				require.Equal(t, kit.RefusalStatus(name), response.Status, what)
				checkRefusal(t, response, credentials)
				if refused[what] == nil {
					refused[what] = []kit.Response{
						unreached.SendTo(r.Method, path+"?"+request.Query, request.Body, header...),
						unreached.SendTo(r.Method, strings.Replace(path, "chat", "chadow", 1)+"?typo=1", "{",
							header...),
					}
				}
				if name == "bob" && strings.Contains(path, "/calls") {
					require.Equal(t, kit.WithoutID(t, response), kit.WithoutID(t, refused[what][0]), what)
					continue // the user is in the body or the query, and the default is bob
				}
				for _, bad := range refused[what] {
					if name == "nobody" && (strings.HasSuffix(path, "/leave") || strings.HasSuffix(path, "/end")) {
						continue // there could be a token in the body: see TestTokenInBody
					}
					require.Equal(t, kit.WithoutID(t, response), kit.WithoutID(t, bad), what)
				}
				if r.Method == "GET" {
					require.Equal(t, response.Status, w.SendTo("HEAD", path, "", header...).Status, what)
				}
			}
		}
		require.Greater(t, sent, 200)
	})
}

// checkRefusal checks the challenge, and that the response does not repeat the credentials.
func checkRefusal(t *testing.T, r kit.Response, credentials string) {
	t.Helper()
	challenge := r.Header.Get("WWW-Authenticate")
	switch {
	case r.Status == http.StatusForbidden:
		require.Equal(t, string(problem.Forbidden), r.JSON(t)["code"])
		require.Regexp(t, `^Bearer realm="lastseen", error="insufficient_scope", scope="(ping|read|admin)"$`, challenge)
	case credentials == "":
		require.Equal(t, string(problem.Unauthenticated), r.JSON(t)["code"])
		require.Equal(t, `Bearer realm="lastseen"`, challenge)
	default:
		require.Equal(t, string(problem.Unauthenticated), r.JSON(t)["code"])
		require.Equal(t, `Bearer realm="lastseen", error="invalid_token"`, challenge)
	}
	if _, secret, _ := strings.Cut(credentials, " "); secret != "" {
		require.NotContains(t, r.Body+fmt.Sprint(r.Header), secret)
	}
}

// TestPermissionsOfEncodedPaths checks that permissions apply to the decoded namespace and user.
func TestPermissionsOfEncodedPaths(t *testing.T) {
	w, headers := apitest.NewGuardedServer(t)
	for path, want := range map[string]int{
		"/v1/namespaces/%2Fchat/users/alice/ping":           http.StatusForbidden,
		"/v1/namespaces/chat%2F..%2Fother/users/alice/ping": http.StatusForbidden,
		"/v1/namespaces/chat/users/bob%2F..%2Falice/ping":   http.StatusForbidden,
		"/v1/namespaces/chat/users/%61lice/ping":            http.StatusOK,
		"/v1/namespaces/%63hat/users/alice/ping":            http.StatusOK,
		"/v1/namespaces/chat/users/%2561lice/ping":          http.StatusForbidden,
		"/v1/namespaces/chat/users/alice%20/ping":           http.StatusForbidden,
		"/v1/namespaces/CHAT/users/alice/ping":              http.StatusForbidden,
	} {
		w.SendTo("POST", path, "", "Authorization: "+headers["alice"]).Is(t, want, path)
	}
	// Who may do everything everywhere is told that it is no name.
	w.Fails(problem.InvalidNamespace, "GET", "/.hidden", "", "Authorization: "+headers["all"])
}

// TestKeysUnavailable checks that an unreachable issuer is not reported as invalid credentials.
func TestKeysUnavailable(t *testing.T) {
	w := apitest.NewAuthServer(t, kit.FileStore(t), kit.WithoutKeys(t))
	for _, r := range []kit.Response{
		w.Send("GET", "/chat/users/alice", "", "Authorization: Bearer "+kit.RSToken),
		w.Send("POST", "/chat/users/alice/leave", `{"token":"`+kit.RSToken+`"}`),
	} {
		require.Equal(t, http.StatusServiceUnavailable, r.Status)
		require.Equal(t, string(problem.KeysUnavailable), r.JSON(t)["code"])
		require.NotEmpty(t, r.Header.Get("Retry-After"))
		require.Empty(t, r.Header.Get("WWW-Authenticate"))
		require.NotContains(t, r.Body, "no route")
		require.Contains(t, w.Log.String(), "no route to host")
		require.NotContains(t, w.Log.String(), "level=ERROR",
			"anyone can send such tokens; the authenticator logs it once")
	}
	w.Fails(problem.Unauthenticated, "GET", "/chat/users/alice", "")
	w.Fails(problem.Unauthenticated, "GET", "/chat/users/alice", "", "Authorization: Bearer ls_x")
}
