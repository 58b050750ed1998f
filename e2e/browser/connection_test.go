package browser

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// sentScript notes the frames that a page sends.
const sentScript = `
const sent = [], sendFrame = WebSocket.prototype.send
WebSocket.prototype.send = function (text) {
	sent.push(JSON.parse(text))
	sendFrame.call(this, text)
}
Object.assign(window, { sent, watches: () => sent.flatMap(({ watch }) => watch ?? []) });`

// crowdScript watches 2,400 users, whose names are so long that not all of them fit into one frame.
const crowdScript = sentScript + `
const users = Array.from({ length: 2400 }, (_, i) => "user " + i + " " + "é".repeat(20))
window.client = connect({ url, namespace, user: "alice", token })
window.stop = client.watch(users, show)
window.count = status => Object.values(statuses).filter(known => known === status).length
window.sizes = () => sent.map(frame => new Blob([JSON.stringify(frame)]).size)
window.users = users;`

// TestScriptManyWatched: many users are watched by a few frames, and again after a connection that broke, from where it
// ended.
func TestScriptManyWatched(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", crowdScript)
	b.Do(t, until("count('grey') == 2400"))
	require.Equal(t, 5, testbrowser.Evaluate[int](t, b, "watches().length"))
	require.Equal(t, 2400, testbrowser.Evaluate[int](t, b, "new Set(watches().flatMap(watch => watch.add)).size"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "watches().every(watch => watch.add.length <= 1000 && !watch.cursor)"))
	require.Less(t, testbrowser.Evaluate[int](t, b, "Math.max(...sizes())"), 60_000)
	require.Equal(t, 1, s.connects())
	require.Empty(t, s.lookups())

	b.Do(t, until("(sent.length = painted.length = 0, true)"))
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	b.Do(t, until("sent.length == 0"))
	s.pingedAgo(t, testbrowser.Evaluate[string](t, b, "users[7]"), 0)
	s.pingedAgo(t, testbrowser.Evaluate[string](t, b, "users[2399]"), 0)
	s.setAnswer(nil)
	b.Do(t, until("count('green') == 2"), until("watches().length == 5"))
	require.True(t, testbrowser.Evaluate[bool](t, b, "watches().every(watch => watch.cursor && watch.cursor === watches()[0].cursor)"))
	require.Equal(t, 2, testbrowser.Evaluate[int](t, b, "painted.length"), "and nothing else changed meanwhile")

	b.Do(t, until("(sent.length = painted.length = 0, true)"))
	s.cut()
	b.Do(t, until("watches().length == 5"))
	require.False(t, testbrowser.Evaluate[bool](t, b, "watches().some(watch => watch.cursor === undefined)"))
}

// TestScriptWatchesDifferences: when other users are watched, only the differences are sent.
func TestScriptWatchesDifferences(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", sentScript+`
		const client = connect({ url, namespace, user: "alice", token })
		window.stop = client.watch(["bob", "carol"], show)
		Object.assign(window, { client })`)
	b.Do(t, shows("bob", "grey"), shows("carol", "grey"),
		until(`(client.watch("dave", show), stop(), client.watch("bob", show), true)`), shows("dave", "grey"),
		until("watches().length == 2"))
	require.JSONEq(t, `[{"add":["bob","carol"],"remove":[]},{"add":["dave"],"remove":["carol"]}]`,
		testbrowser.Evaluate[string](t, b, "JSON.stringify(watches())"))
	s.pingedAgo(t, "bob", 0)
	b.Do(t, shows("bob", "green"))
	require.Equal(t, 1, s.connects(), "it also keeps alice online")
}

// TestScriptWatchLater: a page that watches only, and later keeps a user online, continues on another connection.
func TestScriptWatchLater(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	b := s.open(t, "", watchScript)
	b.Do(t, shows("alice", "grey"), until(`(connect({ url, namespace, user: "alice", token }), true)`),
		shows("alice", "green"))
	s.untilDevices(t, "alice", 1, 0)
}

// TestScriptWatchBusy: a watch that the server refuses for its load is repeated, on the same connection.
func TestScriptWatchBusy(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "bob", 0) // of a namespace that does not exist, nothing is read
	s.faults.setDown(true)
	b := s.open(t, "", sentScript+watchScript)
	b.Do(t, until("watches().length >= 2"))
	require.NotContains(t, testbrowser.Evaluate[string](t, b, "painted.join()"), "grey")
	s.faults.setDown(false)
	b.Do(t, shows("alice", "grey"))
}
