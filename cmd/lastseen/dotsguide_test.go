package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// guideBlocks returns the code blocks of a guide in a language.
func guideBlocks(t *testing.T, name, language string) (blocks []string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		blocks = append(blocks, block[1])
	}
	require.NotEmpty(t, blocks)
	return blocks
}

// block returns the only one of some blocks with a text.
func block(t *testing.T, blocks []string, text string) string {
	t.Helper()
	var found []string
	for _, b := range blocks {
		if strings.Contains(b, text) {
			found = append(found, b)
		}
	}
	require.Len(t, found, 1, text)
	return found[0]
}

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
	s.files["/presence-token"] = token(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"alg": "HS256"},
		claims(map[string]any{"iss": "https://app.example.com", "namespaces": "chat"}))
	config := block(t, guideBlocks(t, "dots.md", "yaml"), "jwt-secret-file")
	config = strings.NewReplacer("jwt-secret-file: jwt-secret", "jwt-secret-file: "+
		writeFile(t, "jwt-secret", []byte(secret)), "[https://app.example.com]", "["+s.url+"]").Replace(config)
	s.server = start(t, "--config", writeConfig(t, config)).url
}

// complaints returns the problems of a page, except requests to the server.
func (s *guideSite) complaints(b *browser) (all []string) {
	allowed := regexp.MustCompile("^request to (http|ws)" + regexp.QuoteMeta(strings.TrimPrefix(s.server, "http")) + "/")
	for _, problem := range b.seen() {
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
// open. Then it loads the image, and the page of the README.
func TestDotsGuideBegins(t *testing.T) {
	t.Parallel()
	blocks := guideBlocks(t, "dots.md", "html")
	dots := block(t, blocks, "<!doctype html>")
	script := regexp.MustCompile(`<script .*></script>\n`)
	require.Regexp(t, script, dots)
	online := script.ReplaceAllString(dots, block(t, blocks, "connect({"))
	site := newGuideSite(t, map[string]string{
		"/dots": dots, "/online": online,
		"/image":  block(t, blocks, "dot.svg"),
		"/readme": "<!doctype html>" + block(t, guideBlocks(t, "../README.md", "html"), "presence-dot"),
	})
	s := start(t, "--cors-origins", site.url, "--disconnect-grace", "1s")
	site.server = s.url
	b := openBrowser(t, site.url)
	b.do(t, chromedp.Navigate(site.url+"/dots"), until(dotOf("alice")+` == "grey" && `+dotOf("bob")+` == "grey"`))
	s.post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
	b.do(t, until(dotOf("bob")+` == "green"`))
	tab := b.newTab(t)
	tab.do(t, chromedp.Navigate(site.url+"/online"), until(dotOf("alice")+` == "green"`))
	b.do(t, until(dotOf("alice")+` == "green"`))
	require.Empty(t, site.complaints(b))
	tab.close(t)
	b.do(t, until(dotOf("alice")+` == "grey"`), chromedp.Navigate(site.url+"/image"),
		until("document.images[0].naturalWidth == 16"),
		chromedp.Navigate(site.url+"/readme"), until(dotOf("bob")+` == "green"`))
	require.Empty(t, site.complaints(b))
}

// TestDotsGuideSignsIn takes the other steps, with tokens and the guide's policy.
func TestDotsGuideSignsIn(t *testing.T) {
	t.Parallel()
	js, html := guideBlocks(t, "dots.md", "js"), guideBlocks(t, "dots.md", "html")
	presence := block(t, js, "export const client")
	site := newGuideSite(t, map[string]string{
		"/": `<!doctype html><html lang="en" data-user="alice"><title>dots</title>
			<link rel="stylesheet" href="/style.css"><script type="module" src="/app.js"></script>
			<p id="alice"></p><p id="bob"></p>
			<p lang="de"><presence-dot id="german" namespace="chat" user="alice"></presence-dot></p>` + block(t, html, "avatar") + block(t, html, "<presence-list"),
		"/presence.js": presence, "/app.js": block(t, js, "client.watch") +
			block(t, js, "texts.de") + ";Object.assign(window, { client })",
		"/style.css": block(t, guideBlocks(t, "dots.md", "css"), "avatar"), "/alice.png": "",
	})
	site.policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; " +
		block(t, guideBlocks(t, "dots.md", "text"), "connect-src")
	site.startWithTokens(t)
	b := openBrowser(t, site.url)
	b.do(t, chromedp.Navigate(site.url+"/"), until(dotOf("alice")+` == "green"`),
		until(`document.getElementById("alice").textContent == "green"`),
		until(`document.getElementById("bob").textContent == "grey"`),
		until(`document.querySelector(".avatar presence-dot").getBoundingClientRect().width == 12`))
	const list = `document.querySelector("presence-list").shadowRoot.textContent`
	b.do(t, chromedp.Reload(), until(list+`.includes("alice")`), until("(client.leave(), true)"),
		until(`document.getElementById("alice").textContent.startsWith("last seen ")`),
		until(`document.getElementById("german").text == "zuletzt gesehen jetzt"`))
	require.Empty(t, site.complaints(b))
}
