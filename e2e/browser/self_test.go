package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testbrowser"
)

// selfScript keeps a user online, and notes the events of the client.
const selfScript = `
const received = [], failed = []
const client = connect({ url, namespace, token, user: new URLSearchParams(location.search).get("user") ?? "alice",
	...window.options })
client.addEventListener("self", ({ detail }) => received.push(detail ? detail.availability + " " + detail.note : "unknown"))
client.addEventListener("typing", ({ detail }) => received.push([detail.user, detail.in, detail.typing].join(" ")))
const say = said => {
	const done = said ? client.setAvailability(said) : client.clearAvailability()
	done.catch(({ status, code }) => failed.push(status + " " + code))
	return true
}
Object.assign(window, { client, received, failed, say })`

// received waits until the last event of a page's client is this one.
func received(event string) step {
	return until(fmt.Sprintf("received.at(-1) == %q", event))
}

// TestScriptSelf: a user's availability in one page is known in all pages of the user, with invisible, and in new ones.
func TestScriptSelf(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	page := s.addPage("", selfScript)
	first := testbrowser.Open(t, s.pages)
	first.Do(t, chromedp.Navigate(page), received("null null"))
	second := testbrowser.Open(t, s.pages)
	second.Do(t, chromedp.Navigate(page), received("null null"),
		until(`say({ availability: "busy", note: "in a <b>meeting</b>", for: "1h" })`))
	for _, b := range []*browser{first, second} {
		b.Do(t, received("busy in a <b>meeting</b>"), until("client.self.until > Date.now() - wrong"))
	}
	first.Do(t, until(`say({ availability: "invisible" })`), received("invisible null"))
	second.Do(t, received("invisible null"), until("client.self.until === null"))
	third := testbrowser.Open(t, s.pages)
	third.Do(t, chromedp.Navigate(page), received("invisible null"), until("say()"), received("null null"))
	first.Do(t, received("null null"))
	require.Equal(t, "null null,busy in a <b>meeting</b>,invisible null,null null", testbrowser.Evaluate[string](t, first, "received.join()"))
	require.Empty(t, testbrowser.Evaluate[[]string](t, first, "failed"))
	third.Do(t, until("(client.leave(), true)"), received("unknown"), until("client.self === undefined"))
}

// TestScriptSelfEnds: a user's availability ends by itself in the user's own pages.
func TestScriptSelfEnds(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", selfScript)
	b.Do(t, received("null null"), until(`say({ availability: "away", for: "1s" })`),
		until("received.join() == 'null null,away null,null null'"))
}

// TestScriptSelfByHTTP: without a WebSocket, a page knows what its own calls return, and the end of that, by the
// server's clock, although the page's is wrong.
func TestScriptSelfByHTTP(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.issueTokens(t, "alice", time.Hour)
	b := s.open(t, "", `window.options = { transport: "http" };`+selfScript)
	require.True(t, testbrowser.Evaluate[bool](t, b, "client.self === undefined"))
	b.Do(t, until(`say({ availability: "busy", for: "20s" })`), received("busy null"),
		until("Math.abs(client.self.until - client.now()) < 30_000"), s.pass(15*time.Second))
	require.Equal(t, "busy null", testbrowser.Evaluate[string](t, b, "received.join()"))
	b.Do(t, s.pass(6*time.Second), received("null null"),
		until(`say({ note: "at lunch" })`), received("null at lunch"), until("say()"), received("null null"))
	s.says(t, "alice", lastseen.AvailabilityState{Availability: lastseen.Away})
	b.Do(t, until("(client.getAvailability(), true)"), received("away null"))
	require.False(t, testbrowser.Evaluate[bool](t, b, "client.typing('bob')"))
	require.Zero(t, s.connects())
	require.Empty(t, testbrowser.Evaluate[[]string](t, b, "failed"))
}

// holdScript holds the responses to requests that set or clear the user's availability, until the page calls release
// with the number of one. It notes what such calls returned.
const holdScript = `
const fetched = window.fetch, releases = [], returned = []
window.fetch = async (url, init) => {
	const response = await fetched(url, init)
	if (["PUT", "DELETE"].includes(init?.method)) await new Promise(resolve => releases.push(resolve))
	return response
}
const note = promise => (promise.then(said => returned.push(String(said.availability))), true)
Object.assign(window, { releases, returned, note, release: i => (releases[i](), true) });`

// TestScriptSelfLate: a late response does not replace what the server has sent on the connection since. The call still
// returns it.
func TestScriptSelfLate(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	page := s.addPage("", selfScript)
	slow, other := testbrowser.Open(t, s.pages), testbrowser.Open(t, s.pages)
	s.load(t, slow, "", holdScript+selfScript)
	slow.Do(t, received("null null"))
	other.Do(t, chromedp.Navigate(page), received("null null"))
	for i, call := range []string{`client.setAvailability({ availability: "busy" })`, "client.clearAvailability()"} {
		newer := fmt.Sprintf("away %d", i)
		slow.Do(t, until("note("+call+")"), until(fmt.Sprintf("releases.length == %d", i+1)))
		other.Do(t, until(fmt.Sprintf(`say({ availability: "away", note: "%d" })`, i)))
		slow.Do(t, received(newer), until(fmt.Sprintf("release(%d)", i)),
			until(fmt.Sprintf("returned.length == %d", i+1)))
		require.Equal(t, newer, testbrowser.Evaluate[string](t, slow, "received.at(-1)"), call)
	}
	require.Equal(t, "busy,null", testbrowser.Evaluate[string](t, slow, "returned.join()"))
}

