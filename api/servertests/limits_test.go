package servertests

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestLimits checks the response to a caller above the limit, and that other callers are not affected.
func TestLimits(t *testing.T) {
	now := time.Unix(0, 0)
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy, func(c *api.Config) {
		c.Now, c.Limits = func() time.Time { return now }, limit.Limits{Caller: 3, User: 1}
	})
	pings := func(n int, address string) (last kit.Response) {
		for range n {
			last = w.Send("POST", kit.AlicePing, "", kit.ForwardedFor(address)).Is(t, http.StatusOK)
		}
		return last
	}
	pings(15, "203.0.113.7")
	refused := w.Send("POST", kit.AlicePing, "", kit.ForwardedFor("203.0.113.7")).Is(t, http.StatusTooManyRequests)
	for name, want := range map[string]string{
		"Retry-After": "3", // a second, and half of the window, since Random is 0.5
		"RateLimit":   `"address";r=0;t=1`, "RateLimit-Policy": `"address";q=15;w=5`, "Cache-Control": "no-store",
	} {
		require.Equal(t, want, refused.Header.Get(name))
	}
	w.Fails(problem.RateLimited, "GET", "/chat?what=is+this", "", kit.ForwardedFor("203.0.113.7"))
	require.NotRegexp(t, "level=(INFO|WARN|ERROR)", w.Log.String(), "only at level debug")
	responded := pings(1, "203.0.113.8") // somebody else
	require.Empty(t, responded.Header.Get("RateLimit"), "who is within the limit is not bothered with it")

	now = now.Add(time.Second)
	pings(3, "203.0.113.7")
	w.Fails(problem.RateLimited, "POST", kit.AlicePing, "", kit.ForwardedFor("203.0.113.7"))
	w.Reload(func(*api.Config) {}) // which does not refill buckets
	w.Fails(problem.RateLimited, "POST", kit.AlicePing, "", kit.ForwardedFor("203.0.113.7"))
	w.Reload(func(c *api.Config) { c.Limits = limit.Limits{} })
	pings(1, "203.0.113.7")
}

// TestLimitsOfAddresses checks which addresses share a limit, and that one of this machine that a proxy names has one.
func TestLimitsOfAddresses(t *testing.T) {
	t.Parallel()
	for _, local := range []string{
		"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "unknown", "", "203.0.113.7, ::1",
	} {
		w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy)
		w.Spend(kit.ForwardedFor(local))
		w.Fails(problem.RateLimited, "GET", "/chat", "", kit.ForwardedFor(local))
	}
	unknownProxy := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy,
		func(c *api.Config) { c.TrustedProxies = nil })
	for range 2 {
		// a proxy that is not configured would be one caller for everybody
		unknownProxy.Spend(kit.ForwardedFor("203.0.113.7"))
	}
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy)
	w.Spend(kit.ForwardedFor("2001:db8:0:1::1"))
	w.Fails(problem.RateLimited, "GET", "/chat", "", kit.ForwardedFor("2001:db8:0:1:ffff::2"))
	w.Spend(kit.ForwardedFor("2001:db8:0:2::1"))
	w.Spend(kit.ForwardedFor("203.0.113.7"))
	for _, same := range []string{
		"::ffff:203.0.113.7", " 203.0.113.7 ", "[203.0.113.7]", "198.51.100.1, 203.0.113.7", "127.0.0.1,203.0.113.7",
	} {
		w.Fails(problem.RateLimited, "GET", "/chat", "", kit.ForwardedFor(same))
	}
	w.Fails(problem.RateLimited, "GET", "/chat", "", kit.ForwardedFor("198.51.100.1"), kit.ForwardedFor("203.0.113.7"))
}

