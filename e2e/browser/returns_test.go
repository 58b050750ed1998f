package browser

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/internal/testbrowser"
)

// holdSockets lets upgrades to WebSockets wait for as long as a test wants, and returns the function that ends that.
func (s *scripted) holdSockets(t *testing.T) (release func()) {
	t.Helper()
	held := make(chan struct{})
	s.setAnswer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") != "" {
			select {
			case <-held:
			case <-t.Context().Done():
			}
		}
		return false
	})
	return func() { close(held) }
}

// TestScriptConnectsLate: a page whose options change while its connection is being opened opens another one. The
// console has no error.
func TestScriptConnectsLate(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	release := s.holdSockets(t)
	b := s.open(t, "", watching)
	require.Eventually(t, func() bool { return s.connects() == 1 }, time.Minute, 10*time.Millisecond)
	b.Do(t, until(`connect({ url, namespace, user: "alice" })`))
	release() // before the other attempt, since browsers make one at a time
	b.Do(t, shows("alice", "green"))
	s.untilDevices(t, "alice", 1, 0)
	s.untilFollowed(t, 1, 1)
	require.Empty(t, s.complaints(b))
}

// TestScriptFollowsAgain: a page that looked users up while it had no connection follows all of them by the next one,
// also those who do not change.
func TestScriptFollowsAgain(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", `Math.random = () => 0.01
		window.client = connect({ url, namespace })
		client.watch(["alice", "bob"], show)`)
	b.Do(t, shows("alice", "green"), shows("bob", "grey"))
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	s.pingedAgo(t, "bob", 0)
	b.Do(t, shows("bob", "green")) // by a lookup
	s.setAnswer(nil)
	s.untilFollowed(t, 2, 1)
	for range 3 {
		s.leaves(t, "bob")
		b.Do(t, shows("bob", "grey"), until("passed += 15_000"))
		s.pingedAgo(t, "bob", 0)
		b.Do(t, shows("bob", "green"), until("passed += 15_000"))
	}
	require.Equal(t, 1, strings.Count(shown(t, b), "alice unknown"), shown(t, b))
}

// TestScriptTabsReturnInOutage: a tab that becomes visible in an outage shows unknown, and after it what the tab that
// leads shows, not what it knew before.
func TestScriptTabsReturnInOutage(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "bob", 0)
	page := s.addPage("", tabbed+`
		window.shared = 0
		const post = BroadcastChannel.prototype.postMessage
		BroadcastChannel.prototype.postMessage = function (data) { if (data.facts) shared++; post.call(this, data) }`)
	leader := testbrowser.Open(t, s.pages)
	leader.Do(t, chromedp.Navigate(page+"?watch=bob"), shows("bob", "green"))
	follower := leader.NewTab(t)
	follower.Do(t, chromedp.Navigate(page+"?watch=bob"), shows("bob", "green"), show("hidden"))
	s.leaves(t, "bob")
	leader.Do(t, shows("bob", "grey"))
	s.faults.setDown(true)
	leader.Do(t, until("passed += 31_000"), shows("bob", "unknown"), until("(shared = 0, true)"))
	follower.Do(t, until("passed += 60_000"), until("(painted = [], true)"), show("visible"))
	leader.Do(t, until("shared > 0"))
	follower.Do(t, shows("bob", "unknown"))
	s.faults.setDown(false)
	leader.Do(t, shows("bob", "grey"))
	follower.Do(t, shows("bob", "grey"))
	require.Equal(t, "bob unknown,bob grey", shown(t, follower))
}

// TestScriptReturnsInOutage: a page that had a connection, and becomes visible while there is none to be had, goes on
// trying.
func TestScriptReturnsInOutage(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", "Math.random = () => 0.01"+watching)
	b.Do(t, shows("alice", "grey"), show("hidden"))
	s.untilFollowed(t, 0, 0)
	s.refuseSockets(http.StatusServiceUnavailable)
	b.Do(t, show("visible"))
	require.Eventually(t, func() bool { return s.connects() >= 4 }, 20*time.Second, 10*time.Millisecond)
	s.setAnswer(nil)
	s.untilFollowed(t, 1, 1)
}

// TestScriptTabsTime: a tab that follows has the server's time, although the computer's is an hour wrong.
func TestScriptTabsTime(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	leader, _ := s.openTabs(t, tabbed)
	s.untilFollowed(t, 2, 1)
	third := leader.NewTab(t) // of the one that leads, since it asks for nobody new
	third.Do(t, chromedp.Navigate(s.pages+"/0?watch=alice"), shows("alice", "grey"))
	off := testbrowser.Evaluate[float64](t, third, "client.now()") - float64(time.Now().UnixMilli())
	require.InDelta(t, 0, off, 600_000, "milliseconds")
}

// TestScriptTokenRejects: a page goes on after a token callback that fails without an error.
func TestScriptTokenRejects(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", `
		let calls = 0
		const fails = () => calls++ < 2 ? Promise.reject() : undefined
		connect({ url, namespace, token: fails, transport: "http" }).watch("alice", show)`)
	b.Do(t, shows("alice", "green"))
	require.Empty(t, s.complaints(b))
}

// TestScriptLeavesInMove: a leave that is lost with the connection, since the page moves to another server, is sent
// to that one.
func TestScriptLeavesInMove(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	stopping, next := api.NewShared(s.config), api.NewShared(s.config)
	s.serveBy(stopping)
	b := s.openOnline(t, `
		const sendFrame = WebSocket.prototype.send
		WebSocket.prototype.send = function (text) { text.includes("leave") || sendFrame.call(this, text) };`)
	s.untilDevices(t, "alice", 1, 0)
	b.Do(t, until(`(client.leave().then(() => { window.left = true }), true)`))
	s.serveBy(next)
	stopping.Drain()
	b.Do(t, until("window.left"))
	require.Len(t, s.called("POST /v1/namespaces/chat/users/alice/leave"), 1)
}
