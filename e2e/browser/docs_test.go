package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestDocsInBrowser does what docs/install.md promises of /docs/, in a real browser: every operation is
// there, a ping turns the dot green, and reading it says so.
func TestDocsInBrowser(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	want := s.Operations(t)
	b.Do(t, chromedp.Navigate(s.URL+"/docs"),
		until(fmt.Sprintf(`document.querySelectorAll(".opblock").length == %d`, len(want))))
	require.Equal(t, s.Docs, testbrowser.Evaluate[string](t, b, "location.href"))
	shown := testbrowser.Evaluate[[]string](t, b, `[...document.querySelectorAll(".opblock-summary")].map(o =>
		o.querySelector(".opblock-summary-method").innerText + " " +
			o.querySelector(".opblock-summary-path").dataset.path)`)
	slices.Sort(shown)
	require.Equal(t, want, shown)

	const user = "/v1/namespaces/{namespace}/users/{user}"
	tryOut(t, b, "post", user+"/ping")
	tryOut(t, b, "get", user)
	require.Equal(t, "green", s.Get(t, "/v1/namespaces/chat/users/alice")["status"])

	// A link to an operation, as it is in the address bar now, leads to it.
	link := testbrowser.Evaluate[string](t, b, "location.href")
	require.Contains(t, link, "#/")
	b.Do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(link),
		until(`document.querySelectorAll(".opblock.is-open").length == 1`))
	require.Empty(t, b.Seen())
}

