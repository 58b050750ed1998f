package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest"
)

// TestDocsInBrowser does what the README promises of /docs/, in a real browser: every operation is
// there, a ping turns the dot green, and reading it says so.
func TestDocsInBrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openBrowser(t, s.url)
	want := operations(t, s)
	b.do(t, chromedp.Navigate(s.url+"/docs"),
		until(fmt.Sprintf(`document.querySelectorAll(".opblock").length == %d`, len(want))))
	require.Equal(t, s.docs, evaluate[string](t, b, "location.href"))
	shown := evaluate[[]string](t, b, `[...document.querySelectorAll(".opblock-summary")].map(o =>
		o.querySelector(".opblock-summary-method").innerText + " " +
			o.querySelector(".opblock-summary-path").dataset.path)`)
	slices.Sort(shown)
	require.Equal(t, want, shown)

	const user = "/v1/namespaces/{namespace}/users/{user}"
	b.tryOut(t, "post", user+"/ping")
	b.tryOut(t, "get", user)
	require.Equal(t, "green", s.get(t, "/v1/namespaces/chat/users/alice")["status"])

	// A link to an operation, as it is in the address bar now, leads to it.
	link := evaluate[string](t, b, "location.href")
	require.Contains(t, link, "#/")
	b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(link),
		until(`document.querySelectorAll(".opblock.is-open").length == 1`))
	require.Empty(t, b.seen())
}

// tryOut executes an operation for alice in chat, and waits until the answer says that she is green.
func (b *browser) tryOut(t *testing.T, method, path string) {
	t.Helper()
	block := fmt.Sprintf(`.opblock-%s:has(.opblock-summary-path[data-path=%q]) `, method, path)
	at := func(element string) chromedp.CSS { return chromedp.CSS(block + element) }
	b.do(t, chromedp.Click(at(".opblock-summary-control")), chromedp.Click(at(".try-out__btn")))
	for name, value := range map[string]string{"namespace": "chat", "user": "alice"} {
		input := fmt.Sprintf(`[data-param-name=%q] input`, name)
		b.do(t, chromedp.WaitEnabled(at(input)))
		// to type over an example
		evaluate[bool](t, b, fmt.Sprintf(`document.querySelector(%q).select() ?? true`, block+input))
		b.do(t, chromedp.SendKeys(at(input), value))
	}
	answer := fmt.Sprintf(`document.querySelector(%q)?.innerText`, block+".live-responses-table")
	url := strings.NewReplacer("{namespace}", "chat", "{user}", "alice").Replace(b.url + path)
	b.do(t, chromedp.Click(at(".execute")), until(answer+`?.includes('"status": "green"')`))
	require.Equal(t, url, evaluate[string](t, b, fmt.Sprintf(`document.querySelector(%q).innerText`,
		block+".request-url pre")))
}

// TestErrorGuideInBrowser opens the page, an anchor on it, and what the type of an error answer names.
func TestErrorGuideInBrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openBrowser(t, s.url)
	b.do(t, chromedp.Navigate(s.url+"/docs/errors"),
		chromedp.Click(chromedp.CSS(`nav a[href="#internal"]`)), until(`location.hash == "#internal"`))
	inView := `(box => box.top >= 0 && box.bottom <= innerHeight)(document.querySelector(":target h2").getBoundingClientRect())`
	b.do(t, until(inView))
	require.Equal(t, "internal", evaluate[string](t, b, `document.querySelector(":target h2").innerText`))

	status, problem := s.call(t, http.MethodPost, "/v1/namespaces/chat/users/alice/ping", `{"at":1795176000000}`)
	require.Equal(t, http.StatusBadRequest, status)
	b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+problem["type"].(string)), until(inView))
	require.Equal(t, problem["code"], evaluate[string](t, b, `document.querySelector(":target h2").innerText`))
	require.NotEmpty(t, evaluate[string](t, b, `getComputedStyle(document.querySelector(":target")).borderRadius`))
	require.Empty(t, b.seen())
}

func evaluate[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err, expression)
	return value
}

// operations returns all that the server's OpenAPI document describes, sorted.
func operations(t *testing.T, s *service) (all []string) {
	t.Helper()
	for path, methods := range s.get(t, "/openapi.json")["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	require.NotEmpty(t, all)
	slices.Sort(all)
	return all
}

// TestAuthorizeInBrowser gives an API key to /docs/, by the button Authorize, and then the operations work, also after
// the page is loaded again.
func TestAuthorizeInBrowser(t *testing.T) {
	t.Parallel()
	key, hash := auth.NewKey()
	guard, err := auth.New(auth.Config{Keys: []auth.Key{{
		Name: "docs", Hash: hash, Scopes: auth.Scopes(),
		Namespaces: []auth.Pattern{"chat"},
	}}}, auth.Options{})
	require.NoError(t, err)
	file, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	server := httptest.NewServer(api.New(api.Config{
		Store: file, Auth: guard, Settings: api.Settings{Thresholds: lastseen.Thresholds{
			Green:  time.Hour,
			Yellow: 2 * time.Hour,
		}, PingInterval: time.Minute, Shards: 1},
	}))
	t.Cleanup(server.Close)
	refused, err := http.Get(server.URL + "/v1/namespaces/chat/users/alice")
	require.NoError(t, err)
	require.NoError(t, refused.Body.Close())
	require.Equal(t, http.StatusUnauthorized, refused.StatusCode)

	b := openBrowser(t, server.URL)
	b.do(t, chromedp.Navigate(server.URL+"/docs/"), chromedp.Click(chromedp.CSS(".auth-wrapper > .authorize")),
		chromedp.SendKeys(chromedp.CSS(".auth-container input"), key),
		chromedp.Click(chromedp.CSS(".auth-btn-wrapper .authorize")), chromedp.Click(chromedp.CSS(".auth-btn-wrapper .btn-done")))
	const user = "/v1/namespaces/{namespace}/users/{user}"
	b.tryOut(t, "post", user+"/ping")
	b.do(t, until(`history.replaceState(null, "", "./") ?? true`), chromedp.Reload(), until(docsLoaded)) // nothing open
	b.tryOut(t, "get", user)
	require.Empty(t, b.seen())
}
