package main

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// presentPage is what a page adds to the guide's code: its user is there until it closes.
const presentPage = `
const device = newDevice()
keepPinging({ url, user: "alice", device, headers })
leaveWhenClosed({ url, user: "alice", device, token: () => token, after: "100ms" })`

// live returns how many devices of alice have not said goodbye.
func (s *site) live(t *testing.T) (live int) {
	t.Helper()
	devices, err := s.ReadDevices(t.Context(), "chat", "alice")
	require.NoError(t, err)
	return len(devices.Live(devices.State.At))
}

// untilLive waits until a number of alice's devices have not said goodbye.
func (s *site) untilLive(t *testing.T, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.live(t) == want }, time.Minute, 10*time.Millisecond)
}

// hasLeft reports whether alice has left.
func (s *site) hasLeft(t *testing.T) bool {
	t.Helper()
	states, err := s.Lookup(t.Context(), "chat", []string{"alice"})
	require.NoError(t, err)
	return states[0].Left
}

// TestWebPagesLeaveWithLastTab: of two tabs one closes, and the user stays green. With the last one they leave.
func TestWebPagesLeaveWithLastTab(t *testing.T) {
	t.Parallel()
	s := newSite(t, presentPage)
	first := openBrowser(t, s.url)
	first.do(t, chromedp.Navigate(s.url))
	s.untilLive(t, 1)
	second, last := first.newTab(t), first.newTab(t) // the last one keeps the browser open
	second.do(t, chromedp.Navigate(s.url))
	last.do(t, chromedp.Navigate("about:blank"))
	s.untilLive(t, 2)
	second.close(t)
	s.untilLive(t, 1)
	require.False(t, s.hasLeft(t), "the first tab is still open")
	first.close(t)
	s.untilLive(t, 0)
	require.True(t, s.hasLeft(t))
}

// TestWebPagesReload: a page that is loaded again is a new device, which is heard before the old one's leave is
// recorded.
func TestWebPagesReload(t *testing.T) {
	t.Parallel()
	s := newSite(t, strings.Replace(presentPage, "100ms", "2s", 1))
	b := openBrowser(t, s.url)
	b.do(t, chromedp.Navigate(s.url))
	s.untilLive(t, 1)
	s.advance(time.Second)
	b.do(t, chromedp.Navigate(s.url))
	s.untilLive(t, 2)
	s.untilLive(t, 1)
	require.False(t, s.hasLeft(t))
}

// TestWebPagesShownAgain: a page that the browser kept pings at once when it is shown again.
func TestWebPagesShownAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, presentPage)
	b := openBrowser(t, s.url)
	b.do(t, chromedp.Navigate(s.url))
	s.untilLive(t, 1)
	b.do(t, until(`(dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true })), true)`))
	s.untilLive(t, 0)
	s.advance(time.Second)
	b.do(t, until(`(dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })), true)`))
	s.untilLive(t, 1)
	require.False(t, s.hasLeft(t))
}
