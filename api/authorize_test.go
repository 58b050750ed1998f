package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// permittedRequest is a valid request to a route and the callers that may send it.
type permittedRequest struct {
	query, body string
	allowed     []string
}

// permissionsByRoute lists the permissions a second time, independently of the table of routes.
func permissionsByRoute() map[string]permittedRequest {
	pingers, readers, erasers := []string{"ping", "all"}, []string{"read", "all", "alice", "bob"}, []string{
		"admin",
		"all",
	}
	own, owners := []string{"ping", "all", "alice"}, []string{"all", "alice"}
	anyone := append([]string{"nobody", "ping", "admin", "all, elsewhere", "alice, elsewhere", "alice, nowhere"},
		readers...)
	const namespace = "/v1/namespaces/:namespace"
	const user, call = namespace + "/users/:user", namespace + "/calls/:id"
	return map[string]permittedRequest{
		"POST " + user + "/ping":           {"", `{}`, own},
		"POST " + user + "/leave":          {"", `{}`, own},
		"POST " + namespace + "/pings":     {"", `{"pings":[{"user":"alice"}]}`, pingers},
		"POST " + namespace + "/leaves":    {"", `{"leaves":[{"user":"alice"}]}`, pingers},
		"GET " + user:                      {"", "", readers},
		"GET " + user + "/dot.svg":         {"", "", readers},
		"POST " + namespace + "/lookup":    {"", `{"users":["alice"]}`, readers},
		"GET " + namespace + "/lookup":     {"user=alice", "", readers},
		"GET " + namespace + "/users":      {"", "", readers},
		"GET " + namespace + "/counts":     {"", "", readers},
		"GET " + namespace + "/changes":    {"user=alice", "", readers},
		"POST " + namespace + "/changes":   {"", `{"users":["alice"]}`, readers},
		"GET " + namespace:                 {"", "", readers},
		"POST " + namespace + "/calls":     {"", `{"from":"alice","to":"bob"}`, own},
		"GET " + namespace + "/calls":      {"user=alice", "", owners},
		"GET " + call:                      {"", "", []string{"all", "alice", "bob"}},
		"POST " + call + "/accept":         {"", `{"user":"alice"}`, own},
		"POST " + call + "/reject":         {"", `{"user":"alice"}`, own},
		"POST " + call + "/end":            {"", `{"user":"alice"}`, own},
		"POST " + call + "/alive":          {"", `{"user":"alice"}`, own},
		"GET /v1/namespaces":               {"", "", anyone},
		"PUT " + user + "/availability":    {"", `{"availability":"busy"}`, own},
		"GET " + user + "/availability":    {"", "", owners},
		"DELETE " + user + "/availability": {"", "", own},
		"PUT " + user + "/contacts":        {"", `{"users":["bob"]}`, own},
		"PATCH " + user + "/contacts":      {"", `{"add":["bob"]}`, own},
		"DELETE " + user + "/contacts":     {"", "", own},
		"GET " + user + "/contacts":        {"", "", owners},
		"GET " + user + "/devices":         {"", "", []string{"read", "all", "alice"}},
		"DELETE " + user + "/connections":  {"", "", erasers},
		"DELETE " + user:                   {"", "", erasers},
		"DELETE " + namespace:              {"confirm=chat", "", erasers},
	}
}

// isPublic reports whether a path needs no credentials and ignores invalid ones.
func isPublic(path string) bool { return !strings.HasPrefix(path, "/v1/") }

