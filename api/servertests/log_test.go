package servertests

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
)

// logTest is the handler without a network, so that a request is logged by the time it returns.
type logTest struct {
	t      *testing.T
	config api.Config
	api    http.Handler
	log    *bytes.Buffer
}

func newLogTest(t *testing.T, level slog.Level, changes ...func(*api.Config)) *logTest {
	t.Helper()
	l := &logTest{t: t, log: &bytes.Buffer{}}
	now := time.Unix(1_795_176_000, 0)
	l.config = api.Config{
		Store: kit.NewClockStore(kit.FileStore(t)), Settings: apitest.Settings(),
		Logger: slog.New(slog.NewJSONHandler(l.log, &slog.HandlerOptions{Level: level})),
		Now: func() time.Time {
			now = now.Add(1500 * time.Microsecond) // at each look
			return now
		},
	}
	for _, change := range changes {
		change(&l.config)
	}
	l.api = api.New(l.config)
	return l
}

// send sends a request with headers "Name: value", and returns the response and the lines logged.
func (l *logTest) send(method, target, body string, headers ...string) (*httptest.ResponseRecorder, []map[string]any) {
	l.t.Helper()
	l.log.Reset()
	w := kit.Serve(l.api, method, target, body, headers...)
	return w, kit.ParseLog(l.t, l.log.String())
}

func withAccessLog(c *api.Config) { c.AccessLog = true }

const chatAlice = "/v1/namespaces/chat-of-alice/users/alice"

func TestAccessLog(t *testing.T) {
	l := newLogTest(t, slog.LevelInfo, withAccessLog, apitest.Allowing(kit.AppOrigin))
	for _, c := range []struct {
		method, target, route string
		status                int
		headers               []string
	}{
		{"POST", chatAlice + "/ping", "/v1/namespaces/:namespace/users/:user/ping", 200, nil},
		{"GET", chatAlice, "/v1/namespaces/:namespace/users/:user", 200, nil},
		{"HEAD", chatAlice, "/v1/namespaces/:namespace/users/:user", 200, nil},
		{"GET", chatAlice + "?nonsense=alice", "/v1/namespaces/:namespace/users/:user", 400, nil},
		{"GET", "/nothing/alice", "", 404, nil},
		{"PUT", chatAlice, "/v1/namespaces/:namespace/users/:user", 405, nil},
		{"GET", "/v1/namespaces//users/alice", "", 400, nil},
		{"GET", "/healthz", "/healthz", 200, nil},
		{"OPTIONS", chatAlice + "/ping", "", 204, []string{"Origin: " + kit.AppOrigin, "Access-Control-Request-Method: POST"}},
	} {
		w, lines := l.send(c.method, c.target, "", append(c.headers, "X-Request-Id: mine")...)
		require.Equal(t, c.status, w.Code, c.target)
		require.Len(t, lines, 1, "%s %s", c.method, c.target)
		delete(lines[0], "time")
		require.Equal(t, map[string]any{
			"level": "INFO", "msg": "request", "method": c.method, "route": c.route, "status": float64(c.status),
			"duration_ms": 1.5, "caller": "address:192.0.2.1", "request_id": "mine", "bytes": float64(w.Body.Len()),
		}, lines[0])
		require.NotContains(t, l.log.String(), "alice", "neither users nor namespaces")
	}
}

func TestAccessLogIsOffByDefaultAndReloads(t *testing.T) {
	_, lines := newLogTest(t, slog.LevelDebug).send("GET", "/healthz", "")
	require.Empty(t, lines)
	l := newLogTest(t, slog.LevelInfo)
	for _, on := range []bool{true, false, true} {
		l.config.AccessLog = on
		l.api = api.New(l.config)
		_, lines := l.send("GET", "/healthz", "")
		require.Equal(t, on, len(lines) == 1)
	}
}