// TestScriptSelfOvertaken: if responses overtake each other, that to the latest call counts.
func TestScriptSelfOvertaken(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", holdScript+`window.options = { transport: "http" };`+selfScript)
	b.Do(t, until(`note(client.setAvailability({ availability: "busy" }))`), until("releases.length == 1"),
		until(`note(client.setAvailability({ availability: "away" }))`), until("releases.length == 2"),
		until("release(1)"), received("away null"), until("release(0)"), until("returned.length == 2"))
	require.Equal(t, "away null", testbrowser.Evaluate[string](t, b, "received.join()"))
	b.Do(t, until("note(client.clearAvailability())"), until("releases.length == 3"),
		until(`note(client.setAvailability({ availability: "busy" }))`), until("releases.length == 4"),
		until("release(2)"), received("null null"), until("release(3)"), received("busy null"))
}

// TestScriptSelfRefused: the promise of a call that fails says why, and what is known stays.
func TestScriptSelfRefused(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", selfScript+`
		const other = connect({ url, namespace: "other" })
		other.setAvailability({ note: "x" }).catch(({ message }) => { window.nobody = message })`)
	b.Do(t, received("null null"), until(`say({ note: "two\nlines" })`), until(`failed.join() == "400 invalid_note"`),
		until(`say({ availability: "gone" })`), until(`failed.at(-1) == "400 invalid_availability"`))
	b.Do(t, until(`window.nobody == "There is no user. Pass one to connect()."`))
	require.Equal(t, "null null", testbrowser.Evaluate[string](t, b, "received.join()"))
	require.Empty(t, s.called("PUT /v1/namespaces/other"))
}

// TestScriptTyping: a page hears who types for its user, until 10 seconds after the last message about it. It sends at
// most one message in 5 seconds.
func TestScriptTyping(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	page := s.addPage("", sentScript+selfScript)
	alice, bob := testbrowser.Open(t, s.pages), testbrowser.Open(t, s.pages)
	alice.Do(t, chromedp.Navigate(page+"?user=alice"), received("null null"))
	bob.Do(t, chromedp.Navigate(page+"?user=bob"), received("null null"),
		until("client.typing(['alice'], 'room-7') && client.typing(new Set(['alice']), 'room-7')"))
	alice.Do(t, received("bob room-7 true"))
	bob.Do(t, passIn(5*time.Second), until("client.typing(['alice'], 'room-7') && client.typing('alice')"))
	alice.Do(t, until("received.join() == 'null null,bob room-7 true,bob room-7 true,bob  true'"), passIn(10*time.Second),
		until("received.slice(-2).join() == 'bob room-7 false,bob  false'"))
	require.Equal(t, 3, testbrowser.Evaluate[int](t, bob, "sent.filter(frame => frame.typing).length"))
	bob.Do(t, until(`say({ availability: "invisible" })`), received("invisible null"), passIn(5*time.Second),
		until("client.typing('alice')"), until(`say()`), received("null null"), passIn(5*time.Second),
		until("client.typing('alice', 'again')"))
	alice.Do(t, received("bob again true"))
	last := testbrowser.Evaluate[string](t, alice, "received.slice(-2).join()")
	require.Equal(t, "bob  false,bob again true", last, "nothing while invisible")
}

// TestScriptTypingEnds: when a user signs out, nobody types for them any longer.
func TestScriptTypingEnds(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	page := s.addPage("", selfScript)
	alice, bob := testbrowser.Open(t, s.pages), testbrowser.Open(t, s.pages)
	alice.Do(t, chromedp.Navigate(page), received("null null"))
	bob.Do(t, chromedp.Navigate(page+"?user=bob"), received("null null"), until("client.typing('alice', 'room')"))
	alice.Do(t, received("bob room true"), until("(client.leave(), true)"), until("received.includes('bob room false')"))
}

// TestScriptTypingKeepsTheToken: the end in a message about typing is not that of the token, which stays.
func TestScriptTypingKeepsTheToken(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "alice", time.Hour)
	page := s.addPage("", `
		const reasons = []
		window.options = { token: ({ renew }) => { reasons.push(renew); return token() } };`+selfScript+`
		Object.assign(window, { reasons })`)
	b := testbrowser.Open(t, s.pages)
	b.Do(t, chromedp.Navigate(page), received("null null"), until("client.typing('alice', 'room')"), received("alice room true"),
		passIn(8*time.Second), passIn(8*time.Second), received("alice room false"))
	require.Equal(t, "false", testbrowser.Evaluate[string](t, b, "reasons.join()"))
	require.Equal(t, 1, s.connects())
}
