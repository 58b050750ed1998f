package browser

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testbrowser"
)

// onlineScript is the module of a page that keeps alice online, and notes its pings. Other code can set options before.
const onlineScript = `
const requests = [], refused = [], renewals = [], send = fetch
window.fetch = (url, init) => {
	const path = new URL(url, location.href).pathname.split("/").pop()
	if (init?.body) requests.push({ path, at: performance.now(), body: JSON.parse(init.body) })
	return send(url, init)
}
window.newToken ??= token
Object.assign(window, { requests, refused, renewals, pings: () => requests.filter(({ path }) => path === "ping") })
addEventListener("pageshow", event => { window.restored = event.persisted })
window.client = connect({
	url, namespace, user: "alice", ...window.options,
	token: ({ renew }) => (renewals.push(renew), newToken(renew)),
	onrefused: problem => refused.push(problem),
})`

// overHTTP are options for pages without WebSockets.
const overHTTP = `window.options = { transport: "http", grace: 100 };`

// watchScript is the module of a page that watches alice.
const watchScript = `connect({ url, namespace, token }).watch("alice", show)`

// keepOnline opens a page that keeps alice online, in a tab.
func (s *scripted) keepOnline(t *testing.T, b *browser, before string) {
	t.Helper()
	s.load(t, b, "", before+onlineScript)
}

// openOnline is keepOnline in a new browser.
func (s *scripted) openOnline(t *testing.T, before string) *browser {
	t.Helper()
	return s.open(t, "", before+onlineScript)
}

// TestScriptOnlineInTabs: a user with two tabs is online until the last one is closed.
func TestScriptOnlineInTabs(t *testing.T) {
	s := newScripted(t, scriptOptions{grace: 100 * time.Millisecond})
	bob := testbrowser.Open(t, s.pages)
	s.load(t, bob, "", watchScript)
	bob.Do(t, shows("alice", "grey"))
	first, second := bob.NewTab(t), bob.NewTab(t)
	s.keepOnline(t, first, "")
	bob.Do(t, shows("alice", "green"))
	s.keepOnline(t, second, "")
	s.untilDevices(t, "alice", 2, 0)
	bob.Do(t, until("(painted.length = 0, true)"))
	first.Close(t)
	s.untilDevices(t, "alice", 1, 1)
	second.Close(t)
	bob.Do(t, shows("alice", "grey"))
	require.Equal(t, "alice grey", testbrowser.Evaluate[string](t, bob, "painted.join()"), "one change, with the last tab")
}

// TestScriptReload: a page that is loaded again within the grace leaves its user green.
func TestScriptReload(t *testing.T) {
	s := newScripted(t, scriptOptions{grace: 8 * time.Second})
	bob := testbrowser.Open(t, s.pages)
	s.load(t, bob, "", watchScript)
	alice := bob.NewTab(t)
	s.keepOnline(t, alice, "")
	bob.Do(t, shows("alice", "green"), until("(painted.length = 0, true)"))
	s.keepOnline(t, alice, "")
	s.untilDevices(t, "alice", 1, 1)
	require.Empty(t, testbrowser.Evaluate[string](t, bob, "painted.filter(text => text != 'alice green').join()"))
}

// TestScriptBackForwardCache: the browser keeps a page with a connection in its cache. Shown again, it is the same
// device, and online.
func TestScriptBackForwardCache(t *testing.T) {
	s := newScripted(t, scriptOptions{grace: 100 * time.Millisecond})
	b := testbrowser.OpenWithWindows(t, s.pages)
	s.keepOnline(t, b, "")
	s.untilDevices(t, "alice", 1, 0)
	s.load(t, b, "", "")
	s.untilDevices(t, "alice", 0, 1)
	require.True(t, s.hasLeft(t))
	b.Do(t, goBack, until("window.restored"))
	s.untilDevices(t, "alice", 1, 1)
	require.False(t, s.hasLeft(t))
}

// TestScriptBackForwardCacheHTTP: a page that pings sends no leave if the browser keeps it.
func TestScriptBackForwardCacheHTTP(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := testbrowser.OpenWithWindows(t, s.pages)
	s.keepOnline(t, b, overHTTP)
	b.Do(t, until("pings().length == 1"))
	s.load(t, b, "", "")
	b.Do(t, goBack, until("window.restored"), passIn(30*time.Second), until("pings().length == 2"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "pings()[0].body.device.id == pings()[1].body.device.id"))
	require.Empty(t, s.called("POST /v1/namespaces/chat/users/alice/leave"))
}

// goBack shows the page that a tab showed before.
func goBack(ctx context.Context, page *chromedp.Target) (chromedp.Void, error) {
	_, err := chromedp.Evaluate[bool]("(history.back(), true)")(ctx, page)
	return chromedp.Void{}, err
}

func (s *scripted) hasLeft(t *testing.T) bool {
	t.Helper()
	states, _, err := s.Describe(t.Context(), "chat", []string{"alice"})
	require.NoError(t, err)
	return states[0].Left
}

