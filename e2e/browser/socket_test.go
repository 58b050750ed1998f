package browser

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/internal/testbrowser"
)

// socketScript is the module of a page that opens a socket for bob, and notes what happens.
const socketScript = `
const frames = [], downs = [], refused = [], renewals = []
let received = 0
Object.assign(window, { frames, downs, refused, renewals })
window.newToken ??= token
window.welcomes = () => frames.filter(name => name === "welcome").length
window.socket = new Socket({
	url, namespace,
	token: ({ renew }) => (renewals.push(renew), newToken(renew)),
	hello: () => ({ user: "bob", device: { id: "tab", kind: "web" } }),
	onframe: (name, value, id) => (received = performance.now(), frames.push(name)),
	ondown: (invalid, code) => downs.push({ invalid, code, after: performance.now() - received }),
	onrefused: problem => refused.push(problem),
})`

// openSocket opens the page with the script, after other code, in a tab of a new browser.
func (s *scripted) openSocket(t *testing.T, before string) *browser {
	t.Helper()
	return s.open(t, "", before+socketScript)
}

// passIn lets time pass in a page, which does at once what is due.
func passIn(d time.Duration) step {
	return until(fmt.Sprintf(`(passed += %d, document.dispatchEvent(new Event("visibilitychange")), true)`,
		d.Milliseconds()))
}

// TestScriptSocketContinues: a connection that breaks is replaced, and frames are sent on the new one.
func TestScriptSocketContinues(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openSocket(t, "")
	b.Do(t, until("welcomes() == 1"))
	s.cut()
	b.Do(t, until("downs.length == 1"), until("welcomes() == 2"),
		until(`socket.send({ activity: { idle: true }, id: 1 })`), until(`frames.at(-1) == "ok"`))
	require.Equal(t, "false 1006", testbrowser.Evaluate[string](t, b, "downs.map(d => d.invalid + ' ' + d.code).join()"))
	s.untilDevices(t, "bob", 2, 0) // the grace of the first is a minute
}

// TestScriptSocketSilence: a socket that has received nothing for too long says so, and connects again.
func TestScriptSocketSilence(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openSocket(t, "")
	b.Do(t, until("welcomes() == 1"), passIn(20*time.Second), passIn(16*time.Second), until("downs.length == 1"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "downs[0].invalid && downs[0].after >= 35_000"), "a tick and 10 seconds")
	b.Do(t, until("welcomes() == 2"))
}

// TestScriptSocketOutage: while no connection can be had, what was received is valid for as long as in silence.
func TestScriptSocketOutage(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openSocket(t, "")
	b.Do(t, until("welcomes() == 1"))
	s.refuseSockets(503)
	s.cut()
	b.Do(t, until("downs.length >= 3"), passIn(36*time.Second), until("downs.some(down => down.invalid)"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "downs.every(down => !down.invalid || down.after >= 35_000)"))
	s.setAnswer(nil)
	b.Do(t, passIn(30*time.Second), until("welcomes() == 2"))
}

// TestScriptSocketBacksOff: the pauses grow while connections are refused.
func TestScriptSocketBacksOff(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.refuseSockets(503)
	b := s.open(t, "", `
		Math.random = () => 0.9 // a pause is nine tenths of the longest
		window.attempts = []
		window.socket = new Socket({
			url, namespace, hello: () => ({}), onframe() {}, token: () => { attempts.push(performance.now()) },
		})`)
	pauses := []int{900, 1800, 3600, 7200, 14_400, 27_000, 27_000}
	for i, pause := range pauses {
		b.Do(t, until(fmt.Sprintf("attempts.length == %d", i+1)))
		require.Eventually(t, func() bool { return s.connects() == i+1 }, time.Minute, 10*time.Millisecond)
		b.Do(t, until(fmt.Sprintf("(passed += %d, true)", pause)))
	}
	b.Do(t, until(fmt.Sprintf("attempts.length == %d", len(pauses)+1)))
	for i, pause := range pauses {
		require.GreaterOrEqual(t, testbrowser.Evaluate[float64](t, b,
			fmt.Sprintf("attempts[%d] - attempts[%d]", i+1, i)),
			float64(pause))
	}
}

// TestScriptSocketWaits: a socket waits for as long as the server asks for before the end.
func TestScriptSocketWaits(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.closeSockets(4503, "unavailable", `{"problem":{"status":503,"code":"unavailable","retry_after_ms":40000}}`)
	b := s.openSocket(t, `window.times = []; window.newToken = () => { times.push(performance.now()) };`)
	b.Do(t, until("downs.length == 1"))
	s.setAnswer(nil)
	b.Do(t, until("welcomes() == 1 || (passed += 1000, false)"))
	require.GreaterOrEqual(t, testbrowser.Evaluate[float64](t, b, "times[1] - times[0]"), 40_000.0)
}

// TestScriptSocketClosesEarly: a socket that is closed while it connects makes no error on the console, and its
// connection ends as soon as it is open.
func TestScriptSocketClosesEarly(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	var closed atomic.Bool
	release := make(chan struct{})
	s.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		<-release
		socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			InsecureSkipVerify: true, Subprotocols: []string{"lastseen.v1"},
		})
		if err == nil {
			_, _, err = socket.Read(r.Context())
		}
		closed.Store(websocket.CloseStatus(err) == websocket.StatusNoStatusRcvd)
		return true
	})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	b := s.openSocket(t, "")
	require.Eventually(t, func() bool { return s.connects() == 1 }, time.Minute, 10*time.Millisecond)
	b.Do(t, until("(socket.close(), true)"), until("!socket.send({})"))
	require.Empty(t, s.complaints(b))
	free()
	require.Eventually(t, closed.Load, time.Minute, 10*time.Millisecond)
}

