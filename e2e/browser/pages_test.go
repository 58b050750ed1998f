package browser

import (
	_ "embed"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// docsLoaded holds once the page shows its operations.
const docsLoaded = `document.querySelectorAll(".opblock").length > 10`

// openEverything opens one operation of each method, tries the first one out, and opens the schemas.
func openEverything(t *testing.T, b *browser) {
	t.Helper()
	tryOut(t, b, "post", "/v1/namespaces/{namespace}/users/{user}/ping")
	for _, block := range []string{"getUser", "listUsers", "deleteNamespace"} {
		control := fmt.Sprintf(`[id$=%q] .opblock-summary-control`, block)
		b.Do(t, chromedp.Click(chromedp.CSS(control)),
			until(fmt.Sprintf(`document.querySelector('[id$=%q] .responses-wrapper')`, block)))
	}
	b.Do(t, chromedp.Click(chromedp.CSS(`[id$="getUser"] .model-example .tablinks[data-name="model"]`)))
	testbrowser.Evaluate[bool](t, b,
		`document.querySelectorAll("section.models .model-box-control[aria-expanded=false], section.models button[aria-expanded=false]").forEach(e => e.click()) ?? true`)
}

// TestDocsAtFirstSight: on the screen of a laptop the first operation is there without scrolling, and the filter finds
// others by path, summary or tag.
func TestDocsAtFirstSight(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	b.Do(t, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.Docs), until(docsLoaded))
	bottom := testbrowser.Measure[float64](t, b, `document.querySelector(".opblock").getBoundingClientRect().bottom`)
	require.Less(t, bottom, 800.0, "the first operation ends below the window")
	require.Contains(t, testbrowser.Measure[string](t, b, `document.querySelector(".opblock").innerText`), "/users/{user}/ping")

	const box = ".operation-filter-input"
	shown := `[...document.querySelectorAll(".opblock-summary-path")].map(e => e.dataset.path).join()`
	for typed, want := range map[string]string{
		"Lookup":   "/v1/namespaces/{namespace}/lookup,/v1/namespaces/{namespace}/lookup",
		"deleting": "/v1/namespaces/{namespace}/users/{user},/v1/namespaces/{namespace}",
		"look up":  "/v1/namespaces/{namespace}/users/{user},/v1/namespaces/{namespace}/lookup,/v1/namespaces/{namespace}/lookup",
		"nothing":  "",
	} {
		b.Do(t, until(fmt.Sprintf("document.querySelector(%q).select() ?? true", box)),
			chromedp.SendKeys(chromedp.CSS(box), typed),
			until(fmt.Sprintf("%s == %q", shown, want)))
	}
	require.Empty(t, b.Seen())
}

// TestPagesOnAPhone: nothing is beyond the sides of a small screen, and nothing is clipped.
func TestPagesOnAPhone(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	b.Do(t, chromedp.EmulateViewport(390, 844))
	for _, guide := range []string{"", "faq", "metrics", "dots", "errors"} {
		b.Do(t, chromedp.Navigate(s.URL+"/guides/"+guide), until(`document.querySelector("main h1")`))
		requireFits(t, b, "guide "+guide)
	}
	b.Do(t, chromedp.Navigate(s.Docs), until(docsLoaded))
	requireFits(t, b, "docs")
	openEverything(t, b)
	requireFits(t, b, "docs, opened")
	b.Do(t, chromedp.Click(chromedp.CSS(".auth-wrapper > .authorize")), until(`document.querySelector(".modal-ux")`))
	requireFits(t, b, "docs, authorizing")
}

// TestPagesInDarkMode checks that pages are dark in a browser that prefers it, and that all text is readable.
func TestPagesInDarkMode(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := testbrowser.Open(t, s.URL)
	for _, page := range []string{"/docs/", "/guides/", "/guides/faq"} {
		b.Do(t, testbrowser.PrefersScheme("light"), chromedp.Navigate(s.URL+page),
			until(`document.querySelector(".opblock, main h1")`))
		require.Greater(t, testbrowser.Measure[float64](t, b, "background()"), 0.9, page)
		b.Do(t, testbrowser.PrefersScheme("dark"), testbrowser.Settled)
		require.Less(t, testbrowser.Measure[float64](t, b, "background()"), 0.03, page)
		require.Empty(t, testbrowser.Measure[[]string](t, b, "faint(4.5)"), page)
	}
	b.Do(t, chromedp.Navigate(s.Docs), until(docsLoaded))
	openEverything(t, b)
	b.Do(t, testbrowser.Settled)
	require.Empty(t, testbrowser.Measure[[]string](t, b, "faint(4.5)"))
	b.Do(t, chromedp.Click(chromedp.CSS(".auth-wrapper > .authorize")), until(`document.querySelector(".modal-ux")`),
		testbrowser.Settled)
	require.Empty(t, testbrowser.Measure[[]string](t, b, "faint(4.5)"))
	require.Empty(t, b.Seen())
}