// untilIdle waits until the only device of alice is idle, or not.
func (s *scripted) untilIdle(t *testing.T, idle bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		devices, err := s.ReadDevices(t.Context(), "chat", "alice")
		require.NoError(t, err)
		return len(devices.Records) == 1 && (devices.Records[0].IdleSince > 0) == idle
	}, time.Minute, 10*time.Millisecond)
}

// TestScriptIdle: a page is idle while it is hidden, and when it was not used for some time.
func TestScriptIdle(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, "window.options = { idleAfter: 20_000 };")
	s.untilIdle(t, false)
	b.Do(t, show("hidden"))
	s.untilIdle(t, true)
	b.Do(t, show("visible"))
	s.untilIdle(t, false)
	b.Do(t, until("(passed += 20_000, true)"))
	s.untilIdle(t, true)
	b.Do(t, until(`dispatchEvent(new PointerEvent("pointermove"))`))
	s.untilIdle(t, false)
	require.Equal(t, 0, testbrowser.Evaluate[int](t, b, "requests.length"), "all of it over one connection")
}

// TestScriptHidden: a hidden page with a connection sends that it is idle, and nothing else: its user stays online by
// the pings of the server, which browsers answer. The hello of the next connection says since when.
func TestScriptHidden(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, sentScript+"window.options = { grace: 60_000 };")
	s.untilIdle(t, false)
	require.JSONEq(t, `{"kind":"web","grace_ms":60000}`,
		testbrowser.Evaluate[string](t, b, "JSON.stringify({ kind: sent[0].hello.device.kind, grace_ms: sent[0].hello.grace_ms })"))
	b.Do(t, until("(sent.length = 0, true)"), show("hidden"))
	s.untilIdle(t, true)
	b.Do(t, passIn(20*time.Second))
	require.JSONEq(t, `[{"activity":{"idle":true}}]`, testbrowser.Evaluate[string](t, b, "JSON.stringify(sent)"))
	require.Equal(t, 0, testbrowser.Evaluate[int](t, b, "requests.length"))
	require.Equal(t, 1, s.connects())
	s.cut()
	b.Do(t, until("sent.some(({ hello }) => hello?.activity.idle && hello.activity.idle_ms >= 20_000)"))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, "sent.filter(({ activity }) => activity).length"))
}

// idleSince returns since when alice is idle; 0 if she is not.
func (s *scripted) idleSince(t *testing.T) lastseen.Instant {
	t.Helper()
	_, details, err := s.Describe(t.Context(), "chat", []string{"alice"})
	require.NoError(t, err)
	return details["alice"].IdleSince
}

// TestScriptIdleTabs: a tab that is hidden from the start does not change since when its user is idle, neither when it
// opens nor when the other one is closed.
func TestScriptIdleTabs(t *testing.T) {
	t.Parallel()
	const hidden = `Object.defineProperty(document, "visibilityState", { value: "hidden" });`
	for name, options := range map[string]string{"pings": overHTTP, "WebSocket": "window.options = { grace: 100 };"} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			first := s.openOnline(t, hidden+options)
			s.untilDevices(t, "alice", 1, 0)
			since := s.idleSince(t)
			require.NotZero(t, since)
			second := first.NewTab(t)
			s.keepOnline(t, second, hidden+options)
			s.untilDevices(t, "alice", 2, 0)
			require.Equal(t, since, s.idleSince(t))
			first.Close(t)
			s.untilDevices(t, "alice", 1, 1)
			require.Equal(t, since, s.idleSince(t))
		})
	}
}

// TestScriptIdleChanges: a change from a WebSocket to pings, and back, does not change since when a user is idle.
func TestScriptIdleChanges(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, "Math.random = () => 0.01; window.options = { grace: 60_000 };")
	s.untilIdle(t, false)
	b.Do(t, show("hidden"))
	s.untilIdle(t, true)
	since := s.idleSince(t)
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	b.Do(t, until("pings().length == 1"))
	s.untilDevices(t, "alice", 2, 0)
	require.Equal(t, since, s.idleSince(t))
	s.setAnswer(nil)
	b.Do(t, until(`requests.some(({ path }) => path === "leave")`))
	s.untilDevices(t, "alice", 2, 1)
	require.Equal(t, since, s.idleSince(t))
}

// TestScriptPings: without WebSockets a page pings, first at a random moment, then when the server says.
func TestScriptPings(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, overHTTP+"const begun = performance.now(); Math.random = () => 0.9; window.begun = begun;")
	b.Do(t, until("pings().length == 1"))
	require.GreaterOrEqual(t, testbrowser.Evaluate[float64](t, b, "pings()[0].at - begun"), 900.0)
	s.untilDevices(t, "alice", 1, 0)
	b.Do(t, show("hidden"), until("(passed += 30_000, true)"), until("pings().length == 2"))
	require.GreaterOrEqual(t, testbrowser.Evaluate[float64](t, b, "pings()[1].at - pings()[0].at"), 24_000.0)
	require.Equal(t, ",idle", testbrowser.Evaluate[string](t, b, "pings().map(ping => ping.body.activity).join()"))
	require.Equal(t, 0, s.connects())
	require.Empty(t, s.complaints(b))
}

