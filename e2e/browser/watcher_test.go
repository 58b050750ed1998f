package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testserver"
)

// watching is a page's code that watches a user.
const watching = `
window.client = connect({ url, namespace })
window.stop = client.watch("alice", show)`

// polling is a page's code that watches users without a WebSocket.
const polling = `
window.client = connect({
	url, namespace, transport: "http", onrefused: ({ status, code }) => painted.push(status + " " + code),
})
window.stop = client.watch(["alice", "bob"], show)`

// shown returns what a page has shown, one after the other.
func shown(t *testing.T, b *browser) string {
	t.Helper()
	return testbrowser.Evaluate[string](t, b, `painted.join()`)
}

func (s *scripted) lookups() []string { return s.called("POST /v1/namespaces/chat/lookup") }

// untilLookups waits until a page has looked up users so many times.
func (s *scripted) untilLookups(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.lookups()) >= n }, time.Minute, 10*time.Millisecond)
	require.Len(t, s.lookups(), n)
}

// TestScriptWatches: a page of another origin, under a strict policy, shows a user who comes and goes.
func TestScriptWatches(t *testing.T) {
	s := newScripted(t, scriptOptions{thresholds: seconds(3, 6)})
	b := s.open(t, "", watching)
	b.Do(t, shows("alice", "grey"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "presences.alice.lastSeen === null"))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, shows("alice", "green"), shows("alice", "yellow"), shows("alice", "grey"))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, shows("alice", "green"))
	s.leaves(t, "alice")
	b.Do(t, shows("alice", "grey"), until("presences.alice.left && presences.alice.lastSeen instanceof Date"))
	require.Equal(t, 1, s.connects())
	require.Empty(t, s.lookups())
	require.Empty(t, s.complaints(b))
}

// TestScriptOutage: while the store does not answer, statuses become unknown, never grey, and known again after it.
func TestScriptOutage(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", watching)
	b.Do(t, shows("alice", "green"))
	s.faults.setDown(true)
	b.Do(t, until("passed += 31_000"), shows("alice", "unknown"))
	require.Equal(t, "alice unknown,alice green,alice unknown", shown(t, b))
	require.True(t, testbrowser.Evaluate[bool](t, b, "presences.alice.lastSeen === null"))
	s.faults.setDown(false)
	b.Do(t, shows("alice", "green"))
}

// TestScriptRestart: a page goes on when its server is restarted, without showing what it does not know.
func TestScriptRestart(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	data := t.TempDir() + "/data.db"
	server := testserver.Start(t, "--store", data, "--cors-origins", s.pages)
	server.Post(t, alice+"/ping", "")
	s.url = server.URL
	b := s.open(t, "", watching)
	b.Do(t, shows("alice", "green"))
	require.Zero(t, server.Terminate(t))
	again := testserver.Start(t, "--store", data, "--cors-origins", s.pages, "--listen", strings.TrimPrefix(server.URL, "http://"))
	require.Equal(t, server.URL, again.URL)
	again.Post(t, alice+"/leave", "")
	b.Do(t, shows("alice", "grey"))
	require.Equal(t, "alice unknown,alice green,alice grey", shown(t, b))
}

// TestScriptManyLookedUp: a page with a thousand dots makes one lookup an interval.
func TestScriptManyLookedUp(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	b := s.open(t, "", `window.client = connect({ url, namespace, transport: "http" })
		const users = Array.from({ length: 1000 }, (_, i) => "user " + i)
		for (const user of users) client.watch(user, show)
		window.known = () => users.filter(user => statuses[user] === "grey").length`)
	b.Do(t, until("known() == 1000"))
	require.Len(t, s.lookups(), 1)
	b.Do(t, s.pass(37*time.Second)) // 1.2 intervals and more
	s.untilLookups(t, 2)
	require.Zero(t, s.connects())
}

// TestScriptPolls: without a WebSocket a page looks users up every interval.
func TestScriptPolls(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, "", strings.Replace(polling, `transport: "http",`, "", 1))
	b.Do(t, shows("alice", "green"), shows("bob", "grey"))
	require.Equal(t, []string{`POST /v1/namespaces/chat/lookup {"users":["alice","bob"]}`}, s.lookups())
	b.Do(t, s.pass(37*time.Second))
	s.untilLookups(t, 2)
	s.pingedAgo(t, "bob", 0)
	b.Do(t, s.pass(37*time.Second), shows("bob", "green"))
}