// TestAccessLogOfFailures checks that the access log has the status that was sent, and that the failure is logged
// once.
func TestAccessLogOfFailures(t *testing.T) {
	for _, s := range []*kit.HookedStore{
		kit.Failing(kit.FileStore(t), http.ErrBodyNotAllowed), kit.Panicking(kit.FileStore(t)),
	} {
		l := newLogTest(t, slog.LevelInfo, withAccessLog,
			func(c *api.Config) { c.Store = kit.NewClockStore(s) })
		w, lines := l.send("POST", chatAlice+"/ping", "")
		require.Equal(t, 500, w.Code)
		require.Len(t, lines, 2)
		require.Equal(t, "request failed", lines[0]["msg"])
		require.Equal(t, "request", lines[1]["msg"])
		require.EqualValues(t, 500, lines[1]["status"])
		require.Equal(t, lines[0]["request_id"], lines[1]["request_id"])
	}
}

// TestCallersInLog checks that callers are logged as they are rate limited: by key, by user without the user's name,
// or by address.
func TestCallersInLog(t *testing.T) {
	authenticator, headers := kit.Callers(t)
	guarded := func(c *api.Config) {
		c.Auth = authenticator
		c.Limits = limit.Limits{Caller: 1_000_000, User: 1}
	}
	l := newLogTest(t, slog.LevelInfo, withAccessLog, guarded, behindTrusted)
	caller := func(name string, more ...string) string {
		t.Helper()
		w, lines := l.send("GET", "/v1/namespaces/chat/users/alice", "", append(kit.HeadersOf(headers[name]), more...)...)
		require.Len(t, lines, 1, w.Body)
		require.NotContains(t, l.log.String(), "alice")
		return lines[0]["caller"].(string)
	}
	require.Equal(t, "key:read", caller("read"))
	require.Equal(t, "key:ping", caller("ping"), "a refused one, too")
	require.Equal(t, "address:203.0.113.7", caller("nobody", kit.ForwardedFor("203.0.113.7")))
	require.Equal(t, "address:203.0.113.7", caller("garbage", kit.ForwardedFor("203.0.113.7")))
	alice := caller("alice")
	require.Regexp(t, `^user:[0-9a-f]{16}$`, alice)
	require.NotEqual(t, alice, caller("bob"))
	for range 2 * limit.Burst(1) { // until it is 429
		require.Equal(t, alice, caller("alice"))
	}
	other := newLogTest(t, slog.LevelInfo, withAccessLog, guarded)
	_, lines := other.send("GET", "/v1/namespaces/chat/users/alice", "", kit.HeadersOf(headers["alice"])...)
	require.NotEqual(t, alice, lines[0]["caller"], "nobody can compute the hash elsewhere")
}

func behindTrusted(c *api.Config) {
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
}

// TestRefusalsAtDebug checks that each refusal logs one line with the reason, the request ID and the code.
func TestRefusalsAtDebug(t *testing.T) {
	authenticator, headers := kit.Callers(t)
	guarded := func(c *api.Config) { c.Auth = authenticator }
	debug, info := newLogTest(t, slog.LevelDebug, guarded), newLogTest(t, slog.LevelInfo, guarded)
	for _, c := range []struct {
		method, target, as string
		code               problem.Code
		reason, caller     string
	}{
		{"GET", "/v1/namespaces/chat/counts", "ping", problem.Forbidden, "scope read", "key:ping"},
		{"GET", "/v1/namespaces/chat/counts", "nobody", problem.Unauthenticated, "Authorization", "address:192.0.2.1"},
		{
			"GET", "/v1/namespaces/chat/counts", "alice, expired", problem.Unauthenticated, "expired",
			"address:192.0.2.1",
		},
		{"GET", "/v1/namespaces/chat/counts", "stranger", problem.Unauthenticated, "no such key", "address:192.0.2.1"},
		{"POST", "/v1/namespaces/chat/users/bob/ping", "alice", problem.Forbidden, "its own user", "user:"},
		{"GET", "/v1/namespaces/chat/counts?x=1", "all", problem.UnknownParameter, "parameter", "key:all"},
		{"GET", "/nothing", "nobody", problem.NotFound, "/docs/", "address:192.0.2.1"},
		{"PUT", "/healthz", "nobody", problem.MethodNotAllowed, "method", "address:192.0.2.1"},
	} {
		w, lines := debug.send(c.method, c.target, "", kit.HeadersOf(headers[c.as])...)
		require.Len(t, lines, 1, "%s %s", c.target, c.as)
		line := lines[0]
		require.Equal(t, "DEBUG", line["level"])
		require.Equal(t, string(c.code), line["code"])
		require.EqualValues(t, w.Code, line["status"])
		require.Equal(t, w.Header().Get("X-Request-Id"), line["request_id"])
		require.Contains(t, line["reason"], c.reason)
		require.Contains(t, line["caller"], c.caller)
		_, lines = info.send(c.method, c.target, "", kit.HeadersOf(headers[c.as])...)
		require.Empty(t, lines)
	}
}