// TestPermissions sends a request of every kind of caller to every route. Callers without the permission get 401 or
// 403, whatever else is wrong with the request, and the store is not called.
func TestPermissions(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	authenticator, headers := callers(t)
	unreached := newAuthServer(t, failing(fileStore(t), errors.New("the store was asked")), authenticator)
	refused := map[string][]testResponse{} // of unreached, which are the same in both subtests
	policy := permissionsByRoute()
	eachStore(t, func(t *testing.T, open *testServer) {
		w := newAuthServer(t, open.store.Store, authenticator)
		sent := 0
		for i, r := range (&server{}).routes() {
			if r.permission == greeting {
				continue // see TestConnectPermissions
			}
			request, known := policy[r.method+" "+r.path]
			require.True(t, known || isPublic(r.path), "who may do %s %s?", r.method, r.path)
			id := "c" + strconv.Itoa(i)
			path := strings.NewReplacer(":namespace", "chat", ":user", "alice", ":id", id).Replace(r.path)
			if strings.Contains(path, "/calls") {
				w.hangUp("alice")
			}
			if strings.Contains(path, "/calls/") {
				w.ring(id, "bob", "alice")
			}
			for name, credentials := range headers {
				// Files take long to unpack under the race detector.
				header := append(headersOf(credentials), "Accept-Encoding: identity")
				acts := r.permission == actInCall || r.permission == endCall
				if acts { // so that it succeeds each time
					header = append(header, "Idempotency-Key: 1")
				}
				what := fmt.Sprintf("%s: %s %s", name, r.method, r.path)
				response := w.sendTo(r.method, path+"?"+request.query, request.body, header...)
				sent++
				if isPublic(r.path) || slices.Contains(request.allowed, name) {
					require.Less(t, response.status, 300, "%s: %s", what, response.body)
					continue
				}
				require.Equal(t, refusalStatus(name), response.status, what)
				checkRefusal(t, response, credentials)
				if refused[what] == nil {
					refused[what] = []testResponse{
						unreached.sendTo(r.method, path+"?"+request.query, request.body, header...),
						unreached.sendTo(r.method, strings.Replace(path, "chat", "chadow", 1)+"?typo=1", "{",
							header...),
					}
				}
				if name == "bob" && (acts || r.permission == readCall) {
					require.Equal(t, withoutID(t, response), withoutID(t, refused[what][0]), what)
					continue // the user is in the body or the query, and the default is bob
				}
				for _, bad := range refused[what] {
					if r.isOfBeacons() && name == "nobody" {
						continue // there could be a token in the body: see TestTokenInBody
					}
					require.Equal(t, withoutID(t, response), withoutID(t, bad), what)
				}
				if r.method == "GET" {
					require.Equal(t, response.status, w.sendTo("HEAD", path, "", header...).status, what)
				}
			}
		}
		require.Greater(t, sent, 200)
	})
}

// refusalStatus returns the status for a caller without the permission: 403 if the caller is authenticated.
func refusalStatus(name string) int {
	switch name {
	case "nobody", "stranger", "garbage", "basic", "empty", "alice, expired":
		return http.StatusUnauthorized
	default:
		return http.StatusForbidden
	}
}

// checkRefusal checks the challenge, and that the response does not repeat the credentials.
func checkRefusal(t *testing.T, r testResponse, credentials string) {
	t.Helper()
	challenge := r.header.Get("WWW-Authenticate")
	switch {
	case r.status == http.StatusForbidden:
		require.Equal(t, string(problem.Forbidden), r.json(t)["code"])
		require.Regexp(t, `^Bearer realm="lastseen", error="insufficient_scope", scope="(ping|read|admin)"$`, challenge)
	case credentials == "":
		require.Equal(t, string(problem.Unauthenticated), r.json(t)["code"])
		require.Equal(t, `Bearer realm="lastseen"`, challenge)
	default:
		require.Equal(t, string(problem.Unauthenticated), r.json(t)["code"])
		require.Equal(t, `Bearer realm="lastseen", error="invalid_token"`, challenge)
	}
	if _, secret, _ := strings.Cut(credentials, " "); secret != "" {
		require.NotContains(t, r.body+fmt.Sprint(r.header), secret)
	}
}

// withoutID returns a response without what differs from request to request.
func withoutID(t *testing.T, r testResponse) string {
	t.Helper()
	body := r.json(t)
	delete(body, "request_id")
	return fmt.Sprint(r.status, r.header.Get("WWW-Authenticate"), r.header.Get("Cache-Control"), body)
}

