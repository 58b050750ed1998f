package browser

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestDashboardAfterARestart checks that the dashboard shows unknown while the server is away, and then goes on by
// itself.
func TestDashboardAfterARestart(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", data)
	s.Post(t, alice+"/ping", "")
	b := openDashboard(t, s.URL, "")
	b.Do(t, lists("alice", "green", "online now"), showsCounts("1", "0", "0"), clickIn("alice", ".row button"),
		says(".details", "No devices."), says(".availability p", "Availability: not set."))
	require.Zero(t, s.Terminate(t))
	b.Do(t, says("#connection", "Outage"), says("#banner", "The server cannot be reached."),
		says("#banner", "All other data on this page is from before the outage."),
		says("#feed-note", "Newer changes are missing during the outage."), showsCounts("unknown", "unknown", "unknown"),
		says(".details", "The server cannot be reached."), says(".availability p", "The server cannot be reached."))
	require.NotContains(t, textOf(t, b, "#users"), "grey")

	s = testserver.Start(t, "--store", data, "--listen", strings.TrimPrefix(s.URL, "http://"))
	s.Post(t, "/v1/namespaces/chat/users/bob/ping", "")
	b.Do(t, lists("bob", "green", "online now"), lists("alice", "green", "online now"), showsCounts("2", "0", "0"),
		says("#connection", "Live"), until(`document.getElementById("feed-note").hidden`),
		until(rowOf("alice")+`.querySelector(".details").innerText.includes("No devices.")`),
		says(".availability p", "Availability: not set."),
		until(`document.getElementById("banner").hidden`))
	require.Empty(t, mistakes(b))
}

// TestDashboardWithoutStore checks that nobody is shown as grey while Redis is away, not even a user who left: all is
// unknown.
func TestDashboardWithoutStore(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	s := testserver.Start(t, "--store", redis.URL())
	s.Post(t, "/v1/namespaces/chat/users/bob/leave", "")
	s.Post(t, alice+"/ping", "")
	b := testbrowser.Open(t, s.URL)
	withPageClock(t, b)
	b.Do(t, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.URL), lists("alice", "green", "online now"),
		lists("bob", "grey", "left "), showsCounts("1", "0", "1"), until(recordStatuses))
	redis.Stop(t)
	b.Do(t, until("(passed += 20_000, true)"),
		says("#banner", "unknown is not offline"), says("#connection", "Outage"),
		showsCounts("unknown", "unknown", "unknown"), until("(passed += 40_000, true)"),
		lists("alice", "unknown", "status unknown"), lists("bob", "unknown", "status unknown"))
	redis.Start(t)
	b.Do(t, until(`document.getElementById("banner").hidden`))
	require.Eventually(t, func() bool { // on a busy machine, the first pings take too long
		status, _ := s.Call(t, http.MethodPost, alice+"/ping", "")
		return status == http.StatusOK
	}, time.Minute, 100*time.Millisecond)
	b.Do(t, lists("alice", "green", "online now"), showsCounts("1", "0", "1"))
	require.NotContains(t, testbrowser.Evaluate[string](t, b, "statuses.join()"), "grey")
	require.Empty(t, mistakes(b))
}

// TestDashboardOfNobody checks that the dashboard does not say that nobody was seen while it cannot know that.
func TestDashboardOfNobody(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := openDashboard(t, s.server.URL, "#namespace=chat")
	b.Do(t, says("#people-note", "No users yet."), says("#connection", "Live"))
	s.answerUnavailable()
	s.cut()
	b.Do(t, says("#people-note", "Status unknown."))
	s.setAnswer(nil)
	b.Do(t, says("#people-note", "No users yet."))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, lists("alice", "green", "online now"), until(`document.getElementById("people-note").hidden`))
	require.Empty(t, mistakes(b))
}

// TestDashboardWaitsAsAsked checks that the dashboard asks again no earlier than the server says.
func TestDashboardWaitsAsAsked(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/counts") {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	b := testbrowser.Open(t, s.server.URL)
	b.WithScript(t, `const waits = [], after = setTimeout
		setTimeout = (call, wait, ...rest) => (waits.push(wait), after(call, wait, ...rest))`)
	b.Do(t, chromedp.Navigate(s.server.URL+"/#namespace=chat"), says("#banner", "unknown is not offline"),
		until("waits.some(wait => wait >= 3_600_000)"))
	require.Empty(t, mistakes(b))
}

// TestDashboardWithoutWebSocket checks that the dashboard polls behind a proxy that knows no WebSockets.
func TestDashboardWithoutWebSocket(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.refuseSockets(http.StatusBadRequest)
	s.pingedAgo(t, "alice", 0)
	b := openDashboard(t, s.server.URL, "")
	b.Do(t, lists("alice", "green", "online now"), showsCounts("1", "0", "0"),
		says("#connection", "Polling"))
	s.pingedAgo(t, "bob", 0)
	b.Do(t, lists("bob", "green", "online now"), showsCounts("2", "0", "0"),
		says("#feed-note", "WebSocket"))
	s.leaves(t, "bob")
	b.Do(t, lists("bob", "grey", "left "), showsCounts("1", "0", "1"))
	require.Empty(t, mistakes(b))
}
