package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// work is what there is to do: for each route a request that is good, and who may send it.
type work struct {
	query, body string
	allowed     []string
}

// whoMayDoWhat is the policy once more, in words that do not come from the table of routes.
func whoMayDoWhat() map[string]work {
	pingers, readers, erasers := []string{"ping", "all"}, []string{"read", "all", "alice", "bob"}, []string{
		"admin",
		"all",
	}
	const namespace = "/v1/namespaces/:namespace"
	return map[string]work{
		"POST " + namespace + "/users/:user/ping":  {"", `{}`, []string{"ping", "all", "alice"}},
		"POST " + namespace + "/users/:user/leave": {"", `{}`, []string{"ping", "all", "alice"}},
		"POST " + namespace + "/pings":             {"", `{"pings":[{"user":"alice"}]}`, pingers},
		"POST " + namespace + "/leaves":            {"", `{"leaves":[{"user":"alice"}]}`, pingers},
		"GET " + namespace + "/users/:user":        {"", "", readers},
		"POST " + namespace + "/lookup":            {"", `{"users":["alice"]}`, readers},
		"GET " + namespace + "/lookup":             {"user=alice", "", readers},
		"GET " + namespace + "/users":              {"", "", readers},
		"GET " + namespace + "/counts":             {"", "", readers},
		"GET " + namespace:                         {"", "", readers},
		"GET /v1/namespaces": {
			"", "",
			append([]string{"nobody", "ping", "admin", "all, elsewhere", "alice, elsewhere", "alice, nowhere"},
				readers...),
		},
		"DELETE " + namespace + "/users/:user": {"", "", erasers},
		"DELETE " + namespace:                  {"confirm=chat", "", erasers},
	}
}

// isPublic reports whether anybody may ask, also with bad credentials.
func isPublic(path string) bool { return !strings.HasPrefix(path, "/v1/") }

// TestWhoMayDoWhat sends, for every route, the requests of all kinds of callers. Who may not do it gets 401 or 403,
// whatever else is wrong with the request, and reaches no store.
func TestWhoMayDoWhat(t *testing.T) {
	eachStore(t, func(t *testing.T, open *world) {
		guard, headers := callers(t)
		w := newGuardedWorld(t, open.store.Store, guard)
		unreached := newGuardedWorld(t, &failing{
			Store: fileStore(t), err: errors.New("the store was asked"),
			panic: true,
		}, guard)
		policy := whoMayDoWhat()
		sent := 0
		for _, r := range (&server{}).routes() {
			todo, known := policy[r.method+" "+r.path]
			require.True(t, known || isPublic(r.path), "who may do %s %s?", r.method, r.path)
			path := strings.NewReplacer(":namespace", "chat", ":user", "alice").Replace(r.path)
			for name, credentials := range headers {
				var header []string
				if credentials != "" {
					header = []string{"Authorization: " + credentials}
				}
				what := fmt.Sprintf("%s: %s %s", name, r.method, r.path)
				answer := w.sendTo(r.method, path+"?"+todo.query, todo.body, header...)
				sent++
				if isPublic(r.path) || slices.Contains(todo.allowed, name) {
					require.Less(t, answer.status, 300, "%s: %s", what, answer.body)
					continue
				}
				require.Equal(t, refusalOf(name), answer.status, what)
				checkRefusal(t, answer, credentials)
				for _, bad := range []reply{
					unreached.sendTo(r.method, path+"?"+todo.query, todo.body, header...),
					unreached.sendTo(r.method, strings.Replace(path, "chat", "chadow", 1)+"?typo=1", "{", header...),
				} {
					if strings.HasSuffix(path, "/leave") && name == "nobody" {
						continue // there could be a token in the body: see TestBeacon
					}
					require.Equal(t, withoutID(t, answer), withoutID(t, bad), what)
				}
				if r.method == http.MethodGet {
					require.Equal(t, answer.status, w.sendTo(http.MethodHead, path, "", header...).status, what)
				}
			}
		}
		require.Greater(t, sent, 200)
	})
}

// refusalOf returns the status for a caller who may not: 403 if it is known who that is.
func refusalOf(name string) int {
	switch name {
	case "nobody", "stranger", "garbage", "basic", "empty", "alice, expired":
		return http.StatusUnauthorized
	default:
		return http.StatusForbidden
	}
}