// TestLimitsOfCallers checks that an authenticated caller has one limit, from any address.
func TestLimitsOfCallers(t *testing.T) {
	guarded, one, two, token := apitest.TwoKeys(t)
	w := apitest.NewServer(t, kit.FileStore(t), guarded)
	home, cafe := kit.ForwardedFor("203.0.113.7"), kit.ForwardedFor("198.51.100.1")
	refused := func(headers ...string) http.Header {
		t.Helper()
		r := w.Send("GET", "/chat", "", headers...).Is(t, http.StatusTooManyRequests)
		return r.Header
	}
	w.Spend(kit.Bearer(one), home)
	require.Equal(t, `"key";q=5;w=5`, refused(kit.Bearer(one), cafe).Get("RateLimit-Policy"))
	refused(kit.Bearer(one)) // from this machine, too
	w.Spend(kit.Bearer(two), home)

	w.Spend(kit.Bearer(token("alice")), home)
	w.Spend(kit.Bearer(token("alice")), cafe)
	require.Equal(t, `"user";q=10;w=5`, refused(kit.Bearer(token("alice"))).Get("RateLimit-Policy"),
		"another token of the same user")
	w.Spend(kit.Bearer(token("one")), home)

	w.Spend(home)
	require.Equal(t, `"address";q=5;w=5`, refused(home).Get("RateLimit-Policy"), "who does not say who they are")
	w.Spend(kit.Bearer(token("bob")), home) // is nothing to who does
}

// TestLimitsOfRefusedRequests checks that requests with invalid credentials count for their address only, and forbidden
// ones for their caller.
func TestLimitsOfRefusedRequests(t *testing.T) {
	guarded, one, _, token := apitest.TwoKeys(t)
	w := apitest.NewServer(t, kit.FileStore(t), guarded)
	wrong, office := kit.Bearer("ls_wrong"), kit.ForwardedFor("203.0.113.7")
	for range limit.Burst(1) {
		w.Fails(problem.Unauthenticated, "GET", "/chat", "", wrong, office)
	}
	w.Fails(problem.RateLimited, "GET", "/chat", "", wrong, office)
	w.Fails(problem.RateLimited, "GET", "/chat", "", office)
	w.Spend(kit.Bearer(one), office)
	w.Fails(problem.Unauthenticated, "GET", "/chat", "", wrong, kit.ForwardedFor("203.0.113.8"))
	for range limit.Burst(2) {
		w.Fails(problem.Forbidden, "DELETE", kit.AliceUser, "", kit.Bearer(token("alice")))
	}
	w.Fails(problem.RateLimited, "DELETE", kit.AliceUser, "", kit.Bearer(token("alice")))
}

// TestLimitsOfConnections: an upgrade counts for its address before anything is read, whatever comes of it, and a hello
// for its caller.
func TestLimitsOfConnections(t *testing.T) {
	guarded, one, _, token := apitest.TwoKeys(t)
	w := apitest.NewSocketServer(t, guarded)
	office := kit.ForwardedFor("203.0.113.7")
	for range limit.Burst(1) - 2 {
		s := w.DialSocket("chat", office)
		s.Send(`{"hello":` + strings.Repeat("[", lastseen.MaxDepth))
		s.Fails(problem.InvalidJSON)
	}
	w.Fails(problem.UpgradeRequired, "GET", "/chat/connect", "", office)
	w.Hello(`{"user":"alice","token":"`+token("alice")+`"}`, office)
	refused := w.Send("GET", "/chat/connect", "", kit.UpgradeHeaders(office, kit.Bearer(one))...)
	refused.Is(t, http.StatusTooManyRequests)
	require.Equal(t, `"address";q=5;w=5`, refused.Header.Get("RateLimit-Policy"))
	w.Spend(kit.Bearer(one), office)

	for range limit.Burst(1) {
		w.Hello(`{}`, kit.ForwardedFor("203.0.113.8")) // the upgrade has paid for a client without credentials
	}
	w.Refused(problem.RateLimited, kit.ForwardedFor("203.0.113.8"))
	for range 2 * limit.Burst(1) {
		w.DialSocket("chat") // from this machine
	}
}

// rateLimited returns the operations that return 429 to a caller above the limit.
func rateLimited(t *testing.T, w *apitest.Server, calls map[string]call) map[string]bool {
	t.Helper()
	limited := apitest.NewServer(t, w.Store.Store, apitest.BehindProxy)
	mallory := kit.ForwardedFor("203.0.113.66")
	limited.Spend(mallory)
	for _, c := range calls {
		if strings.HasPrefix(c.path, "/v1/") {
			c.headers = append([]string{mallory}, c.headers...)
			require.Equal(t, http.StatusTooManyRequests, c.send(limited).Status, c.operation)
		}
	}
	responded := limited.Responses()
	maps.DeleteFunc(responded, func(response string, _ bool) bool {
		return !strings.HasSuffix(response, fmt.Sprint(" 429 ", problem.RateLimited))
	})
	return responded
}
