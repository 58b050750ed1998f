package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// tokenSecret signs the tokens of these tests.
var tokenSecret = []byte(strings.Repeat("secret..", 4))

// token returns a JWT of a user that expires at an instant, for some namespaces.
func token(t testing.TB, user string, until lastseen.Instant, namespaces ...string) string {
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

// newAuthenticator returns an authenticator whose time is testNow.
func newAuthenticator(t *testing.T, c auth.Config) *auth.Authenticator {
	t.Helper()
	authenticator, err := auth.New(c, auth.Options{Now: func() time.Time { return time.UnixMilli(int64(testNow)) }})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator
}

// newKey returns a key for the namespaces of a pattern, and its text.
func newKey(name string, namespaces auth.Pattern, scopes ...auth.Scope) (key auth.Key, text string) {
	text, hash := auth.NewKey()
	return auth.Key{Name: name, Hash: hash, Scopes: scopes, Namespaces: []auth.Pattern{namespaces}}, text
}

// callers returns an authenticator, and Authorization headers of all kinds of callers by name: none, invalid ones,
// services with each of the scopes, and users.
func callers(t *testing.T) (*auth.Authenticator, map[string]string) {
	t.Helper()
	c := auth.Config{Tokens: tokens(), AnonymousRead: []auth.Pattern{"public-*"}}
	unknown, _ := auth.NewKey()
	const hour = 3_600_000
	headers := map[string]string{
		"nobody": "", "stranger": "Bearer " + unknown, "garbage": "Bearer x.y.z", "basic": "Basic YTpi",
		"empty":            "Bearer",
		"alice":            "Bearer " + token(t, "alice", testNow+hour, "chat", "chadow"),
		"alice, expired":   "Bearer " + token(t, "alice", testNow-hour, "chat"),
		"alice, elsewhere": "Bearer " + token(t, "alice", testNow+hour, "other"),
		"alice, nowhere":   "Bearer " + token(t, "alice", testNow+hour),
		"bob":              "Bearer " + token(t, "bob", testNow+hour, "chat", "chadow"),
	}
	for name, scopes := range map[string][]auth.Scope{
		"ping": {auth.Ping}, "read": {auth.Read}, "admin": {auth.Admin}, "all": auth.Scopes(),
		"all, elsewhere": auth.Scopes(),
	} {
		key, text := newKey(name, "cha*", scopes...)
		switch name {
		case "all":
			key.Namespaces = []auth.Pattern{"*"}
		case "all, elsewhere":
			key.Namespaces = []auth.Pattern{"other", "chats*"}
		}
		c.Keys = append(c.Keys, key)
		headers[name] = "Bearer " + text
	}
	return newAuthenticator(t, c), headers
}

func headersOf(credentials string) []string {
	if credentials == "" {
		return nil
	}
	return []string{bearerOf(credentials)}
}

// bearerOf returns the header with credentials of [callers].
func bearerOf(credentials string) string { return "Authorization: " + credentials }

// twoKeys configures two keys and JWTs that the returned function makes.
func twoKeys(t *testing.T) (guarded func(*Config), one, two string, token func(user string) string) {
	t.Helper()
	oneKey, one := newKey("one", "*", auth.Scopes()...)
	twoKey, two := newKey("two", "*", auth.Scopes()...)
	authenticator, token0 := signed(t, func(c *auth.Config) {
		c.Keys, c.AnonymousRead = []auth.Key{oneKey, twoKey}, []auth.Pattern{"*"}
	})
	return func(c *Config) {
		behindProxy(c)
		c.Auth = authenticator
		c.Limits = limit.Limits{Caller: 1, User: 2}
	}, one, two, func(user string) string { return token0(user, time.Hour) }
}

func bearer(credentials string) string { return "Authorization: Bearer " + credentials }

// withoutKeys returns an authenticator whose issuer is unreachable.
func withoutKeys(t *testing.T) *auth.Authenticator {
	t.Helper()
	issuer := &auth.Tokens{JWKS: "https://issuer.example/keys", Issuer: "issuer", Audience: "lastseen"}
	authenticator, err := auth.New(auth.Config{Tokens: issuer},
		auth.Options{Transport: unreachable{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator
}

// unreachable is the transport of a server without a network.
type unreachable struct{}

// RoundTrip fails; see [http.RoundTripper].
func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}

// rsToken looks like a token of an issuer that publishes its keys.
const rsToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.AAAA"

// signed returns an authenticator whose time is the machine's, and a function that makes tokens for it.
func signed(
	t *testing.T, changes ...func(*auth.Config),
) (*auth.Authenticator, func(user string, d time.Duration) string) {
	t.Helper()
	c := auth.Config{Tokens: tokens()}
	c.Tokens.Namespaces = []auth.Pattern{"*"}
	for _, change := range changes {
		change(&c)
	}
	authenticator, err := auth.New(c, auth.Options{})
	require.NoError(t, err)
	t.Cleanup(authenticator.Close)
	return authenticator, func(user string, d time.Duration) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"iss": "issuer", "aud": "lastseen", "sub": user, "exp": float64(time.Now().Add(d).UnixMilli()) / 1000,
		}).SignedString(tokenSecret)
		require.NoError(t, err)
		return text
	}
}

