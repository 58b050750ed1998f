package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDashboardChangesAreBounded checks that the dashboard keeps the last 100 changes, and that the list can be paused.
func TestDashboardChangesAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openDashboard(t, s.url, "#namespace=chat")
	b.do(t, says("#connection", "Live"), says("#feed-note", "Waiting for the first change."))
	var pings []string
	for i := range 150 {
		pings = append(pings, fmt.Sprintf(`{"user":"user-%d"}`, i))
	}
	s.post(t, "/v1/namespaces/chat/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
	const rows = `document.querySelectorAll("#changes > li").length`
	b.do(t, showsCounts("150", "0", "0"), until(rows+" === 100"), clickOn("#pause"))
	newest := textOf(t, b, "#changes bdi")

	s.post(t, alice+"/ping", "")
	b.do(t, says("#pause", "Resume (1)"))
	require.Equal(t, newest, textOf(t, b, "#changes bdi"))
	b.do(t, clickOn("#pause"), until(`document.querySelector("#changes bdi").innerText === "alice"`),
		until(rows+" === 100"))
	require.Equal(t, "Pause", textOf(t, b, "#pause"))
	require.Empty(t, b.seen())
}

// TestDashboardCopiesCommands checks that a command is copied as shown, and that it is selected where a page cannot
// copy, because it came over plain HTTP. The clipboard is replaced: a browser without windows has none.
func TestDashboardCopiesCommands(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openDashboard(t, s.url, "#namespace=chat&status=green")
	want := fmt.Sprintf("curl -sS '%s/v1/namespaces/chat/users?status=green&limit=25'", s.url)
	const clipboard = `(Object.defineProperty(navigator, "clipboard", {configurable: true, value: %s}), true)`
	b.do(t, says("#commands", want),
		until(fmt.Sprintf(clipboard, `{writeText: async text => { window.copied = text }}`)),
		clickOn("#commands button"), says("#commands button", "Copied"))
	require.Equal(t, want, evaluate[string](t, b, "copied"))

	b.do(t, until(fmt.Sprintf(clipboard, "undefined")), clickOn("#commands button"),
		says("#commands button", "Selected"))
	require.Equal(t, want, evaluate[string](t, b, "getSelection().toString()"))
	require.Empty(t, b.seen())
}