// TestRoutesNeedPermissions checks that a route without a permission is not served.
func TestRoutesNeedPermissions(t *testing.T) {
	s := &server{}
	for _, r := range s.routes() {
		require.NotEqual(t, none, r.permission, r.path)
		require.NotPanics(t, func() { s.serve(r) })
		require.Equal(t, isPublic(r.path), r.permission == public, r.path)
		r.permission = none
		require.PanicsWithValue(t, "api: no permission is set for "+r.method+" "+r.path, func() { s.serve(r) })
	}
}

// TestPermissionsAreDocumented checks that operations name the scope that they need, and that public ones need no
// credentials.
func TestPermissionsAreDocumented(t *testing.T) {
	doc, checked := document(t), 0
	for _, r := range (&server{}).routes() {
		documented := strings.NewReplacer(":namespace", "{namespace}", ":user", "{user}", ":id", "{id}")
		item := doc.Paths.Value(documented.Replace(r.path))
		if item == nil {
			continue // a page
		}
		operation := item.GetOperation(r.method)
		if r.permission == public {
			require.Nil(t, operation.Security, r.path)
			continue
		}
		require.NotNil(t, operation.Security, r.path)
		require.Contains(t, operation.Description, "Requires the scope `"+string(r.scope())+"`", r.path)
		checked++
	}
	require.Equal(t, len(permissionsByRoute())+1, checked, "and connect")
}

// TestPermissionsOfEncodedPaths checks that permissions apply to the decoded namespace and user.
func TestPermissionsOfEncodedPaths(t *testing.T) {
	w, headers := newGuardedServer(t)
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
		w.sendTo("POST", path, "", "Authorization: "+headers["alice"]).is(t, want, path)
	}
	// Who may do everything everywhere is told that it is no name.
	w.fails(problem.InvalidNamespace, "GET", "/.hidden", "", "Authorization: "+headers["all"])
}

// TestKeysUnavailable checks that an unreachable issuer is not reported as invalid credentials.
func TestKeysUnavailable(t *testing.T) {
	w := newAuthServer(t, fileStore(t), withoutKeys(t))
	for _, r := range []testResponse{
		w.send("GET", "/chat/users/alice", "", "Authorization: Bearer "+rsToken),
		w.send("POST", "/chat/users/alice/leave", `{"token":"`+rsToken+`"}`),
	} {
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.Equal(t, string(problem.KeysUnavailable), r.json(t)["code"])
		require.NotEmpty(t, r.header.Get("Retry-After"))
		require.Empty(t, r.header.Get("WWW-Authenticate"))
		require.NotContains(t, r.body, "no route")
		require.Contains(t, w.log.String(), "no route to host")
		require.NotContains(t, w.log.String(), "level=ERROR",
			"anyone can send such tokens; the authenticator logs it once")
	}
	w.fails(problem.Unauthenticated, "GET", "/chat/users/alice", "")
	w.fails(problem.Unauthenticated, "GET", "/chat/users/alice", "", "Authorization: Bearer ls_x")
}

// refusals sends all requests without the permission and returns the kinds of response.
func refusals(t *testing.T, s store.Store, calls []call) map[string]bool {
	t.Helper()
	authenticator := newAuthenticator(t, auth.Config{Tokens: tokens()})
	responded := map[string]bool{}
	for _, refused := range []struct {
		authenticator *auth.Authenticator
		token         string
	}{{authenticator, "x"}, {authenticator, token(t, "alice", testNow+1000)}, {withoutKeys(t), rsToken}} {
		w := newAuthServer(t, s, refused.authenticator)
		for _, c := range calls {
			if !isPublic(c.path) {
				c.headers = append([]string{"Authorization: Bearer " + refused.token}, c.headers...)
				c.send(w)
			}
		}
		maps.Copy(responded, w.responses())
	}
	return responded
}
