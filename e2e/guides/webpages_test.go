package guides

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

// guideModule returns a page that runs a module.
func guideModule(script string) string {
	return `<!doctype html><html lang="en"><title>guide</title><p id="alice"></p><p id="bob"></p><p id="carol"></p>
		<script type="module">` + script + `</script>`
}

// TestWebPagesGuide runs the code of docs/web-pages.md: a page that keeps its user online and watches others, and a
// leave when a page is closed.
func TestWebPagesGuide(t *testing.T) {
	t.Parallel()
	blocks := testguide.Blocks(t, "web-pages.md", "js")
	soon := strings.NewReplacer("'5s'", "'100ms'", "users/alice", "users/dave")
	closing := soon.Replace(testguide.Block(t, blocks, "sendBeacon"))
	site := newGuideSite(t, map[string]string{
		"/watch": guideModule("const token = undefined\n" + testguide.Block(t, blocks, "connect(")),
		"/close": guideModule(`const token = undefined, device = { id: "tab-1", kind: "web" }` + "\n" + closing),
	})
	s := testserver.Start(t, "--cors-origins", site.url)
	site.server = s.URL
	s.Post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", `{"device":{"id":"tab-1"}}`)
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/watch"),
		until(`document.getElementById("bob").className == "green" && document.getElementById("carol").className == "grey"`))
	require.Eventually(t, func() bool { return s.Get(t, alice)["status"] == "green" }, time.Minute, 10*time.Millisecond)
	require.Empty(t, site.complaints(b))

	s.Post(t, strings.ReplaceAll(alice, "alice", "dave")+"/ping", `{"device":{"id":"tab-1","kind":"web"}}`)
	tab := b.NewTab(t)
	tab.Do(t, chromedp.Navigate(site.url+"/close"), until("document.readyState == 'complete'"))
	tab.Close(t)
	require.Eventually(t, func() bool {
		return s.Get(t, strings.ReplaceAll(alice, "alice", "dave"))["left"] == true
	}, time.Minute, 10*time.Millisecond)
}

// TestAvailabilityGuideScripts runs the code of docs/availability.md: the page sets its user's availability, and shows
// it.
func TestAvailabilityGuideScripts(t *testing.T) {
	t.Parallel()
	const elements = `<p id="me"></p><input id="text"><p id="typing"></p>`
	code := "const token = undefined\n" + strings.Join(testguide.Blocks(t, "availability.md", "js"), "") + ";window.client = client"
	site := newGuideSite(t, map[string]string{"/": elements + guideModule(code)})
	s := testserver.Start(t, "--cors-origins", site.url)
	site.server = s.URL
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/"), until(`document.getElementById("me").textContent == "busy"`),
		until(`document.getElementById("bob").className == "grey"`))
	require.Equal(t, "in a meeting", s.Get(t, alice)["note"])
	require.Empty(t, site.complaints(b))
}

// TestConnectionsGuideScripts runs the code of docs/connections.md, with tokens: a client, and a socket that follows
// counts.
func TestConnectionsGuideScripts(t *testing.T) {
	t.Parallel()
	const logged = "const log = []\nwindow.log = log\nconsole.log = (...args) => log.push(args.join(' '))\n"
	site := newGuideSite(t, map[string]string{
		"/": guideModule(logged + strings.Join(testguide.Blocks(t, "connections.md", "js"), "")),
	})
	site.startWithTokens(t)
	b := testbrowser.Open(t, site.url)
	b.Do(t, chromedp.Navigate(site.url+"/"), until(`log.at(-1)?.startsWith("bob grey")`), until(`document.title == "1 online"`))
	require.Empty(t, site.complaints(b))
}

// TestChangesGuideEventSource runs the code of docs/changes.md.
func TestChangesGuideEventSource(t *testing.T) {
	t.Parallel()
	blocks := testguide.Blocks(t, "changes.md", "js")
	require.Len(t, blocks, 1)
	site := newGuideSite(t, map[string]string{"/": guideModule(blocks[0])})
	s := testserver.Start(t, "--cors-origins", site.url)
	site.server = s.URL
	b := testbrowser.Open(t, site.url)
	shown := func(alice, bob string) testbrowser.Step {
		return until(`document.getElementById("alice").className == "` + alice + `" && document.getElementById("bob").className == "` +
			bob + `"`)
	}
	b.Do(t, chromedp.Navigate(site.url+"/"), shown("grey", "grey"))
	s.Post(t, alice+"/ping", "")
	b.Do(t, shown("green", "grey"))
	s.Post(t, alice+"/leave", "")
	b.Do(t, shown("grey", "grey"))
	require.Empty(t, site.complaints(b))
}
