package browser

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// TestScriptRefused: a page that may not read shows nothing, says why, and asks again only when its options change.
func TestScriptRefused(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.issueTokens(t, "bob", time.Hour)
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", polling)
	b.Do(t, until(`painted.includes("401 unauthenticated")`), until("passed += 600_000"))
	b.Do(t, show("visible"))
	require.Len(t, s.lookups(), 1)
	b.Do(t, until("connect({ url, namespace, token })"), shows("alice", "green"))
	require.Equal(t, "alice unknown,bob unknown,401 unauthenticated,alice green,bob grey", shown(t, b))
}

// TestScriptClient checks what the client promises to those who call it.
func TestScriptClient(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", `
		const client = window.client = connect({ url, namespace })
		window.onerror = message => { window.failed = message; return true }
		const other = connect({ url, namespace: "other" })
		window.same = connect({ url: url + "/", namespace }) === client && client !== other
		window.before = client.get("alice")
		window.stops = [client.watch(["alice", "alice", ""], show), client.watch("alice", show)]
		client.watch(["alice", ".", "\ud800", "x".repeat(257), "a\u0000b"], () => { throw new Error("of the page") })
		`)
	b.Do(t, shows("alice", "green"))
	require.True(t, testbrowser.Evaluate[bool](t, b, `same && client.get("alice") === client.get("alice")`))
	require.Equal(t, "unknown", testbrowser.Evaluate[string](t, b, "before.status"))
	require.Contains(t, testbrowser.Evaluate[string](t, b, "failed"), "of the page")
	require.Equal(t, "alice unknown, unknown,alice unknown,alice green,alice green", shown(t, b))
	b.Do(t, until("(stops[0](), stops[0](), painted = [], true)"))
	s.leaves(t, "alice")
	b.Do(t, shows("alice", "grey"))
	require.Equal(t, "alice grey", shown(t, b))
	b.Do(t, until(`(() => {
		const many = Array.from({ length: 5000 }, (_, i) => "user " + i)
		try { client.watch(many, show) } catch (error) { return error instanceof RangeError }
	})()`))
	b.Do(t, until("(client.close(), true)"), shows("alice", "unknown"))
	b.Do(t, until("connect({ url, namespace }) === client"), shows("alice", "grey"))
}

// TestScriptWatchesByHTTP: without WebSockets a page looks users up, and tries WebSockets again after five minutes.
func TestScriptWatchesByHTTP(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.refuseSockets(http.StatusServiceUnavailable)
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", watching)
	b.Do(t, shows("alice", "green"))
	require.Len(t, s.lookups(), 1)
	require.Equal(t, 2, s.connects())
	s.setAnswer(nil)
	b.Do(t, until("passed += 301_000"))
	s.untilFollowed(t, 1, 1)
	s.leaves(t, "alice")
	b.Do(t, shows("alice", "grey"))
	lookups := len(s.lookups())
	b.Do(t, until("passed += 25_000"))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, shows("alice", "green"), until("passed += 25_000"))
	s.leaves(t, "alice")
	b.Do(t, shows("alice", "grey"))
	require.Len(t, s.lookups(), lookups)
}

// TestScriptUsersChange: a user can sign out and in again, and another one instead. What the page watches stays.
func TestScriptUsersChange(t *testing.T) {
	s := newScripted(t, scriptOptions{grace: 100 * time.Millisecond})
	b := s.open(t, "", `
		window.client = connect({ url, namespace, user: "alice" })
		window.stop = client.watch(["alice", "bob"], show)`)
	b.Do(t, shows("alice", "green"), until("client.user === 'alice'"))
	b.Do(t, until("(client.leave(), true)"), shows("alice", "grey"), until("client.user === undefined"))
	b.Do(t, until("connect({ url, namespace, user: 'alice' })"), shows("alice", "green"))
	b.Do(t, until("connect({ url, namespace, user: 'bob' })"), shows("bob", "green"), shows("alice", "grey"))
	connects := s.connects()
	b.Do(t, until("connect({ url, namespace, user: 'bob', token: undefined, interval: 6000 }).interval === 6000"))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, shows("alice", "green"))
	require.Equal(t, connects, s.connects(), "the same options")
}