// belowAPath starts an nginx that serves a server below a path, until the test ends, and returns the server as its
// clients reach it.
func belowAPath(t *testing.T, s *testserver.Server) *testserver.Server {
	t.Helper()
	nginx, listen, dir := testenv.Program(t, "nginx", "nginx"), redistest.FreeAddr(t, "127.0.0.1"), t.TempDir()
	config := "pid " + dir + "/pid;\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + dir + "/" + kind + ";\n"
	}
	config += "map $http_upgrade $connection_header { default close; websocket upgrade; }\nserver {\nlisten " + listen +
		";\nlocation /presence/ {\nproxy_pass " + s.URL + "/;\nproxy_http_version 1.1;\nproxy_set_header Host $http_host;\n" +
		"proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection $connection_header;\n}\n}\n}\n"
	proxy := testenv.CommandUntil(syscall.SIGTERM, nginx, "-g", "daemon off;", "-e", "stderr", "-c",
		testserver.WriteFile(t, "nginx.conf", []byte(config)))
	require.NoError(t, proxy.Start())
	t.Cleanup(func() {
		_ = proxy.Process.Signal(syscall.SIGTERM) // its workers end with it
		_ = proxy.Wait()
	})
	below := &testserver.Server{URL: "http://" + listen + "/presence"}
	require.Eventually(t, func() bool {
		response, err := http.Get(below.URL + "/healthz")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
	return below
}

// TestDocsBelowAPath: requests of Swagger UI, the links on its page, and the Location of a call stay below a path of a
// reverse proxy.
func TestDocsBelowAPath(t *testing.T) {
	t.Parallel()
	below := belowAPath(t, testserver.Start(t))
	b := testbrowser.Open(t, strings.TrimSuffix(below.URL, "/presence"))
	b.Do(t, chromedp.Navigate(below.URL+"/docs"), until(docsLoaded))
	tryOut(t, b, "post", "/v1/namespaces/{namespace}/users/{user}/ping")
	require.Empty(t, testbrowser.Evaluate[[]string](t, b, `[...document.querySelectorAll(".description a")]
		.map(a => a.href).filter(href => !href.startsWith("`+below.URL+`/docs/errors"))`))
	require.Empty(t, b.Seen())

	calls := below.URL + "/v1/namespaces/chat/calls"
	response, err := http.Post(calls, "application/json", strings.NewReader(`{"from":"alice","to":"bob"}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	location, err := response.Location()
	require.NoError(t, err)
	require.Regexp(t, "^"+calls+"/[A-Z0-9]{26}$", location.String())
}

// tryOut executes an operation for alice in chat, and waits until the answer says that she is green.
func tryOut(t *testing.T, b *browser, method, path string) {
	t.Helper()
	block := fmt.Sprintf(`.opblock-%s:has(.opblock-summary-path[data-path=%q]) `, method, path)
	at := func(element string) chromedp.CSS { return chromedp.CSS(block + element) }
	b.Do(t, chromedp.Click(at(".opblock-summary-control")), chromedp.Click(at(".try-out__btn")))
	for name, value := range map[string]string{"namespace": "chat", "user": "alice"} {
		input := fmt.Sprintf(`[data-param-name=%q] input`, name)
		b.Do(t, chromedp.WaitEnabled(at(input)))
		// to type over an example
		testbrowser.Evaluate[bool](t, b, fmt.Sprintf(`document.querySelector(%q).select() ?? true`, block+input))
		b.Do(t, chromedp.SendKeys(at(input), value))
	}
	answer := fmt.Sprintf(`document.querySelector(%q)?.innerText`, block+".live-responses-table")
	url := testbrowser.Evaluate[string](t, b, `new URL("..", location.href).href`) +
		strings.NewReplacer("{namespace}", "chat", "{user}", "alice").Replace(path[1:])
	b.Do(t, chromedp.Click(at(".execute")), until(answer+`?.includes('"status": "green"')`))
	require.Equal(t, url, testbrowser.Evaluate[string](t, b, fmt.Sprintf(`document.querySelector(%q).innerText`,
		block+".request-url pre")))
}

// TestErrorGuideInBrowser opens the page, an anchor on it, and what the type of an error answer names.
func TestErrorGuideInBrowser(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	b.Do(t, chromedp.EmulateViewport(1300, 800), chromedp.Navigate(s.URL+"/docs/errors"),
		chromedp.Click(chromedp.CSS(`nav a[href="#internal"]`)), until(`location.hash == "#internal"`))
	inView := `(box => box.top >= 0 && box.bottom <= innerHeight)(document.querySelector(":target").getBoundingClientRect())`
	b.Do(t, until(inView))
	require.Equal(t, "internal", testbrowser.Evaluate[string](t, b, `document.querySelector(":target").innerText`))

	status, problem := s.Call(t, http.MethodPost, "/v1/namespaces/chat/users/alice/ping", `{"at":1795176000000}`)
	require.Equal(t, http.StatusBadRequest, status)
	b.Do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(s.URL+problem["type"].(string)), until(inView))
	require.Equal(t, problem["code"], testbrowser.Evaluate[string](t, b, `document.querySelector(":target").innerText`))
	require.NotEmpty(t, testbrowser.Evaluate[string](t, b, `getComputedStyle(document.querySelector(":target")).borderRadius`))
	require.Empty(t, b.Seen())
}

// TestAuthorizeInBrowser gives an API key to /docs/, by the button Authorize, and then the operations work, also after
// the page is loaded again.
func TestAuthorizeInBrowser(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "--config", testserver.WriteConfig(t, fmt.Sprintf(
		`keys: {docs: {hash: "%s", scopes: [ping, read, admin], namespaces: [chat]}}`, testserver.HashOf("ls_docs"))))
	refused, err := http.Get(server.URL + alice)
	require.NoError(t, err)
	require.NoError(t, refused.Body.Close())
	require.Equal(t, http.StatusUnauthorized, refused.StatusCode)

	b := testbrowser.Open(t, server.URL)
	b.Do(t, chromedp.Navigate(server.URL+"/docs/"), chromedp.Click(chromedp.CSS(".auth-wrapper > .authorize")),
		chromedp.SendKeys(chromedp.CSS(".auth-container input"), "ls_docs"),
		chromedp.Click(chromedp.CSS(".auth-btn-wrapper .authorize")), chromedp.Click(chromedp.CSS(".auth-btn-wrapper .btn-done")))
	const user = "/v1/namespaces/{namespace}/users/{user}"
	tryOut(t, b, "post", user+"/ping")
	b.Do(t, until(`history.replaceState(null, "", "./") ?? true`), chromedp.Reload(), until(docsLoaded)) // nothing open
	tryOut(t, b, "get", user)
	require.Empty(t, b.Seen())
}
