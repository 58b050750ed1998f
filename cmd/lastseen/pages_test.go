package main

import (
	"context"
	_ "embed"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// measuring is what is measured in the browser.
//
//go:embed testdata/measuring.js
var measuring string

// measure returns what an expression with the functions above says of the page.
func measure[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	return evaluate[T](t, b, fmt.Sprintf("(() => { %s; return %s })()", measuring, expression))
}

// prefersScheme has the browser ask for a colour scheme, "dark" or "light".
func prefersScheme(scheme string) browserStep {
	return func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}, //nolint:misspell // CSS
		})
		return chromedp.Void{}, err
	}
}

// settled waits until colours have changed.
var settled = until(`document.getAnimations().every(a => a.playState != "running")`)

// docsLoaded holds once the page shows its operations.
const docsLoaded = `document.querySelectorAll(".opblock").length > 10`

// openEverything opens one operation of each method, tries the first one out, and opens the schemas.
func (b *browser) openEverything(t *testing.T) {
	t.Helper()
	b.tryOut(t, "post", "/v1/namespaces/{namespace}/users/{user}/ping")
	for _, block := range []string{"getUser", "listUsers", "deleteNamespace"} {
		control := fmt.Sprintf(`[id$=%q] .opblock-summary-control`, block)
		b.do(t, chromedp.Click(chromedp.CSS(control)),
			until(fmt.Sprintf(`document.querySelector('[id$=%q] .responses-wrapper')`, block)))
	}
	b.do(t, chromedp.Click(chromedp.CSS(`[id$="getUser"] .model-example .tablinks[data-name="model"]`)))
	evaluate[bool](t, b,
		`document.querySelectorAll("section.models .model-box-control[aria-expanded=false], section.models button[aria-expanded=false]").forEach(e => e.click()) ?? true`)
}

// TestDocsAtFirstSight: on the screen of a laptop the first operation is there without scrolling, and the filter finds
// others by path, summary or tag.
func TestDocsAtFirstSight(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openBrowser(t, s.url)
	b.do(t, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.docs), until(docsLoaded))
	bottom := measure[float64](t, b, `document.querySelector(".opblock").getBoundingClientRect().bottom`)
	require.Less(t, bottom, 800.0, "the first operation ends below the window")
	require.Contains(t, measure[string](t, b, `document.querySelector(".opblock").innerText`), "/users/{user}/ping")

	const box = ".operation-filter-input"
	shown := `[...document.querySelectorAll(".opblock-summary-path")].map(e => e.dataset.path).join()`
	for typed, want := range map[string]string{
		"Lookup":   "/v1/namespaces/{namespace}/lookup,/v1/namespaces/{namespace}/lookup",
		"deleting": "/v1/namespaces/{namespace}/users/{user},/v1/namespaces/{namespace}",
		"look up":  "/v1/namespaces/{namespace}/users/{user},/v1/namespaces/{namespace}/lookup,/v1/namespaces/{namespace}/lookup",
		"nothing":  "",
	} {
		b.do(t, until(fmt.Sprintf("document.querySelector(%q).select() ?? true", box)),
			chromedp.SendKeys(chromedp.CSS(box), typed),
			until(fmt.Sprintf("%s == %q", shown, want)))
	}
	require.Empty(t, b.seen())
}

// TestPagesOnAPhone: nothing is beyond the sides of a small screen, and nothing is clipped.
func TestPagesOnAPhone(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openBrowser(t, s.url)
	b.do(t, chromedp.EmulateViewport(390, 844))
	requireFits := func(what string) {
		require.LessOrEqual(t, measure[int](t, b,
			"document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0, what)
		require.Empty(t, measure[[]string](t, b, "cutOff()"), what)
	}
	b.do(t, chromedp.Navigate(s.url+"/docs/errors"), until(`document.querySelectorAll("section").length > 10`))
	requireFits("errors")
	b.do(t, chromedp.Navigate(s.docs), until(docsLoaded))
	requireFits("docs")
	b.openEverything(t)
	requireFits("docs, opened")
	b.do(t, chromedp.Click(chromedp.CSS(".auth-wrapper > .authorize")), until(`document.querySelector(".modal-ux")`))
	requireFits("docs, authorizing")
}

// TestPagesInDarkMode checks that pages are dark in a browser that prefers it, and that all text is readable.
func TestPagesInDarkMode(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openBrowser(t, s.url)
	for _, page := range []string{"/docs/", "/docs/errors"} {
		b.do(t, prefersScheme("light"), chromedp.Navigate(s.url+page),
			until(`document.querySelector(".opblock, section")`))
		require.Greater(t, measure[float64](t, b, "background()"), 0.9, page)
		b.do(t, prefersScheme("dark"), settled)
		require.Less(t, measure[float64](t, b, "background()"), 0.03, page)
		require.Empty(t, measure[[]string](t, b, "faint(4.5)"), page)
	}
	b.do(t, chromedp.Navigate(s.docs), until(docsLoaded))
	b.openEverything(t)
	b.do(t, settled)
	require.Empty(t, measure[[]string](t, b, "faint(4.5)"))
	b.do(t, chromedp.Click(chromedp.CSS(".auth-wrapper > .authorize")), until(`document.querySelector(".modal-ux")`),
		settled)
	require.Empty(t, measure[[]string](t, b, "faint(4.5)"))
	require.Empty(t, b.seen())
}
