package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// otherSite serves an empty page from its own origin.
func otherSite(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>other</title><link rel="icon" href="data:,">`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// pingFrom pings by a script of a page, and returns what the script sees: the status and whether the response says when
// to ping again, or the error if the browser hides the response.
func pingFrom(t *testing.T, b *browser, page, server string) string {
	t.Helper()
	b.Do(t, chromedp.Navigate(page), until(`document.title == "other"`))
	return fetched(t, b, fmt.Sprintf(`fetch("%s/v1/namespaces/chat/users/alice/ping", {
		method: "POST", body: "{}",
		headers: {"Authorization": "Bearer x", "Content-Type": "application/json", "Prefer": "return=minimal"},
	}).then(r => r.status + " " + (Number(r.headers.get("Lastseen-Ping-After-Ms")) > 0), e => e.name)`, server))
}

// fetched waits for a promise and returns its text.
func fetched(t *testing.T, b *browser, promise string) string {
	t.Helper()
	b.Do(t, until("delete window.fetched"))
	testbrowser.Evaluate[bool](t, b, promise+".then(text => { window.fetched = text }) && true")
	b.Do(t, until(`typeof window.fetched == "string"`))
	return testbrowser.Evaluate[string](t, b, "window.fetched")
}

// TestCORSInBrowser pings from pages of other origins. A page of an allowed origin can ping and read the response, also
// an error. Any other page cannot, and its ping is not sent, since the browser asks before it sends JSON.
func TestCORSInBrowser(t *testing.T) {
	t.Parallel()
	allowed, other := otherSite(t), otherSite(t)
	s := testserver.Start(t, "--cors-origins", allowed)
	b := testbrowser.Open(t, s.URL)
	require.Equal(t, "TypeError", pingFrom(t, b, other, s.URL))
	require.Equal(t, "grey", s.Get(t, "/v1/namespaces/chat/users/alice")["status"])

	require.Equal(t, "204 true", pingFrom(t, b, allowed, s.URL))
	require.Equal(t, "green", s.Get(t, "/v1/namespaces/chat/users/alice")["status"])
	problem := fetched(t, b, fmt.Sprintf(`fetch("%s/v1/namespaces//users").then(r => r.json()).then(p => p.code)`,
		s.URL))
	require.Equal(t, "invalid_namespace", problem)
}

// TestRebindingInBrowser: a page whose name was pointed at this machine is of the same origin as the server, so that no
// rule of the browser stops it. The server does.
func TestRebindingInBrowser(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Call(t, http.MethodPost, "/v1/namespaces/chat/users/alice/ping", "")
	rebound := strings.Replace(s.URL, "127.0.0.1", testbrowser.ReboundHost, 1)
	b := testbrowser.Open(t, rebound)
	b.Do(t, chromedp.Navigate(rebound+"/guides/errors"),
		until(`location.hostname == "rebound.example" && document.title`))
	for _, request := range []string{
		`"/v1/namespaces/chat?confirm=chat", {method: "DELETE"}`, `"/v1/namespaces/chat/users/alice"`,
		`"/v1/namespaces/chat/pings", {method: "POST", body: '{"pings":[{"user":"eve"}]}'}`,
	} {
		require.Equal(t, "403 forbidden", fetched(t, b,
			"fetch("+request+`).then(async r => r.status + " " + (await r.json().catch(() => ({}))).code)`), request)
	}
	require.Equal(t, "green", s.Get(t, "/v1/namespaces/chat/users/alice")["status"])
	require.EqualValues(t, 1, s.Get(t, "/v1/namespaces/chat/counts")["total"])

	allowing := testserver.Start(t, "--allowed-hosts", "*.example")
	b = testbrowser.Open(t, rebound)
	b.Do(t, chromedp.Navigate(strings.Replace(allowing.URL, "127.0.0.1", "rebound.example", 1)+"/guides/errors"),
		until(`location.hostname == "rebound.example" && document.title`))
	require.Equal(t, "200", fetched(t, b,
		`fetch("/v1/namespaces/chat/users/alice/ping", {method: "POST"}).then(r => "" + r.status)`))
}

// TestCrossOriginPostsInBrowser sends the requests that a browser sends for any page without asking first. The server
// refuses them.
func TestCrossOriginPostsInBrowser(t *testing.T) {
	t.Parallel()
	s, other := testserver.Start(t), otherSite(t)
	b := testbrowser.Open(t, other)
	b.Do(t, chromedp.Navigate(other), until(`document.title == "other"`))
	for _, send := range []string{
		`fetch("%s/v1/namespaces/chat/pings", {method: "POST", mode: "no-cors", body: '{"pings":[{"user":"eve"}]}'}).then(r => r.type)`,
		`Promise.resolve("" + navigator.sendBeacon("%s/v1/namespaces/chat/users/eve/leave", "{}"))`,
	} {
		require.Contains(t, []string{"opaque", "true"}, fetched(t, b, fmt.Sprintf(send, s.URL)))
	}
	require.Equal(t, "opaque", fetched(t, b,
		fmt.Sprintf(`fetch("%s/v1/namespaces/chat/users/eve/ping", {method: "POST", mode: "no-cors"}).then(r => r.type)`, s.URL)))
	require.Nil(t, s.Get(t, "/v1/namespaces/chat/users/eve")["last_seen"])
}