// TestRefusalsQuoteShortText checks that text of callers in the log is short, on one line, and without credentials.
func TestRefusalsQuoteShortText(t *testing.T) {
	l := newLogTest(t, slog.LevelDebug)
	text := func(target, body string, headers ...string) string {
		t.Helper()
		method := "GET"
		if body != "" {
			method = "POST"
		}
		_, lines := l.send(method, target, body, headers...)
		require.Len(t, lines, 1, target)
		require.Less(t, l.log.Len(), 1000)
		return l.log.String()
	}
	key, _ := auth.NewKey()
	require.NotContains(t, text("/v1/namespaces/chat/counts?"+key+"=1", ""), key[:20])
	require.NotContains(t, text("/v1/namespaces/chat/counts?from=eyJhbGciOiJIUzI1NiJ9.e30.x", ""), "eyJhbG")
	require.Equal(t, 1, strings.Count(text("/v1/namespaces/chat/counts?%0Alevel%3DERROR%1b[31m=1", ""), "\n"))
	require.NotContains(t, l.log.String(), "\x1b")
	text("/v1/namespaces/chat/pings", `{"pings":[`+strings.Repeat(`{"user":"a\u0007"},`, 100)+`{"user":""}]}`)
	text("/v1/namespaces/chat/counts?from="+strings.Repeat("é", 4000), "")
	for n := range 10 {
		require.True(t, utf8.ValidString(telemetry.Bounded(strings.Repeat("é☺😀", 9)[:60], n)))
	}
}

// TestRefusedPreflights checks the log of refused preflights. Their status does not show it: browsers use the
// headers, operators the log.
func TestRefusedPreflights(t *testing.T) {
	const ping = "/v1/namespaces/chat/users/alice/ping"
	alice := strings.TrimSuffix(ping, "/ping")
	ask := func(origin, method string, headers ...string) []string {
		return []string{
			"Origin: " + origin, "Access-Control-Request-Method: " + method,
			"Access-Control-Request-Headers: " + strings.Join(headers, ", "),
		}
	}
	some, none := newLogTest(t, slog.LevelDebug, apitest.Allowing(kit.AppOrigin)), newLogTest(t, slog.LevelDebug)
	for _, c := range []struct {
		l       *logTest
		method  string
		headers []string
		message string
		reason  string
	}{
		{some, "OPTIONS", ask(kit.LocalOrigin, "POST", "authorization"), "preflight refused", "cors-origins"},
		{none, "OPTIONS", ask(kit.AppOrigin, "POST"), "preflight refused", "cors-origins"},
		{some, "OPTIONS", ask(kit.AppOrigin, "TRACE"), "preflight refused", "TRACE"},
		{some, "OPTIONS", ask(kit.AppOrigin, "POST", "content-type", "x-mine"), "preflight refused", "x-mine"},
		{some, "OPTIONS", ask(kit.AppOrigin, "POST", "content-type", "authorization"), "", ""},
		{some, "OPTIONS", nil, "", ""},
		{some, "POST", []string{"Origin: " + kit.AppOrigin}, "", ""},
		{some, "GET", []string{"Origin: " + kit.LocalOrigin}, "response withheld from page", "cors-origins"},
		{some, "POST", []string{"Origin: " + kit.LocalOrigin}, "response withheld from page", "cors-origins"},
		{none, "POST", []string{"Origin: http://localhost"}, "", ""}, // a page of this server
	} {
		at := map[bool]string{true: alice, false: ping}[c.method == "GET"]
		w, lines := c.l.send(c.method, at, "", c.headers...)
		if c.message == "" {
			require.Empty(t, lines, "%v", c.headers)
			continue
		}
		if c.method == "POST" { // which a server without authentication refuses, too
			require.Len(t, lines, 2)
			require.Equal(t, "request refused", lines[1]["msg"])
			require.Contains(t, lines[1]["reason"], "--cors-origins")
			lines = lines[:1]
		}
		require.Len(t, lines, 1, "%v", c.headers)
		require.Equal(t, c.message, lines[0]["msg"])
		require.Contains(t, lines[0]["reason"], c.reason)
		require.Equal(t, strings.TrimPrefix(c.headers[0], "Origin: "), lines[0]["origin"])
		require.Equal(t, w.Header().Get("X-Request-Id"), lines[0]["request_id"])
	}
}

