package scenarios

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// TestChatExample runs the example as its readers do: the dots of users who come and go change, the visitor is green,
// and Ctrl-C leaves nothing behind.
func TestChatExample(t *testing.T) {
	c := startExample(t, "examples/chat")
	b := testbrowser.Open(t, c.page)
	b.Do(t, chromedp.EmulateViewport(1000, 820), testbrowser.PrefersScheme("light"),
		chromedp.Navigate(c.page+"/?user=guest-1"),
		until(`document.querySelectorAll("#members li").length == 9`),
		until(memberStatus("guest-1")+` == "green"`))
	for _, status := range []string{"green", "yellow", "grey"} { // at the start, as the simulation promises
		b.Do(t, until(`[...document.querySelectorAll("#members presence-dot")].some(dot =>
			dot.presence.status == "`+status+`")`))
	}
	b.Do(t, until(`seen = {}, setInterval(() => document.querySelectorAll("#members li").forEach(member => {
			(seen[member.dataset.user] ??= new Set()).add(member.querySelector("presence-dot").presence.status)
		}), 50)`),
		until(`Object.values(seen).filter(statuses => statuses.size > 1).length > 2`)) // three users have changed
	require.Equal(t, "green", testbrowser.Evaluate[string](t, b, `[...seen["guest-1"]].join()`))
	require.Empty(t, c.complaints(b))
	testbrowser.WritePicture(t, b, "chat.png", `document.querySelectorAll("#talk li").length > 9 && ["green", "yellow", "grey"].every(
		(status, i) => document.querySelectorAll("#members presence-dot:state("+status+")").length >= [4, 1, 1][i])`)
	c.interrupt(t)
}

// memberStatus returns an expression for the status that the page shows for a user.
func memberStatus(user string) string {
	return `document.querySelector("#members [data-user='` + user + `'] presence-dot")?.presence?.status`
}

// TestChatExampleTalks: two visitors read what the other one writes, one of them on a small screen in the dark, and
// signing out is seen at once.
func TestChatExampleTalks(t *testing.T) {
	c := startExample(t, "examples/chat")
	alice := testbrowser.Open(t, c.page)
	alice.Do(t, chromedp.Navigate(c.page+"/?user=not+valid"),
		until(`/^guest-\d+$/.test(document.getElementById("me").innerText)`),
		chromedp.Navigate(c.page+"/?user=guest-1"), until(memberStatus("guest-1")+` == "green"`))
	bob := testbrowser.Open(t, c.page)
	bob.Do(t, chromedp.EmulateViewport(360, 740), testbrowser.PrefersScheme("dark"),
		chromedp.Navigate(c.page+"/?user=guest-2"), until(memberStatus("guest-1")+` == "green"`),
		chromedp.SendKeys(chromedp.CSS("#text"), "Hello <b>you</b>\n"))
	const said = `[...document.querySelectorAll("#talk li")].some(line => line.innerText.includes("Hello <b>you</b>"))`
	alice.Do(t, until(said), until(memberStatus("guest-2")+` == "green"`))
	bob.Do(t, until(said), testbrowser.Settled)
	require.Empty(t, testbrowser.Measure[[]string](t, bob, "faint(4.5)"))
	require.Empty(t, testbrowser.Measure[[]string](t, bob, "cutOff()"))
	require.Equal(t, 360, testbrowser.Evaluate[int](t, bob, "document.documentElement.scrollWidth"))
	bob.Do(t, chromedp.Click(chromedp.CSS("#leave")))
	alice.Do(t, until(memberStatus("guest-2")+` == "grey"`))
	c.interrupt(t)
}
