package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
)

// tokenSecret is what the tokens of these tests are signed with.
var tokenSecret = []byte(strings.Repeat("secret..", 4))

// token returns a JWT of a user, that is good until an instant, for some namespaces.
func token(t *testing.T, user string, until lastseen.Instant, namespaces ...string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "issuer", "aud": "lastseen", "sub": user, "exp": int64(until / 1000),
		"namespaces": append([]string{}, namespaces...),
	}).SignedString(tokenSecret)
	require.NoError(t, err)
	return text
}

func tokens() *auth.Tokens {
	return &auth.Tokens{Secret: tokenSecret, Issuer: "issuer", Audience: "lastseen"}
}

// newGuard makes a guard whose time is noon.
func newGuard(t *testing.T, c auth.Config) *auth.Authenticator {
	t.Helper()
	guard, err := auth.New(c, auth.Options{Now: func() time.Time { return time.UnixMilli(int64(noon)) }})
	require.NoError(t, err)
	t.Cleanup(guard.Close)
	return guard
}

// callers returns a guard, and headers of all kinds of callers by name: none, wrong ones, services with each of the
// scopes, and users.
func callers(t *testing.T) (*auth.Authenticator, map[string]string) {
	t.Helper()
	c := auth.Config{Tokens: tokens(), AnonymousRead: []auth.Pattern{"public-*"}}
	unknown, _ := auth.NewKey()
	const hour = 3_600_000
	headers := map[string]string{
		"nobody": "", "stranger": "Bearer " + unknown, "garbage": "Bearer x.y.z", "basic": "Basic YTpi",
		"empty":            "Bearer",
		"alice":            "Bearer " + token(t, "alice", noon+hour, "chat", "chadow"),
		"alice, expired":   "Bearer " + token(t, "alice", noon-hour, "chat"),
		"alice, elsewhere": "Bearer " + token(t, "alice", noon+hour, "other"),
		"alice, nowhere":   "Bearer " + token(t, "alice", noon+hour),
		"bob":              "Bearer " + token(t, "bob", noon+hour, "chat", "chadow"),
	}
	for name, key := range map[string]auth.Key{
		"ping": {Scopes: []auth.Scope{auth.Ping}}, "read": {Scopes: []auth.Scope{auth.Read}},
		"admin":          {Scopes: []auth.Scope{auth.Admin}},
		"all":            {Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"*"}},
		"all, elsewhere": {Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"other", "chats*"}},
	} {
		text, hash := auth.NewKey()
		key.Name, key.Hash = name, hash
		if key.Namespaces == nil {
			key.Namespaces = []auth.Pattern{"cha*"}
		}
		c.Keys = append(c.Keys, key)
		headers[name] = "Bearer " + text
	}
	return newGuard(t, c), headers
}

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