// answerPings answers pings with a problem.
func (s *scripted) answerPings(status int, code, retryAfter string) {
	s.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/ping") {
			return false
		}
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, code)
		return true
	})
}

// TestScriptPingsWait: a ping that fails is sent again, not before the time that the server asks for.
func TestScriptPingsWait(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.answerPings(http.StatusServiceUnavailable, "not of lastseen", "60")
	b := s.openOnline(t, overHTTP)
	b.Do(t, until("pings().length == 1"))
	require.Eventually(t, func() bool {
		return len(s.called("POST /v1/namespaces/chat/users/alice/ping")) == 1
	}, time.Minute, 10*time.Millisecond)
	s.setAnswer(nil)
	b.Do(t, until("pings().length == 2 || (passed += 1000, false)"))
	require.GreaterOrEqual(t, testbrowser.Evaluate[float64](t, b, "pings()[1].at - pings()[0].at"), 60_000.0)
	s.untilDevices(t, "alice", 1, 0)
}

// TestScriptPingsRefused: a page that the server refuses for good says so once, and pings no more.
func TestScriptPingsRefused(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.answerPings(http.StatusForbidden, `{"code":"forbidden"}`, "")
	b := s.openOnline(t, overHTTP)
	b.Do(t, until("refused.length == 1"), passIn(time.Minute))
	require.JSONEq(t, `[{"status":403,"code":"forbidden"}]`, testbrowser.Evaluate[string](t, b, "JSON.stringify(refused)"))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, "requests.length"))
}

// TestScriptPingsRenewToken: after a 401 the page asks for another token, once.
func TestScriptPingsRenewToken(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "alice", time.Hour)
	b := s.openOnline(t, overHTTP+`window.newToken = renew => renew ? token() : "expired";`)
	s.untilDevices(t, "alice", 1, 0)
	require.Equal(t, "false,true", testbrowser.Evaluate[string](t, b, "renewals.join()"))
	b.Do(t, until(`window.newToken = () => "expired"`), passIn(30*time.Second), until("refused.length == 1"))
	require.JSONEq(t, `[{"status":401,"code":"unauthenticated"}]`, testbrowser.Evaluate[string](t, b, "JSON.stringify(refused)"))
}

// TestScriptLeaveOnClose: a page that closes while its ping is in progress leaves, with its device and token in the
// body, and with time for the next page.
func TestScriptLeaveOnClose(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "alice", time.Hour)
	s.setAnswer(func(_ http.ResponseWriter, r *http.Request) bool {
		held := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/ping")
		if held {
			s.connected.serve(httptest.NewRecorder(), r)
			<-r.Context().Done()
		}
		return held
	})
	b := testbrowser.Open(t, s.pages)
	b.Do(t, chromedp.Navigate("about:blank"))
	tab := b.NewTab(t)
	s.keepOnline(t, tab, overHTTP)
	s.untilDevices(t, "alice", 1, 0)
	device := testbrowser.Evaluate[string](t, tab, "client.device")
	tab.Close(t)
	s.untilDevices(t, "alice", 0, 1)
	leaves := s.called("POST /v1/namespaces/chat/users/alice/leave")
	require.Len(t, leaves, 1)
	var body struct {
		Device struct{ ID, Kind string }
		Token  string
		After  string
	}
	_, content, _ := strings.Cut(leaves[0], "/leave ")
	require.NoError(t, json.Unmarshal([]byte(content), &body))
	require.Equal(t, device, body.Device.ID)
	require.Equal(t, "web", body.Device.Kind)
	require.Equal(t, "100ms", body.After)
	require.NotEmpty(t, body.Token)
}

// TestScriptLeave: a user who signs out is gone at once, before the grace, and stays so.
func TestScriptLeave(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, "")
	// A leave before the welcome would wait for the grace.
	b.Do(t, until(`window.stop = client.watch("alice", show)`), shows("alice", "green"), until("(stop(), true)"))
	s.leave(t, b)
}

// TestScriptLeaveHTTP: the same without a WebSocket.
func TestScriptLeaveHTTP(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openOnline(t, overHTTP)
	s.untilDevices(t, "alice", 1, 0)
	s.leave(t, b)
}

// leave has a page leave, and checks that the user has left and the page is quiet.
func (s *scripted) leave(t *testing.T, b *browser) {
	t.Helper()
	b.Do(t, until("(client.leave().then(() => { window.left = true }), true)"), until("window.left"))
	require.True(t, s.hasLeft(t))
	connects, requests := s.connects(), testbrowser.Evaluate[int](t, b, "requests.length")
	b.Do(t, passIn(time.Minute), passIn(time.Minute))
	require.Equal(t, requests, testbrowser.Evaluate[int](t, b, "requests.length"))
	require.Equal(t, connects, s.connects())
}
