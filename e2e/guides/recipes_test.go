package guides

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestRecipes runs the curl lines of docs/recipes.md as written.
func TestRecipes(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "jq", "jq")
	runConsole(t, "../../docs/recipes.md", 6)
}

// TestRecipeErases runs the script that erases alice, over more namespaces than a page has.
func TestRecipeErases(t *testing.T) {
	t.Parallel()
	testenv.Program(t, "jq", "jq")
	testenv.Program(t, "curl", "curl")
	bash := testenv.Program(t, "bash", "bash")
	s := testserver.Start(t)
	for _, namespace := range []string{"chat", "games", "room-42"} {
		s.Post(t, "/v1/namespaces/"+namespace+"/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	}
	script := testguide.Blocks(t, "recipes.md", "bash")[0]
	require.Contains(t, script, `query=`+"\n")
	erase := testenv.Command(bash, "-c", strings.Replace(script, "query=\n", "query='?limit=2'\n", 1))
	erase.Env = curlEnviron(t, s)
	out, err := erase.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "chat\ngames\nroom-42\nerased\n", string(out))
	for _, namespace := range []string{"chat", "games", "room-42"} {
		require.Nil(t, s.Get(t, "/v1/namespaces/"+namespace+"/users/alice")["last_seen"])
		require.NotNil(t, s.Get(t, "/v1/namespaces/"+namespace+"/users/bob")["last_seen"])
	}
}

// TestRecipePages pastes the pages and scripts of docs/recipes.md: the count of a team, last seen in words, and a user
// who is back.
func TestRecipePages(t *testing.T) {
	t.Parallel()
	js := testguide.Blocks(t, "recipes.md", "js")
	site := newGuideSite(t, map[string]string{
		"/":         testguide.Block(t, testguide.Blocks(t, "recipes.md", "html"), "<!doctype html>"),
		"/words":    guideModule(testguide.Block(t, js, "import { inWords }")),
		"/words.js": testguide.Block(t, js, "export function inWords"),
		"/back":     guideModule(testguide.Block(t, js, "is back") + ";window.before = () => before"),
	})
	s := testserver.Start(t, "--cors-origins", site.url)
	site.server = s.URL
	s.Post(t, "/v1/namespaces/chat/pings", `{"pings":[{"user":"alice"},{"user":"carol"},{"user":"heidi"}]}`)
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/"), until(`document.getElementById("count").textContent == "3 of 8 online"`))
	s.Post(t, alice+"/leave", "")
	b.Do(t, until(`document.getElementById("count").textContent == "2 of 8 online"`))
	b.Do(t, chromedp.Navigate(site.url+"/words"),
		until(`document.getElementById("alice").textContent == "last seen less than a minute ago"`),
		until(`document.getElementById("bob").textContent == "offline"`))
	b.Do(t, chromedp.Navigate(site.url+"/back"), until(`window.before() == "grey"`))
	s.Post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
	b.Do(t, until(`document.title == "bob is back"`))
	require.Empty(t, site.complaints(b))
}

// TestRecipeServer runs the program that renders a page, with lastseen and without it.
func TestRecipeServer(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	dir := t.TempDir()
	source := strings.NewReplacer("http://127.0.0.1:8080", s.URL, "127.0.0.1:8000", address).
		Replace(testguide.Blocks(t, "recipes.md", "go")[0])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "page.go"), []byte(source), 0o600))
	build := testenv.Command("go", "build", "-o", "page", "page.go")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	page := testenv.Command(filepath.Join(dir, "page"))
	require.NoError(t, page.Start())
	t.Cleanup(func() {
		_ = page.Process.Kill()
		_ = page.Wait()
	})
	shows := func(text string) {
		require.Eventually(t, func() bool {
			response, err := http.Get("http://" + address)
			if err != nil {
				return false
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return err == nil && strings.Contains(string(body), text)
		}, time.Minute, 10*time.Millisecond)
	}
	shows("<p class=green>alice: green</p><p class=grey>bob: grey</p>")
	s.Kill()
	shows("<p class=unknown>alice: unknown</p><p class=unknown>bob: unknown</p>")
}

// TestClientsGuide runs the client of docs/clients.md in a page of another origin. The configuration of oapi-codegen
// is that of tools/client, which TestGeneratedClient runs.
func TestClientsGuide(t *testing.T) {
	t.Parallel()
	site := newGuideSite(t, map[string]string{"/": guideModule(testguide.Blocks(t, "clients.md", "js")[0])})
	s := testserver.Start(t, "--cors-origins", site.url)
	site.server = s.URL
	bob := strings.ReplaceAll(alice, "alice", "bob")
	b := testbrowser.Open(t, site.url)
	shows := func(status string) testbrowser.Step {
		return until(`document.getElementById("bob").textContent == "` + status + `"`)
	}
	b.Do(t, chromedp.Navigate(site.url+"/"), shows("grey"))
	require.Equal(t, "green", s.Get(t, alice)["status"])
	s.Post(t, bob+"/ping", "")
	b.Do(t, shows("green"))
	s.Post(t, bob+"/leave", "")
	b.Do(t, shows("grey"))
	require.Empty(t, site.complaints(b))

	config, err := os.ReadFile("../../tools/client/config.yaml")
	require.NoError(t, err)
	guide := testguide.Block(t, testguide.Blocks(t, "clients.md", "yaml"), "package: lastseen")
	require.Contains(t, string(config), guide[strings.Index(guide, "generate:"):strings.Index(guide, "output:")])
}