// newGuardedServer serves a store to authenticated callers, and returns the Authorization headers of [callers].
func newGuardedServer(t *testing.T) (*testServer, map[string]string) {
	t.Helper()
	authenticator, headers := callers(t)
	return newAuthServer(t, fileStore(t), authenticator), headers
}

// newGuardedSocketServer is newGuardedServer for WebSockets.
func newGuardedSocketServer(t *testing.T, changes ...func(*Config)) (*testServer, map[string]string) {
	t.Helper()
	authenticator, headers := callers(t)
	return newSocketServer(t, append(changes, func(c *Config) { c.Auth = authenticator })...), headers
}

const callsPath = "/chat/calls"

// ring begins a call in the namespace chat.
func (w *testServer) ring(id, from, to string) {
	w.t.Helper()
	_, err := w.store.StartCall(context.Background(), "chat", store.NewCall{
		ID: id, From: from, To: to, Ring: time.Hour, Quiet: time.Hour,
	})
	require.NoError(w.t, err)
}

// act does an action in a call in the namespace chat.
func (w *testServer) act(id, user string, action lastseen.CallAction) {
	w.t.Helper()
	step, err := w.store.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	require.NoError(w.t, err)
	require.NotEqual(w.t, lastseen.Refused, step.Outcome)
}

// hangUp ends the call of a user that goes on, if there is one.
func (w *testServer) hangUp(user string) {
	w.t.Helper()
	going, err := w.store.ReadCalls(context.Background(), "chat", nil, []string{user})
	require.NoError(w.t, err)
	if going[0].ID != "" {
		w.act(going[0].ID, user, lastseen.End)
	}
}

// call begins a call with a request, and returns it.
func (w *testServer) call(body string, headers ...string) map[string]any {
	w.t.Helper()
	r := w.send("POST", callsPath, body, headers...).is(w.t, http.StatusCreated)
	made := r.json(w.t)
	require.Equal(w.t, "calls/"+made["id"].(string), r.header.Get("Location"), "relative to the path of the request")
	return made
}

// callPath returns the path of a call in a response.
func callPath(call map[string]any) string { return callsPath + "/" + call["id"].(string) }