// TestRefusedOrigins: at level info, each origin that is refused has one line an hour, for all its pages and requests.
// What else browsers refuse has none. Origins after the first 32 share one line: callers choose them.
func TestRefusedOrigins(t *testing.T) {
	l := newLogTest(t, slog.LevelInfo, apitest.Allowing(kit.AppOrigin))
	refused := func(method string, headers ...string) []map[string]any {
		_, lines := l.send(method, "/v1/namespaces/chat/users/alice", "", headers...)
		return lines
	}
	require.Empty(t, refused("OPTIONS", "Origin: "+kit.AppOrigin, "Access-Control-Request-Method: TRACE"))
	for n := range 40 {
		origin := fmt.Sprintf("https://%d.example", n)
		lines := refused("OPTIONS", "Origin: "+origin, "Access-Control-Request-Method: POST")
		require.Empty(t, refused("GET", "Origin: "+origin))
		if n > 32 {
			require.Empty(t, lines)
			continue
		}
		require.Len(t, lines, 1)
		require.Equal(t, "INFO", lines[0]["level"])
		if n == 32 {
			require.Nil(t, lines[0]["origin"])
			continue
		}
		require.Equal(t, origin, lines[0]["origin"])
		require.Equal(t, "the origin is not one of cors-origins", lines[0]["reason"])
	}
}

// TestCredentialsAreNotLogged checks that the log has the reason for a refusal, with the request ID, but never the
// credentials.
func TestCredentialsAreNotLogged(t *testing.T) {
	w, headers := apitest.NewGuardedServer(t)
	for name, reason := range map[string]string{
		"alice, expired": "expired", "stranger": "no such key", "garbage": "malformed", "basic": "not Bearer",
	} {
		r := w.Send("GET", "/chat/users/alice", "", kit.BearerOf(headers[name]))
		require.Contains(t, w.Log.String(), r.Header.Get("X-Request-Id"))
		require.Contains(t, w.Log.String(), reason)
	}
	long, encoded := strings.Repeat("x", 3000), base64.RawURLEncoding.EncodeToString
	w.Send("GET", "/chat", "",
		kit.Bearer(encoded([]byte(`{"alg":"HS256"}`))+"."+encoded([]byte(`{"`+long+`":1,"`+long+`":2}`))+".x"))
	require.Contains(t, w.Log.String(), "duplicate")
	require.NotContains(t, w.Log.String(), long)
	for name, credentials := range headers {
		w.Send("POST", "/chat/users/alice/ping", "{", kit.HeadersOf(credentials)...)
		w.Send("DELETE", "/chat?"+url.QueryEscape(credentials), "", kit.HeadersOf(credentials)...)
		if _, secret, _ := strings.Cut(credentials, " "); len(secret) > 10 {
			require.NotContains(t, w.Log.String(), secret, name)
		}
	}
}