// TestScriptDoesNotGuess: a user who keeps pinging is never shown as yellow between two lookups: when the status could
// have changed, the page asks.
func TestScriptDoesNotGuess(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "alice", 50*time.Second)
	b := s.open(t, "", polling)
	b.Do(t, shows("alice", "green"))
	s.pingedAgo(t, "alice", 0)
	b.Do(t, s.pass(15*time.Second))
	s.untilLookups(t, 2)
	require.Equal(t, `POST /v1/namespaces/chat/lookup {"users":["alice"]}`, s.lookups()[1], "of the one in doubt")
	b.Do(t, until("presences.alice.lastSeen > 0 && painted.length == 5"))
	require.Equal(t, "alice unknown,bob unknown,alice green,bob grey,alice green", shown(t, b))
}

// TestScriptAges: without another ping, a status turns yellow once a lookup confirms it, and is unknown if none does.
func TestScriptAges(t *testing.T) {
	s := newScripted(t, scriptOptions{now: aDayAgo()})
	s.pingedAgo(t, "alice", 50*time.Second)
	b := s.open(t, "", polling)
	b.Do(t, shows("alice", "green"), s.pass(15*time.Second), shows("alice", "yellow"))
	s.faults.setDown(true)
	b.Do(t, s.pass(50*time.Second))
	s.untilLookupsFail(t, b)
	require.Equal(t, "yellow", testbrowser.Evaluate[string](t, b, "statuses.alice"))
	b.Do(t, s.pass(11*time.Second), shows("alice", "unknown"), shows("bob", "unknown"))
	s.faults.setDown(false)
	b.Do(t, s.pass(31*time.Second), shows("alice", "yellow"), shows("bob", "grey"))
	b.Do(t, s.pass(5*time.Minute), shows("alice", "grey"))
	require.NotContains(t, strings.SplitAfter(shown(t, b), "alice yellow")[1], "alice grey", "in the outage")
}

// untilLookupsFail waits until a page has looked up users in vain.
func (s *scripted) untilLookupsFail(t *testing.T, b *browser) {
	t.Helper()
	before := len(s.lookups())
	b.Do(t, s.pass(0))
	require.Eventually(t, func() bool { return len(s.lookups()) > before }, time.Minute, 10*time.Millisecond)
}

// TestScriptWhileHidden: a hidden page does not ask. When it is visible again, it shows nothing that it does not know.
func TestScriptWhileHidden(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{"connection": watching, "lookups": polling} {
		t.Run(name, func(t *testing.T) {
			o := scriptOptions{}
			if name == "lookups" {
				o.now = aDayAgo()
			}
			s := newScripted(t, o)
			s.pingedAgo(t, "alice", 0)
			b := s.open(t, "", code)
			b.Do(t, shows("alice", "green"), show("hidden"))
			if name == "connection" {
				s.untilFollowed(t, 0, 0)
			}
			requests := len(s.called(""))
			b.Do(t, until("passed += 600_000"), until("(painted = [], true)"))
			s.leaves(t, "alice")
			b.Do(t, show("visible"))
			require.True(t, strings.HasPrefix(shown(t, b), "alice unknown"), "at once")
			b.Do(t, shows("alice", "grey"))
			require.NotContains(t, shown(t, b), "green")
			require.Len(t, s.called(""), requests+1)
		})
	}
}

// TestScriptHasTheServersTime: a page whose clock is wrong by years shows the same.
func TestScriptHasTheServersTime(t *testing.T) {
	t.Parallel()
	for _, years := range []string{"-20", "20"} {
		t.Run(years, func(t *testing.T) {
			s := newScripted(t, scriptOptions{now: aDayAgo()})
			s.pingedAgo(t, "alice", 50*time.Second)
			s.pingedAgo(t, "bob", 4*time.Minute)
			b := s.open(t, "", "wrong = 365 * 86_400_000 * "+years+polling)
			b.Do(t, shows("alice", "green"), shows("bob", "yellow"), s.pass(15*time.Second), shows("alice", "yellow"))
			off := testbrowser.Evaluate[float64](t, b, "client.now()") - float64(s.faults.clock())
			require.InDelta(t, 0, off, 60_000, "milliseconds")
		})
	}
}

// TestScriptTokens: a page gets a token for its requests, and another one after a 401.
func TestScriptTokens(t *testing.T) {
	t.Parallel()
	for name, transport := range map[string]string{"connection": "auto", "lookups": "http"} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, scriptOptions{})
			s.issueTokens(t, "bob", time.Hour)
			s.pingedAgo(t, "alice", 0)
			b := s.open(t, "", `
				window.reasons = []
				window.first = true
				connect({ url, namespace, transport: "`+transport+`", token: ({ renew }) => {
					reasons.push(renew)
					return renew ? token() : "bad"
				} }).watch("alice", show)`)
			b.Do(t, shows("alice", "green"))
			require.Equal(t, "false,true", testbrowser.Evaluate[string](t, b, "reasons.join()"))
		})
	}
}
