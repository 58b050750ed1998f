package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestGuideSearch finds a section by typing words and follows the first result, below a path of a reverse proxy. The
// text of the guides is loaded when the user types, and not before.
func TestGuideSearch(t *testing.T) {
	t.Parallel()
	below := belowAPath(t, testserver.Start(t))
	b := testbrowser.Open(t, below.URL[:len(below.URL)-len("/presence")])
	const query, loaded = "#query", `performance.getEntriesByType("resource").some(e => e.name.endsWith("/search.json"))`
	const first = `document.querySelector("#results a")?.innerText`
	b.Do(t, chromedp.Navigate(below.URL+"/guides"), until(`!document.querySelector("search").hidden`))
	require.False(t, testbrowser.Evaluate[bool](t, b, loaded))

	b.Do(t, chromedp.SendKeys(chromedp.CSS(query), "dashed DOTS"),
		until(first+` == "Frequently asked: My dots stay dashed"`))
	require.True(t, testbrowser.Evaluate[bool](t, b, loaded))
	require.Regexp(t, `^\d+ results?$`, testbrowser.Evaluate[string](t, b, `document.querySelector("#found").innerText`))
	b.Do(t, chromedp.SendKeys(chromedp.CSS(query), kb.Enter),
		until(`location.href == "`+below.URL+`/guides/faq#my-dots-stay-dashed" && document.querySelector(":target")`))
	require.Equal(t, "My dots stay dashed", testbrowser.Evaluate[string](t, b, `document.querySelector(":target").innerText`))

	b.Do(t, chromedp.Navigate(below.URL+"/guides/"), until(`!document.querySelector("search").hidden`),
		chromedp.SendKeys(chromedp.CSS(query), `(*.[\`), // which is no regular expression
		until(`document.querySelector("#found").innerText == "No results"`))
	require.Empty(t, b.Seen())
}

// TestGuidesAndReferenceLink goes from the dashboard to the guides, the API reference, the errors and back. The
// dashboard adds a fragment to its address.
func TestGuidesAndReferenceLink(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	b.Do(t, chromedp.Navigate(s.URL+"/"))
	for _, step := range [][2]string{
		{"guides/", "/guides/"},
		{"../docs/", "/docs/"},
		{"../guides/", "/guides/"},
		{"errors", "/guides/errors"},
		{"../docs/", "/docs/"},
		{"../guides/errors", "/guides/errors"},
		{"../", "/"},
	} {
		b.Do(t, until(`document.querySelector('a[href="`+step[0]+`"]')`),
			until(`document.querySelector('a[href="`+step[0]+`"]')?.click() ?? true`),
			until(`location.pathname == "`+step[1]+`" && document.readyState == "complete"`))
	}
	require.Empty(t, b.Seen())
}
