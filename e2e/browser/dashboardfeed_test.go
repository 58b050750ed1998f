package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestDashboardChangesAreBounded checks that the dashboard keeps the last 100 changes, and that the list can be paused.
func TestDashboardChangesAreBounded(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := openDashboard(t, s.URL, "#namespace=chat")
	b.Do(t, says("#connection", "Live"), says("#feed-note", "No changes yet."))
	var pings []string
	for i := range 150 {
		pings = append(pings, fmt.Sprintf(`{"user":"user-%d"}`, i))
	}
	s.Post(t, "/v1/namespaces/chat/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
	const rows = `document.querySelectorAll("#changes > li").length`
	b.Do(t, showsCounts("150", "0", "0"), until(rows+" === 100"), clickOn("#pause"))
	newest := textOf(t, b, "#changes bdi")

	s.Post(t, alice+"/ping", "")
	b.Do(t, says("#pause", "Resume (1)"))
	require.Equal(t, newest, textOf(t, b, "#changes bdi"))
	b.Do(t, clickOn("#pause"), until(`document.querySelector("#changes bdi").innerText === "alice"`),
		until(rows+" === 100"))
	require.Equal(t, "Pause", textOf(t, b, "#pause"))
	require.Empty(t, b.Seen())
}

// TestDashboardCopiesCommands checks that a command is copied as shown, and that it is selected where a page cannot
// copy, because it came over plain HTTP. The clipboard is replaced: a browser without windows has none.
func TestDashboardCopiesCommands(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	b := openDashboard(t, s.URL, "#namespace=chat&status=green")
	want := fmt.Sprintf("curl -sS '%s/v1/namespaces/chat/users?status=green&limit=25'", s.URL)
	const clipboard = `(Object.defineProperty(navigator, "clipboard", {configurable: true, value: %s}), true)`
	b.Do(t, says("#commands", want),
		until(fmt.Sprintf(clipboard, `{writeText: async text => { window.copied = text }}`)),
		clickOn("#commands button"), says("#commands button", "Copied"))
	require.Equal(t, want, testbrowser.Evaluate[string](t, b, "copied"))

	b.Do(t, until(fmt.Sprintf(clipboard, "undefined")), clickOn("#commands button"),
		says("#commands button", "Selected"))
	require.Equal(t, want, testbrowser.Evaluate[string](t, b, "getSelection().toString()"))
	require.Empty(t, b.Seen())
}
