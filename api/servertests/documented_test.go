package servertests

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestEveryDocumentedResponse provokes each documented status and each code of each operation on both stores. Other
// tests check with every exchange that there are no others.
func TestEveryDocumentedResponse(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		wanted, calls := kit.DocumentedResponses(w.Doc), exampleCalls(t, w.Doc)
		w.Store.Set(exampleNow)
		for _, c := range calls {
			for _, spoil := range spoilers() {
				spoiled := c
				spoil(&spoiled)
				spoiled.send(w)
			}
		}
		responded := w.Responses()
		for fault, causes := range storeErrors() {
			failed := apitest.NewServer(t, kit.Failing(w.Store.Store, causes[0]))
			for _, c := range calls {
				if wanted[fmt.Sprintf("%s %d %s", c.operation, fault.Type().Status, fault)] {
					c.send(failed)
				}
			}
			maps.Copy(responded, failed.Responses())
		}
		unfollowed := apitest.NewServer(t, w.Store.Store, func(c *api.Config) { c.Settings.Changes = feed.Off })
		for _, c := range calls {
			c.send(unfollowed)
		}
		maps.Copy(responded, unfollowed.Responses())
		deviceless := apitest.NewServer(t, kit.WithoutDevices(w.Store.Store))
		deviceless.Store.Set(exampleNow)
		for _, c := range calls {
			c.send(deviceless)
		}
		maps.Copy(responded, deviceless.Responses())
		for _, err := range []error{store.ErrNoAvailability, store.ErrEvicts} {
			silent := apitest.NewServer(t, kit.Failing(w.Store.Store, err))
			for _, c := range calls {
				if strings.HasPrefix(c.operation, "setAvail") ||
					strings.HasPrefix(c.operation, "deleteAvail") && errors.Is(err, store.ErrNoAvailability) {
					c.send(silent)
				}
			}
			maps.Copy(responded, silent.Responses())
		}
		for _, err := range []error{store.ErrNoContacts, store.ErrTooManyContacts, store.ErrContactsChanged} {
			alone := apitest.NewServer(t, kit.Failing(w.Store.Store, err))
			for _, c := range calls {
				if strings.HasSuffix(c.operation, "Contacts") &&
					(c.operation == "changeContacts" || errors.Is(err, store.ErrNoContacts) ||
						c.operation == "setContacts" && errors.Is(err, store.ErrContactsChanged)) {
					c.send(alone)
				}
			}
			maps.Copy(responded, alone.Responses())
		}
		alone := apitest.NewServer(t, kit.Failing(w.Store.Store, store.ErrNoCalls))
		for _, c := range calls {
			if strings.Contains(c.path, "/calls") {
				c.send(alone)
			}
		}
		maps.Copy(responded, alone.Responses())
		maps.Copy(responded, callResponses(t, w.Store.Store))
		refusing := apitest.NewServer(t, w.Store.Store, func(c *api.Config) { c.RefuseUnknown = true })
		for _, c := range calls {
			c.send(refusing)
		}
		refusing.Config.Shared.Drain()
		for _, c := range calls {
			c.send(refusing)
		}
		maps.Copy(responded, refusing.Responses())
		maps.Copy(responded, refusals(t, w.Store.Store, slices.Collect(maps.Values(calls))))
		maps.Copy(responded, rateLimited(t, w, calls))
		maps.Copy(responded, upgrades(t, w))
		maps.Copy(responded, reloaded(t, w.Store.Store))
		require.Equal(t, slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(responded)))
	})
}