// checkRefusal checks the challenge, and that the answer does not repeat the credentials.
func checkRefusal(t *testing.T, r reply, credentials string) {
	t.Helper()
	challenge := r.header.Get("WWW-Authenticate")
	switch {
	case r.status == http.StatusForbidden:
		require.Equal(t, string(codeForbidden), r.json(t)["code"])
		require.Regexp(t, `^Bearer realm="lastseen", error="insufficient_scope", scope="(ping|read|admin)"$`, challenge)
	case credentials == "":
		require.Equal(t, string(codeUnauthenticated), r.json(t)["code"])
		require.Equal(t, `Bearer realm="lastseen"`, challenge)
	default:
		require.Equal(t, string(codeUnauthenticated), r.json(t)["code"])
		require.Equal(t, `Bearer realm="lastseen", error="invalid_token"`, challenge)
	}
	if _, secret, _ := strings.Cut(credentials, " "); secret != "" {
		require.NotContains(t, r.body+fmt.Sprint(r.header), secret)
	}
}

// withoutID returns an answer but for what is different in each.
func withoutID(t *testing.T, r reply) string {
	t.Helper()
	body := r.json(t)
	delete(body, "request_id")
	return fmt.Sprint(r.status, r.header.Get("WWW-Authenticate"), r.header.Get("Cache-Control"), body)
}

// TestRoutesNeedPermissions: a route that nobody thought about is not served.
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

// TestPermissionsAreDocumented: operations name the scope that they need, and those that are public ask for no
// credentials.
func TestPermissionsAreDocumented(t *testing.T) {
	doc, checked := document(t), 0
	for _, r := range (&server{}).routes() {
		item := doc.Paths.Value(strings.NewReplacer(":namespace", "{namespace}", ":user", "{user}").Replace(r.path))
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
	require.Equal(t, len(whoMayDoWhat()), checked)
}

// TestBadEncodingIsNobodys: a namespace or user that is no name is not one that somebody may do something in.
func TestBadEncodingIsNobodys(t *testing.T) {
	guard, headers := callers(t)
	w := newGuardedWorld(t, fileStore(t), guard)
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
		require.Equal(t, want, w.sendTo(http.MethodPost, path, "", "Authorization: "+headers["alice"]).status, path)
	}
	// Who may do everything everywhere is told that it is no name.
	w.fails(codeInvalidNamespace, http.MethodGet, "/.hidden", "", "Authorization: "+headers["all"])
}

// TestReloadedAccess: a reload changes the authenticator.
func TestReloadedAccess(t *testing.T) {
	guard, headers := callers(t)
	w := newGuardedWorld(t, fileStore(t), guard)
	status := func() int {
		return w.send(http.MethodGet, "/chat/counts", "", "Authorization: "+headers["read"]).status
	}
	require.Equal(t, http.StatusOK, status())
	other, _ := callers(t)
	w.reload(func(c *Config) { c.Auth = other })
	require.Equal(t, http.StatusUnauthorized, status(), "the key is revoked")
	w.reload(func(c *Config) { c.Auth = nil })
	require.Equal(t, http.StatusOK, status(), "credentials are not needed any longer")
}

// TestKeysUnavailable: unknown is not unauthenticated.
func TestKeysUnavailable(t *testing.T) {
	w := newGuardedWorld(t, fileStore(t), withoutKeys(t))
	for _, r := range []reply{
		w.send(http.MethodGet, "/chat/users/alice", "", "Authorization: Bearer "+rsToken),
		w.send(http.MethodPost, "/chat/users/alice/leave", `{"token":"`+rsToken+`"}`),
	} {
		require.Equal(t, http.StatusServiceUnavailable, r.status)
		require.Equal(t, string(codeKeysUnavailable), r.json(t)["code"])
		require.NotEmpty(t, r.header.Get("Retry-After"))
		require.Empty(t, r.header.Get("WWW-Authenticate"))
		require.NotContains(t, r.body, "no route")
		require.Contains(t, w.log.String(), "no route to host")
		require.NotContains(t, w.log.String(), "level=ERROR", "anybody can send such tokens; the guard says it once")
	}
	w.fails(codeUnauthenticated, http.MethodGet, "/chat/users/alice", "")
	w.fails(codeUnauthenticated, http.MethodGet, "/chat/users/alice", "", "Authorization: Bearer ls_x")
}

// refusals provokes what is answered to callers who may not, for all requests.
func refusals(t *testing.T, s store.Store, calls []call) map[string]bool {
	t.Helper()
	guard := newGuard(t, auth.Config{Tokens: tokens()})
	answered := map[string]bool{}
	for _, refused := range []struct {
		guard *auth.Authenticator
		token string
	}{{guard, "x"}, {guard, token(t, "alice", noon+1000)}, {withoutKeys(t), rsToken}} {
		w := newGuardedWorld(t, s, refused.guard)
		for _, c := range calls {
			if !isPublic(c.path) {
				c.headers = append([]string{"Authorization: Bearer " + refused.token}, c.headers...)
				c.send(w)
			}
		}
		maps.Copy(answered, w.answers())
	}
	return answered
}