// callResponses provokes those responses about calls that depend on calls before.
func callResponses(t *testing.T, s store.Store) map[string]bool {
	t.Helper()
	w := newTestServer(t, s)
	user := func(name string) string { return "documented " + name }
	body := func(from, to string) string { return `{"from":"` + user(from) + `","to":"` + user(to) + `"}` }
	by := func(name string) string { return `{"user":"` + user(name) + `"}` }
	w.fails(problem.InvalidCall, "POST", callsPath, body("alice", "alice"))
	w.fails(problem.CalleeUnavailable, "POST", callsPath, strings.Replace(body("alice", "bob"), "{", `{"if":"present",`, 1))
	first := w.call(body("alice", "bob"), "Idempotency-Key: documented")
	w.fails(problem.IdempotencyKeyReused, "POST", callsPath, body("alice", "carol"), "Idempotency-Key: documented")
	w.fails(problem.CallerBusy, "POST", callsPath, body("alice", "carol"))
	w.fails(problem.CalleeBusy, "POST", callsPath, body("carol", "bob"))
	w.get(callPath(first))
	w.post(callPath(first)+"/accept", by("bob"))
	w.post(callPath(first)+"/alive", by("alice"))
	for _, action := range []string{"accept", "alive"} {
		w.fails(problem.InvalidCall, "POST", callPath(first)+"/"+action,
			strings.Replace(by("bob"), "{", `{"app":"`+appOf(store.MaxCallApp+1)+`",`, 1))
	}
	w.post(callPath(first)+"/end", by("alice"))
	for _, action := range []string{"accept", "alive", "reject"} {
		w.fails(problem.CallRefused, "POST", callPath(first)+"/"+action, by("bob"))
	}
	second := w.call(body("alice", "bob"))
	w.post(callPath(second)+"/reject", by("bob"))
	w.fails(problem.CallRefused, "POST", callPath(second)+"/end", by("alice"))
	w.reload(func(c *Config) { c.Settings.RedialWait = time.Minute })
	third := w.call(body("alice", "bob"))
	w.post(callPath(third)+"/reject", by("bob"))
	w.fails(problem.CallTooSoon, "POST", callsPath, body("alice", "bob"))
	// a real one would need 100 of them
	crowded := newTestServer(t, failingCalls(s, store.ErrTooManyCalls, "StartCall"))
	r := crowded.send("POST", callsPath, body("alice", "bob")).is(t, http.StatusTooManyRequests)
	require.Equal(t, "60", r.header.Get("Retry-After"))
	responded := w.responses()
	for kind := range crowded.responses() {
		responded[kind] = true
	}
	return responded
}

// loadFrames reads docs/connections.schema.json as schemas of an OpenAPI document, which have another form of null.
var loadFrames = sync.OnceValues(func() (*openapi3.T, error) {
	text, err := os.ReadFile("../docs/connections.schema.json")
	if err != nil {
		return nil, err
	}
	var schema map[string]any
	text = []byte(strings.ReplaceAll(string(text), "#/$defs/", "#/components/schemas/"))
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	doc, err := json.Marshal(map[string]any{
		"openapi": "3.0.3", "info": map[string]any{"title": "frames", "version": "1"}, "paths": map[string]any{},
		"components": map[string]any{"schemas": nullable(schema["$defs"])},
	})
	if err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(doc)
})

// nullable replaces what allows null in a schema: lists of types, and no type.
func nullable(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = nullable(v[i])
		}
	case map[string]any:
		if types, ok := v["type"].([]any); ok {
			if types[1] == "null" {
				v["type"], v["nullable"] = types[0], true
			} else {
				delete(v, "type")
				v["anyOf"] = []any{map[string]any{"type": types[0]}, map[string]any{"type": types[1]}}
			}
		}
		if _, described := v["description"].(string); described && len(v) == 1 {
			v["nullable"] = true // as any other value
		}
		for name := range v {
			v[name] = nullable(v[name])
		}
	}
	return v
}

// checkFrame checks a frame against its schema, which is that of frames from the "client" or the "server".
func checkFrame(t *testing.T, from string, text []byte) {
	t.Helper()
	require.NoError(t, frameError(t, from, text), "%s", text)
}

func frameError(t *testing.T, from string, text []byte) error {
	t.Helper()
	doc, err := loadFrames()
	require.NoError(t, err)
	var frame any
	require.NoError(t, json.Unmarshal(text, &frame), "%s", text)
	name := from
	for key := range frame.(map[string]any) {
		if key != "id" {
			name = from + "_" + key // names the fault better than the schema of all frames
		}
	}
	require.Contains(t, doc.Components.Schemas, name)
	return doc.Components.Schemas[name].Value.VisitJSON(frame)
}
