package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
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
	t.Parallel()
	s := newScripted(t, scriptOptions{})
	b := openBrowser(t, s.pages)
	s.load(t, b, "", crowdScript)
	b.do(t, until("count('grey') == 2400"))
	require.Equal(t, 5, evaluate[int](t, b, "watches().length"))
	require.Equal(t, 2400, evaluate[int](t, b, "new Set(watches().flatMap(watch => watch.add)).size"))
	require.True(t, evaluate[bool](t, b, "watches().every(watch => watch.add.length <= 1000 && !watch.cursor)"))
	require.Less(t, evaluate[int](t, b, "Math.max(...sizes())"), 60_000)

	b.do(t, until("(sent.length = painted.length = 0, true)"))
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	b.do(t, until("sent.length == 0"))
	s.pinged(t, evaluate[string](t, b, "users[7]"))
	s.pinged(t, evaluate[string](t, b, "users[2399]"))
	s.setAnswer(nil)
	b.do(t, until("count('green') == 2"), until("watches().length == 5"))
	require.True(t, evaluate[bool](t, b, "watches().every(watch => watch.cursor && watch.cursor === watches()[0].cursor)"))
	require.Equal(t, 2, evaluate[int](t, b, "painted.length"), "and nothing else changed meanwhile")

	b.do(t, until("(sent.length = painted.length = 0, true)"))
	s.cut()
	b.do(t, until("watches().length == 5"))
	require.False(t, evaluate[bool](t, b, "watches().some(watch => watch.cursor === undefined)"))
}

// TestScriptWatchesDifferences: when other users are watched, only the differences are sent.
func TestScriptWatchesDifferences(t *testing.T) {
	t.Parallel()
	s := newScripted(t, scriptOptions{})
	b := openBrowser(t, s.pages)
	s.load(t, b, "", sentScript+`
		const client = connect({ url, namespace, user: "alice", token })
		window.stop = client.watch(["bob", "carol"], show)
		Object.assign(window, { client })`)
	b.do(t, shows("bob", "grey"), shows("carol", "grey"),
		until(`(client.watch("dave", show), stop(), client.watch("bob", show), true)`), shows("dave", "grey"),
		until("watches().length == 2"))
	require.JSONEq(t, `[{"add":["bob","carol"],"remove":[]},{"add":["dave"],"remove":["carol"]}]`,
		evaluate[string](t, b, "JSON.stringify(watches())"))
	s.pinged(t, "bob")
	b.do(t, shows("bob", "green"))
	require.Equal(t, 1, s.connects(), "it also keeps alice online")
}

// TestScriptWatchLater: a page that watches only, and later keeps a user online, continues on another connection.
func TestScriptWatchLater(t *testing.T) {
	t.Parallel()
	s := newScripted(t, scriptOptions{})
	b := openBrowser(t, s.pages)
	s.load(t, b, "", watchScript)
	b.do(t, shows("alice", "grey"), until(`(connect({ url, namespace, user: "alice", token }), true)`),
		shows("alice", "green"))
	s.untilDevices(t, "alice", 1, 0)
}

// TestScriptWatchBusy: a watch that the server refuses for its load is repeated, on the same connection.
func TestScriptWatchBusy(t *testing.T) {
	t.Parallel()
	s := newScripted(t, scriptOptions{})
	s.faults.setDown(true)
	b := openBrowser(t, s.pages)
	s.load(t, b, "", sentScript+watchScript)
	b.do(t, until("watches().length >= 2"))
	require.NotContains(t, evaluate[string](t, b, "painted.join()"), "grey")
	s.faults.setDown(false)
	b.do(t, shows("alice", "grey"))
}