// spoilers returns changes of a valid request. Most of them make most requests invalid.
func spoilers() []func(*call) {
	query := func(pairs ...string) func(*call) {
		return func(c *call) {
			c.query = maps.Clone(c.query)
			for i := 0; i < len(pairs); i += 2 {
				c.query.Set(pairs[i], pairs[i+1])
			}
		}
	}
	header := func(h string) func(*call) { return func(c *call) { c.headers = append([]string{h}, c.headers...) } }
	path := func(old, changed string) func(*call) {
		return func(c *call) { c.path = strings.Replace(c.path, old, changed, 1) }
	}
	body := func(old, changed string) func(*call) {
		return func(c *call) { c.body = strings.Replace(c.body, old, changed, 1) }
	}
	method := func(m string) func(*call) { return func(c *call) { c.method = m } }
	return []func(*call){
		func(*call) {}, header("Prefer: return=minimal"), header("If-None-Match: *"), method("HEAD"),
		method("OPTIONS"), method("TRACE"), path("chat", ""), path("alice", ""), path("/", "//"),
		func(c *call) { c.path += "/" },
		path("chat", ".hidden"), path("webhooks/app", "webhooks/other"),
		path("alice", "%00"), query("user", ""), body(`"alice"`, `""`),
		query("as_of", "soon"), query("wait", "soon"), body(`{"users"`, `{"wait":"soon","users"`),
		body(`{"users"`, `{"cursor":"AAAA","users"`), query("green", "0"), query("green", "2s", "yellow", "1s"),
		query("to", "20", "as_of", "10"),
		query("cursor", "AAAA"), query("stauts", "green"), query("confirm", "other"),
		func(c *call) { c.rawQuery = "limit=%zz" },
		body("{}", `{"at":0}`), body(`{"user":"alice"}`, `{"user":"alice","at":0}`),
		body("{", ""), body("{", `{"x":1,`), body("{}", `{"x":1}`), body("{", "{"+strings.Repeat(" ", 5000)),
		body("{", "{"+strings.Repeat(" ", 1<<20)),
		body(`"busy"`, `"asleep"`), body(`"in a meeting"`, `"\u0000"`), body(`"1h"`, `"soon"`),
		body(`"for":"1h"`, `"until":"soon"`), body(`"alice"`, strings.Repeat(`"alice",`, 1000)+`"alice"`),
		body(`[{`, `[`+strings.Repeat(`{"user":"alice"},`, 10_000)+`{`),
		body(`"bob"`, strings.Repeat(`"bob",`, store.MaxContacts)+`"bob"`), body(`"bob"`, `"\u0000"`),
		func(c *call) { c.query = url.Values{"user": slices.Repeat([]string{"alice"}, 101)} },
		body("{", `{"device":{"id":""},`), body(`"tab-9f2c1b"`, `""`),
		body("5s", "61s"), body("{", `{"device":"\u0000",`), header("Content-Type: application/xml"),
		func(c *call) { c.headers = append(c.headers, manyHeaders(kit.MaxHeaderLines+1)...) },
	}
}

// refusals sends all requests without the permission and returns the kinds of response.
func refusals(t *testing.T, s store.Store, calls []call) map[string]bool {
	t.Helper()
	authenticator := kit.NewAuthenticator(t, auth.Config{Tokens: kit.Tokens()})
	responded := map[string]bool{}
	for _, refused := range []struct {
		authenticator *auth.Authenticator
		token         string
	}{{authenticator, "x"}, {authenticator, kit.Token(t, "alice", kit.Now+1000)}, {kit.WithoutKeys(t), kit.RSToken}} {
		w := apitest.NewAuthServer(t, s, refused.authenticator)
		for _, c := range calls {
			if !kit.IsPublic(c.path) {
				c.headers = append([]string{"Authorization: Bearer " + refused.token}, c.headers...)
				c.send(w)
			}
		}
		maps.Copy(responded, w.Responses())
	}
	return responded
}

// upgrades provokes the responses of requests for WebSockets, and returns their kinds.
func upgrades(t *testing.T, w *apitest.Server) map[string]bool {
	t.Helper()
	full := apitest.NewServer(t, w.Store.Store, apitest.BehindProxy, func(c *api.Config) {
		c.WebSockets = api.WebSocketLimits{Max: 2, PerAddress: 1}
	})
	get := func(w *apitest.Server, path string, headers ...string) {
		t.Helper()
		_ = w.SendTo("GET", path, "", headers...)
	}
	const path = "/v1/namespaces/chat/connect"
	get(full, path)
	get(full, "/v1/namespaces/.hidden/connect", kit.UpgradeHeaders()...)
	get(full, path+"?token=x", kit.UpgradeHeaders()...)
	get(full, path, append(kit.UpgradeHeaders(), "Sec-WebSocket-Key: again")...)
	get(full, path, kit.UpgradeHeaders("Origin: https://evil.example")...)
	full.DialSocket("chat", kit.ForwardedFor("203.0.113.7"))
	get(full, path, kit.UpgradeHeaders(kit.ForwardedFor("203.0.113.7"))...)
	full.DialSocket("chat")
	get(full, path, kit.UpgradeHeaders()...)
	full.Config.Shared.Drain()
	get(full, path, kit.UpgradeHeaders()...)
	return responsesOf(full, "connect")
}

// responsesOf returns the kinds of response of an operation so far.
func responsesOf(w *apitest.Server, operation string) map[string]bool {
	all := w.Responses()
	maps.DeleteFunc(all, func(kind string, _ bool) bool { return !strings.HasPrefix(kind, operation+" ") })
	return all
}

