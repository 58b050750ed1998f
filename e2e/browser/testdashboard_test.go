package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// openDashboard opens the dashboard of a server with a fragment, such as "#namespace=chat", in a browser.
func openDashboard(t *testing.T, server, fragment string) *browser {
	t.Helper()
	b := testbrowser.Open(t, server)
	b.Do(t, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(server+"/"+fragment))
	return b
}

// withPageClock lets the test move the clocks of the pages that the browser opens from now on: see
// [testbrowser.PageClock].
func withPageClock(t *testing.T, b *browser) {
	t.Helper()
	b.WithScript(t, testbrowser.PageClock)
}

// mistakes returns the problems of a page, except failed requests: tests of outages and of credentials provoke them.
func mistakes(b *browser) []string {
	return slices.DeleteFunc(b.Seen(), func(problem string) bool {
		return strings.HasPrefix(problem, "network: ") || strings.Contains(problem, "WebSocket connection to")
	})
}

// rowOf is the row of a user on the dashboard, in JavaScript.
func rowOf(user string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#users > li")].find(e => e.dataset.user === %q)`, user)
}

// lists waits until a user is listed with a text that begins so, and with the dot of a status.
func lists(user, status, text string) step {
	return until(fmt.Sprintf(`(row => row.querySelector("time").textContent.startsWith(%q) &&
		row.querySelector("presence-dot").matches(":state(%s)"))(%s)`, text, status, rowOf(user)))
}

// showsCounts waits until the dashboard shows numbers of green, yellow and grey users.
func showsCounts(green, yellow, grey string) step {
	return until(fmt.Sprintf(`[...document.querySelectorAll("[data-count]")].map(e => e.innerText).join(" ") === %q`,
		green+" "+yellow+" "+grey))
}

// textOf returns what an element of the dashboard shows.
func textOf(t *testing.T, b *browser, selector string) string {
	t.Helper()
	return testbrowser.Evaluate[string](t, b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// says waits until an element of the dashboard shows a text.
func says(selector, text string) step {
	return until(fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

func clickOn(selector string) step { return chromedp.Click(chromedp.CSS(selector)) }

func clickIn(user, selector string) step {
	return until(fmt.Sprintf("%s.querySelector(%q).click() ?? true", rowOf(user), selector))
}

// typeInto types into a field in place of what it contains.
func typeInto(selector, text string) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		if _, err := until(fmt.Sprintf("document.querySelector(%q).select() ?? true", selector))(ctx, target); err != nil {
			return chromedp.Void{}, err
		}
		return chromedp.SendKeys(chromedp.CSS(selector), text)(ctx, target)
	}
}

// requireFits checks that nothing is beyond the sides of the window, and nothing is clipped.
func requireFits(t *testing.T, b *browser, what string) {
	t.Helper()
	require.LessOrEqual(t, testbrowser.Measure[int](t, b,
		"document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0, what)
	require.Empty(t, testbrowser.Measure[[]string](t, b, "cutOff()"), what)
}
