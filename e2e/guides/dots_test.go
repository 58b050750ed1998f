package guides

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

// guideSite is a site made of the code in a guide. The files may name the server as the guides do.
type guideSite struct {
	url    string
	server string // set before the first request
	policy string // Content-Security-Policy; none if empty
	files  map[string]string
}

// newGuideSite serves files by path.
func newGuideSite(t *testing.T, files map[string]string) *guideSite {
	t.Helper()
	s := &guideSite{files: files}
	pages := httptest.NewServer(s)
	t.Cleanup(pages.Close)
	s.url = pages.URL
	return s
}

// named returns a text of a guide with the server of the test.
func (s *guideSite) named(text string) string {
	return strings.NewReplacer("https://presence.example.com", s.server, "http://127.0.0.1:8080", s.server,
		"wss://presence.example.com", strings.Replace(s.server, "http", "ws", 1)).Replace(text)
}

func (s *guideSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, found := s.files[r.URL.Path]
	if r.URL.Path == "/favicon.ico" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !found {
		http.NotFound(w, r)
		return
	}
	kind := map[string]string{".js": "text/javascript", ".css": "text/css", ".png": "image/png", "": "text/html"}
	w.Header().Set("Content-Type", kind[path.Ext(r.URL.Path)])
	if s.policy != "" {
		w.Header().Set("Content-Security-Policy", s.named(s.policy))
	}
	fmt.Fprint(w, s.named(content))
}

// startWithTokens starts the server with the configuration of docs/dots.md, and serves a token of alice for it.
func (s *guideSite) startWithTokens(t *testing.T) {
	t.Helper()
	s.files["/presence-token"] = testserver.UserToken(t,
		map[string]any{"iss": "https://app.example.com", "namespaces": "chat"})
	config := testguide.Block(t, testguide.Blocks(t, "dots.md", "yaml"), "jwt-secret-file")
	config = strings.NewReplacer("jwt-secret-file: jwt-secret", "jwt-secret-file: "+
		testserver.WriteFile(t, "jwt-secret", []byte(testserver.Secret)), "[https://app.example.com]", "["+s.url+"]").Replace(config)
	s.server = testserver.Start(t, "--config", testserver.WriteConfig(t, config)).URL
}

// complaints returns the problems of a page, except requests to the server.
func (s *guideSite) complaints(b *testbrowser.Browser) (all []string) {
	allowed := regexp.MustCompile("^request to (http|ws)" + regexp.QuoteMeta(strings.TrimPrefix(s.server, "http")) + "/")
	for _, problem := range b.Seen() {
		if !allowed.MatchString(problem) {
			all = append(all, problem)
		}
	}
	return all
}

// dotOf returns an expression for the status that the first dot of a user shows.
func dotOf(user string) string {
	return fmt.Sprintf(`document.querySelector("presence-dot[user='%s']")?.presence?.status`, user)
}

// TestDotsGuideBegins takes the first three steps of the guide: dots on a page, and a user who is online while it is
// open. Then it loads the image.
func TestDotsGuideBegins(t *testing.T) {
	t.Parallel()
	blocks := testguide.Blocks(t, "dots.md", "html")
	dots := testguide.Block(t, blocks, "<!doctype html>")
	script := regexp.MustCompile(`<script .*></script>\n`)
	require.Regexp(t, script, dots)
	online := script.ReplaceAllString(dots, testguide.Block(t, blocks, "connect({"))
	site := newGuideSite(t, map[string]string{
		"/dots": dots, "/online": online,
		"/image": testguide.Block(t, blocks, "dot.svg"),
	})
	s := testserver.Start(t, "--cors-origins", site.url, "--disconnect-grace", "1s")
	site.server = s.URL
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/dots"), until(dotOf("alice")+` == "grey" && `+dotOf("bob")+` == "grey"`))
	s.Post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
	b.Do(t, until(dotOf("bob")+` == "green"`))
	tab := b.NewTab(t)
	tab.Do(t, chromedp.Navigate(site.url+"/online"), until(dotOf("alice")+` == "green"`))
	b.Do(t, until(dotOf("alice")+` == "green"`))
	require.Empty(t, site.complaints(b))
	tab.Close(t)
	b.Do(t, until(dotOf("alice")+` == "grey"`), chromedp.Navigate(site.url+"/image"),
		until("document.images[0].naturalWidth == 16"))
	require.Empty(t, site.complaints(b))
}

// TestDotsGuideSignsIn takes the other steps, with tokens and the guide's policy.
func TestDotsGuideSignsIn(t *testing.T) {
	t.Parallel()
	js, html := testguide.Blocks(t, "dots.md", "js"), testguide.Blocks(t, "dots.md", "html")
	presence := testguide.Block(t, js, "export const client")
	site := newGuideSite(t, map[string]string{
		"/": `<!doctype html><html lang="en" data-user="alice"><title>dots</title>
			<link rel="stylesheet" href="/style.css"><script type="module" src="/app.js"></script>
			<p id="alice"></p><p id="bob"></p>
			<p lang="de"><presence-dot id="german" namespace="chat" user="alice"></presence-dot></p>` + testguide.Block(t, html, "avatar") + testguide.Block(t, html, "<presence-list"),
		"/presence.js": presence, "/app.js": testguide.Block(t, js, "client.watch") +
			testguide.Block(t, js, "texts.de") + ";Object.assign(window, { client })",
		"/style.css": testguide.Block(t, testguide.Blocks(t, "dots.md", "css"), "avatar"), "/alice.png": "",
	})
	site.policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; " +
		testguide.Block(t, testguide.Blocks(t, "dots.md", "text"), "connect-src")
	site.startWithTokens(t)
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/"), until(dotOf("alice")+` == "green"`),
		until(`document.getElementById("alice").textContent == "green"`),
		until(`document.getElementById("bob").textContent == "grey"`),
		until(`document.querySelector(".avatar presence-dot").getBoundingClientRect().width == 12`))
	const list = `document.querySelector("presence-list").shadowRoot.textContent`
	b.Do(t, chromedp.Reload(), until(list+`.includes("alice")`), until("(client.leave(), true)"),
		until(`document.getElementById("alice").textContent.startsWith("last seen ")`),
		until(`document.getElementById("german").text == "zuletzt gesehen gerade eben"`))
	require.Empty(t, site.complaints(b))
}