// reloaded provokes the responses to requests that wait while a reload changes who sees the users of their namespace.
func reloaded(t *testing.T, s store.Store) map[string]bool {
	t.Helper()
	w := apitest.NewServer(t, s, apitest.WithStoreTime(s))
	cursor := kit.CursorOf(w.Get("/chat/changes?user=alice"))
	none := func() bool { return w.Config.Feeds.Stats().Watchers == 0 }
	require.Eventually(t, none, kit.Eventually, kit.Tick)
	for method, request := range map[string][2]string{
		http.MethodGet:  {"?user=alice&wait=50s&cursor=" + cursor, ""},
		http.MethodPost: {"", `{"users":["alice"],"wait":"50s","cursor":"` + cursor + `"}`},
	} {
		polled := make(chan kit.Response, 1)
		go func() { polled <- w.Send(method, "/chat/changes"+request[0], request[1]) }()
		require.Eventually(t, func() bool { return w.Config.Feeds.Stats().Watchers == 1 }, kit.Eventually, kit.Tick)
		w.Reload(func(c *api.Config) {
			if c.Settings.Visibility == api.VisibleToContacts {
				c.Settings.Visibility = api.VisibleToEveryone
			} else {
				c.Settings.Visibility = api.VisibleToContacts
			}
		})
		require.Equal(t, http.StatusServiceUnavailable, (<-polled).Status)
		require.Eventually(t, none, kit.Eventually, kit.Tick)
	}
	return w.Responses()
}

// callResponses provokes those responses about calls that depend on calls before.
func callResponses(t *testing.T, s store.Store) map[string]bool {
	t.Helper()
	w := apitest.NewServer(t, s)
	user := func(name string) string { return "documented " + name }
	body := func(from, to string) string { return `{"from":"` + user(from) + `","to":"` + user(to) + `"}` }
	by := func(name string) string { return `{"user":"` + user(name) + `"}` }
	w.Fails(problem.InvalidCall, "POST", kit.CallsPath, body("alice", "alice"))
	w.Fails(problem.CalleeUnavailable, "POST", kit.CallsPath, strings.Replace(body("alice", "bob"), "{", `{"if":"present",`, 1))
	first := w.Call(body("alice", "bob"), "Idempotency-Key: documented")
	w.Fails(problem.IdempotencyKeyReused, "POST", kit.CallsPath, body("alice", "carol"), "Idempotency-Key: documented")
	w.Fails(problem.CallerBusy, "POST", kit.CallsPath, body("alice", "carol"))
	w.Fails(problem.CalleeBusy, "POST", kit.CallsPath, body("carol", "bob"))
	w.Get(kit.CallPath(first))
	w.Post(kit.CallPath(first)+"/accept", by("bob"))
	w.Post(kit.CallPath(first)+"/alive", by("alice"))
	for _, action := range []string{"accept", "alive"} {
		w.Fails(problem.InvalidCall, "POST", kit.CallPath(first)+"/"+action,
			strings.Replace(by("bob"), "{", `{"app":"`+kit.AppOf(store.MaxCallApp+1)+`",`, 1))
	}
	w.Post(kit.CallPath(first)+"/end", by("alice"))
	for _, action := range []string{"accept", "alive", "reject"} {
		w.Fails(problem.CallRefused, "POST", kit.CallPath(first)+"/"+action, by("bob"))
	}
	second := w.Call(body("alice", "bob"))
	w.Post(kit.CallPath(second)+"/reject", by("bob"))
	w.Fails(problem.CallRefused, "POST", kit.CallPath(second)+"/end", by("alice"))
	w.Reload(func(c *api.Config) { c.Settings.RedialWait = time.Minute })
	third := w.Call(body("alice", "bob"))
	w.Post(kit.CallPath(third)+"/reject", by("bob"))
	w.Fails(problem.CallTooSoon, "POST", kit.CallsPath, body("alice", "bob"))
	// a real one would need 100 of them
	crowded := apitest.NewServer(t, kit.FailingCalls(s, store.ErrTooManyCalls, "StartCall"))
	r := crowded.Send("POST", kit.CallsPath, body("alice", "bob")).Is(t, http.StatusTooManyRequests)
	require.Equal(t, "60", r.Header.Get("Retry-After"))
	responded := w.Responses()
	for kind := range crowded.Responses() {
		responded[kind] = true
	}
	return responded
}