// TestScriptSocketRefused: after a final close code the page does not connect again.
func TestScriptSocketRefused(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openSocket(t, "")
	b.Do(t, until("welcomes() == 1"))
	require.NoError(t, s.CloseConnections(t.Context(), "chat", "bob"))
	b.Do(t, until("refused.length == 1"))
	require.JSONEq(t, `[{"status":410,"code":"connection_closed"}]`, testbrowser.Evaluate[string](t, b, "JSON.stringify(refused)"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "downs.length == 1 && downs[0].invalid && downs[0].code == 4410"))
	b.Do(t, passIn(time.Minute), until("!socket.send({})"))
	require.Equal(t, 1, s.connects())
}

// closeSockets answers each connection with some frames, and then a close frame.
func (s *scripted) closeSockets(code websocket.StatusCode, reason string, frames ...string) {
	s.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
			InsecureSkipVerify: true, Subprotocols: []string{"lastseen.v1"},
		})
		if err != nil {
			return true
		}
		for _, frame := range frames {
			_ = socket.Write(r.Context(), websocket.MessageText, []byte(frame))
		}
		_ = socket.Close(code, reason)
		return true
	})
}

// TestScriptSocketCloseCodes: after some codes the page connects again, later, after others it does not. The server is
// a fake one here, since the real one sends most of these codes only in an outage.
func TestScriptSocketCloseCodes(t *testing.T) {
	t.Parallel()
	for code, attempts := range map[websocket.StatusCode]int{
		4400: 1, 4403: 1, 4404: 1, 4410: 1, 4413: 1, 4401: 2, // then none
		4408: 3, 4409: 3, 4429: 3, 4500: 3, 4503: 3, 1000: 3, 1001: 3, 1002: 3, 1011: 3, // and more
	} {
		t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			s.closeSockets(code, "some_code")
			b := s.openSocket(t, "Math.random = () => 0.01;")
			b.Do(t, until(fmt.Sprintf("downs.length >= %d", attempts)))
			require.True(t, testbrowser.Evaluate[bool](t, b, fmt.Sprintf("downs.every(down => down.code == %d)", code)))
			if attempts > 2 {
				require.Empty(t, testbrowser.Evaluate[string](t, b, "refused.join()"))
				return
			}
			b.Do(t, until("refused.length == 1"), passIn(time.Minute))
			require.JSONEq(t, fmt.Sprintf(`[{"status":%d,"code":"some_code"}]`, code-4000),
				testbrowser.Evaluate[string](t, b, "JSON.stringify(refused)"))
			require.Equal(t, attempts, s.connects())
		})
	}
}

// TestScriptSocketBadToken: a page whose token is not valid asks for a new one once.
func TestScriptSocketBadToken(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "bob", -time.Minute)
	b := s.openSocket(t, "")
	b.Do(t, until("refused.length == 1"))
	require.JSONEq(t, `[{"status":401,"code":"unauthenticated"}]`, testbrowser.Evaluate[string](t, b, "JSON.stringify(refused)"))
	require.Equal(t, "false,true", testbrowser.Evaluate[string](t, b, "renewals.join()"))
	require.Equal(t, 2, s.connects())
}

// TestScriptSocketRenewsToken: the page sends new tokens before its token expires, mostly on the same connection: on a
// slow machine one can come too late.
func TestScriptSocketRenewsToken(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "bob", 6*time.Second)
	b := s.openSocket(t, "")
	b.Do(t, until(`frames.filter(name => name === "ok").length >= 3`))
	require.Empty(t, testbrowser.Evaluate[string](t, b, "refused.join()"))
	require.Equal(t, "true,true", testbrowser.Evaluate[string](t, b, "renewals.slice(1, 3).join()"))
}

// TestScriptSocketTokenFails: a token callback that fails is called again, later.
func TestScriptSocketTokenFails(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.openSocket(t, `window.calls = 0; window.newToken = () => { if (calls++ < 2) throw new Error("offline") };`)
	b.Do(t, until("welcomes() == 1"))
	require.Equal(t, 3, testbrowser.Evaluate[int](t, b, "calls"))
	require.Equal(t, 1, s.connects())
}

// TestScriptSocketMoves: when a server stops, the page opens a connection to another one before it closes its own.
func TestScriptSocketMoves(t *testing.T) {
	s := newScripted(t, scriptOptions{grace: 100 * time.Millisecond})
	stopping, next := api.NewShared(s.config), api.NewShared(s.config)
	s.serveBy(stopping)
	b := s.openSocket(t, "")
	b.Do(t, until("welcomes() == 1"))
	s.serveBy(next)
	stopping.Drain()
	b.Do(t, until("welcomes() == 2"))
	require.Eventually(t, func() bool { return stopping.WebSockets() == 0 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, 1, next.WebSockets())
	require.Empty(t, testbrowser.Evaluate[string](t, b, "downs.join()"))
	live, gone := s.devices(t, "bob")
	require.Equal(t, []int{2, 0}, []int{live, gone}, "the old connection turns grey")
}

// serveBy lets a server with this state serve the requests from now on.
func (s *scripted) serveBy(shared *api.Shared) {
	config := s.config
	config.Shared = shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.api = api.New(config)
}
