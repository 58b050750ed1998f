package browser

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/internal/testbrowser"
)

// counted counts the requests and connections of a page. Its module has it before other code.
const counted = `
window.attempts = 0
const [send, Opened] = [fetch, WebSocket]
window.fetch = (...args) => { attempts++; return send(...args) }
window.WebSocket = class extends Opened { constructor(...args) { super(...args); attempts++ } };`

// triesAgain lets time pass until a page has tried again some times.
func (s *scripted) triesAgain(t *testing.T, b *browser) {
	t.Helper()
	for range 4 {
		b.Do(t, until("(window.before = attempts, true)"), until(`attempts > before ||
			(passed += 5000, document.dispatchEvent(new Event("visibilitychange")), false)`))
	}
}

// everything has elements that share a client, and a list, which asks by itself.
func (s *scripted) everything() string { return s.dot("alice") + s.dot("bob") + s.list() }

// warnings has the test expect warnings, and returns those so far. Browsers report failed requests, too.
func warnings(b *browser) func() []string {
	b.Expect("^network: |CORS policy|WebSocket connection to")
	return b.Expect(`^console: "lastseen: .* \(see http://[\w.:]+/guides/faq#my-dots-stay-dashed\)`)
}

// TestScriptWarnsRefused: a page without a token, or with a wrong one, says why once, however many elements and tries
// it has. It does not if it handles that itself.
func TestScriptWarnsRefused(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "alice", time.Hour)
	for name, script := range map[string]string{
		"no token":         ``,
		"wrong token":      `connect({ url, namespace, user: "alice", token: () => "wrong" });`,
		"without a socket": `connect({ url, namespace, user: "alice", transport: "http", token: () => "wrong" });`,
	} {
		b := testbrowser.Open(t, s.pages)
		seen := warnings(b)
		s.load(t, b, s.everything(), counted+script)
		require.Eventually(t, func() bool { return len(seen()) > 0 }, time.Minute, 10*time.Millisecond, name)
		s.triesAgain(t, b)
		require.Len(t, seen(), 1, name)
		require.Contains(t, seen()[0], "401 unauthenticated: check the token of connect(). "+
			s.url+"/docs/errors#unauthenticated (see "+s.url+"/guides/faq#", name)
		require.Empty(t, s.complaints(b), name)
	}
	b := testbrowser.Open(t, s.pages)
	b.Expect("^network: ")
	s.load(t, b, s.everything(), counted+`connect({ url, namespace, onrefused: ({ code }) => { window.code = code } });`)
	b.Do(t, until(`window.code == "unauthenticated"`))
	s.triesAgain(t, b)
	require.Empty(t, s.complaints(b))
}

// TestScriptWarnsUnreachable: a page whose origin the server does not allow says once how to allow it.
func TestScriptWarnsUnreachable(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.config.CORSOrigins = nil
	s.api = api.New(s.config)
	b := testbrowser.Open(t, s.pages)
	seen := warnings(b)
	s.load(t, b, s.everything(), counted+`connect({ url, namespace, user: "alice" });`)
	require.Eventually(t, func() bool { return len(seen()) > 0 }, time.Minute, 10*time.Millisecond)
	s.triesAgain(t, b)
	require.Len(t, seen(), 1)
	require.Contains(t, seen()[0],
		"No response. Start "+s.url+" with --cors-origins "+s.pages+" (see "+s.url+"/guides/faq#")
	require.Empty(t, s.complaints(b))
}

// TestScriptOutageHasNoWarning: a server that a page has reached allows its origin.
func TestScriptOutageHasNoWarning(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := testbrowser.Open(t, s.pages)
	b.Expect("^network: ")
	s.load(t, b, s.everything(), counted+`connect({ url, namespace, transport: "http" });`)
	b.Do(t, until(`document.querySelector("presence-dot").presence.status == "grey"`))
	s.setAnswer(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	s.triesAgain(t, b)
	require.Empty(t, s.complaints(b))
	require.Greater(t, len(s.lookups()), 1)
}
