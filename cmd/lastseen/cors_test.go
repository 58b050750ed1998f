package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// otherSite serves an empty page from an origin of its own.
func otherSite(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>other</title><link rel="icon" href="data:,">`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// pingFrom has the script of a page ping, and returns what it learns: the status of the answer and the advice
// when to ping again, or that the browser kept the answer to itself.
func (b *browser) pingFrom(t *testing.T, page, server string) string {
	t.Helper()
	b.do(t, chromedp.Navigate(page), until(`document.title == "other"`))
	return b.fetched(t, fmt.Sprintf(`fetch("%s/v1/namespaces/chat/users/alice/ping", {
		method: "POST", body: "{}",
		headers: {"Authorization": "Bearer x", "Content-Type": "application/json", "Prefer": "return=minimal"},
	}).then(r => r.status + " " + (Number(r.headers.get("Lastseen-Ping-After-Ms")) > 0), e => e.name)`, server))
}

// fetched waits until a promise of some text is kept.
func (b *browser) fetched(t *testing.T, promise string) string {
	t.Helper()
	b.do(t, until("delete window.fetched"))
	evaluate[bool](t, b, promise+".then(text => { window.fetched = text }) && true")
	b.do(t, until(`typeof window.fetched == "string"`))
	return evaluate[string](t, b, "window.fetched")
}

// TestCORSInBrowser: a page of another origin that is allowed to may ping and read the answer, also one that tells of
// an error. Any other page may not, nor does its ping get through, since the browser asks before it sends JSON.
func TestCORSInBrowser(t *testing.T) {
	allowed, other := otherSite(t), otherSite(t)
	s := start(t, "--cors-origins", allowed)
	b := openBrowser(t, s.url)
	require.Equal(t, "TypeError", b.pingFrom(t, other, s.url))
	require.Equal(t, "grey", s.get(t, "/v1/namespaces/chat/users/alice")["status"])

	require.Equal(t, "204 true", b.pingFrom(t, allowed, s.url))
	require.Equal(t, "green", s.get(t, "/v1/namespaces/chat/users/alice")["status"])
	problem := b.fetched(t, fmt.Sprintf(`fetch("%s/v1/namespaces//users").then(r => r.json()).then(p => p.code)`, s.url))
	require.Equal(t, "invalid_namespace", problem)
}
