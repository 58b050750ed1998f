package main

import (
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// visitor opens the page of examples/webrtc as a user, in a browser of its own. It returns when calls can ring there.
func (e *example) visitor(t *testing.T, user string) *browser {
	t.Helper()
	b := openBrowser(t, e.page)
	b.do(t, chromedp.EmulateViewport(1000, 680), prefersScheme("light"))
	e.visit(t, b, user)
	return b
}

// visit opens the page in a browser that is there.
func (e *example) visit(t *testing.T, b *browser, user string) {
	t.Helper()
	b.do(t, chromedp.Navigate(e.page+"/?user="+user), online)
}

// online waits until the page has a connection: it shows that dave, who never comes, is offline.
var online = dotIs("dave", "grey")

// dotIs waits until the page shows a dot of a user.
func dotIs(user, dot string) browserStep {
	return until(`document.querySelector("[data-user='` + user + `'] presence-dot")?.presence?.dot == "` + dot + `"`)
}

// rings clicks the button that calls a user.
func rings(user string) browserStep {
	return chromedp.Click(chromedp.CSS("[data-user='" + user + "'] button:enabled"))
}

// clicks clicks a button below the state of the call, once it is shown.
func clicks(id string) browserStep { return chromedp.Click(chromedp.CSS("#" + id + ":not([hidden])")) }

// stateIs waits until the page says this about the call.
func stateIs(text string) browserStep {
	return until(`document.getElementById("state").textContent == "` + text + `"`)
}

// plays waits until the picture of the other party is there and moves, and its sound is there.
func plays(t *testing.T, b *browser) {
	t.Helper()
	b.do(t, until("remote.videoWidth > 0 && !remote.paused && !remote.muted"),
		until("(window.shownAt = remote.currentTime, true)"), until("remote.currentTime > shownAt + 0.2"))
	require.Equal(t, "audio live,video live", evaluate[string](t, b,
		`remote.srcObject.getTracks().map(({ kind, readyState }) => kind + " " + readyState).sort().join()`))
}

// talk lets the first user call the second, who accepts.
func talk(t *testing.T, from, to *browser, caller, callee string) {
	t.Helper()
	from.do(t, rings(callee), stateIs("Calling "+callee+" …"))
	to.do(t, stateIs(caller+" is calling."), until(`document.title == "`+caller+` is calling"`), clicks("accept"),
		stateIs("In a call with "+caller+"."))
	from.do(t, stateIs("In a call with "+callee+"."))
}

// ended waits until a page shows how a call ended, and has let go of the camera.
func ended(text string) []browserStep {
	return []browserStep{stateIs(text), until("document.getElementById('videos').hidden && !local.srcObject && !remote.srcObject")}
}

// TestWebRTCExample runs the example as its readers do: two users call each other, and see each other.
func TestWebRTCExample(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC)
	alice, bob, carol := e.visitor(t, "alice"), e.visitor(t, "bob"), e.visitor(t, "carol")
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	plays(t, bob)
	carol.do(t, dotIs("alice", "red"), rings("bob"))
	carol.do(t, ended("bob is in another call.")...)
	alice.do(t, dotIs("bob", "red"))
	writePicture(t, alice, "webrtc.png", "remote.currentTime > 1")
	alice.do(t, clicks("end"))
	alice.do(t, ended("The call has ended.")...)
	bob.do(t, ended("alice hung up.")...)
	carol.do(t, dotIs("alice", "green"))

	talk(t, bob, alice, "bob", "alice")
	plays(t, bob)
	bob.do(t, clicks("end"))
	alice.do(t, ended("bob hung up.")...)

	alice.do(t, rings("bob"))
	bob.do(t, clicks("reject"))
	bob.do(t, ended("You declined.")...)
	alice.do(t, ended("bob declined.")...)
	alice.do(t, rings("bob"))
	bob.do(t, stateIs("alice is calling."))
	alice.do(t, clicks("end"))
	alice.do(t, ended("You gave up.")...)
	bob.do(t, ended("Missed call from alice.")...)
	require.Empty(t, append(e.complaints(alice), e.complaints(bob)...))
	e.interrupt(t)
}

// TestWebRTCExampleReloads: a page that is loaded again or closed hangs up at once. A call that rings goes on for
// the callee, who has not answered it.
func TestWebRTCExampleReloads(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC, "--ring-timeout 60s")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	e.visit(t, bob, "bob")
	alice.do(t, ended("bob hung up.")...)
	alice.do(t, rings("bob"))
	bob.do(t, stateIs("alice is calling."))
	e.visit(t, bob, "bob")
	bob.do(t, clicks("accept"))
	plays(t, alice)
	e.visit(t, alice, "alice")
	bob.do(t, ended("alice hung up.")...)
	bob.do(t, until(`import("`+e.server+`/lastseen.js").then(({ connect }) => (window.states = [], connect({
		namespace: "calls", user: "bob" }).addEventListener("call", ({ detail }) => states.push(detail.state)), true))`), until("window.states"))
	alice.do(t, rings("bob"))
	bob.do(t, stateIs("alice is calling."))
	alice.newTab(t).do(t, chromedp.Navigate("about:blank")) // the browser stays open
	alice.close(t)
	bob.do(t, ended("Missed call from alice.")...)
	require.Equal(t, "ringing,cancelled", evaluate[string](t, bob, `states.slice(-2).join()`), "not by time")
}

// TestWebRTCExampleTime: a call that is not accepted is missed, and one with a page that crashed is lost.
func TestWebRTCExampleTime(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC, "--ring-timeout 10s --green 8s --ping-interval 2s")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	alice.do(t, rings("bob"))
	bob.do(t, stateIs("alice is calling."))
	bob.do(t, ended("Missed call from alice.")...)
	alice.do(t, ended("bob did not answer.")...)
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	go func() { _, _ = chromedp.Call(bob.ctx, cdppage.Crash, cdp.Empty{}) }() // which nothing responds to
	alice.do(t, ended("The call was lost.")...)
	alice.do(t, dotIs("bob", "grey"))
}

// TestWebRTCExampleDevices: all pages of a user ring. The others show where the call is, and can end it.
func TestWebRTCExampleDevices(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC)
	alice, bob, other := e.visitor(t, "alice"), e.visitor(t, "bob"), e.visitor(t, "bob")
	alice.do(t, rings("bob"))
	other.do(t, stateIs("alice is calling."))
	bob.do(t, clicks("accept"))
	other.do(t, stateIs("In a call with alice on another device."), until("accept.hidden && reject.hidden && videos.hidden"))
	plays(t, alice)
	plays(t, bob)
	other.do(t, clicks("end"))
	alice.do(t, ended("bob hung up.")...)
	bob.do(t, ended("The call has ended.")...)

	// Both accept at the same time: one of them does, and the other one shows that.
	alice.do(t, rings("bob"))
	held := until(`(window.send = fetch, window.fetch = (...request) => new Promise(resolve => window.go = resolve).then(
		() => send(...request)), true)`)
	bob.do(t, stateIs("alice is calling."), held, clicks("accept"), until("window.go"))
	other.do(t, clicks("accept"), stateIs("In a call with alice."))
	bob.do(t, stateIs("In a call with alice on another device."), until("(go(), true)"),
		stateIs("In a call with alice on another device."), until("videos.hidden"))
	plays(t, other)
}

// TestWebRTCExampleGlare: two users who call each other at the same moment are in a call.
func TestWebRTCExampleGlare(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC)
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	alice.do(t, until(`(window.send = fetch, window.fetch = (...request) => new Promise(resolve => window.go = resolve).then(
		() => (window.fetch = send)(...request)), true)`), rings("bob"), until("window.go"))
	bob.do(t, rings("alice"))
	alice.do(t, stateIs("bob is calling."), until("(go(), true)"), stateIs("In a call with bob."))
	bob.do(t, stateIs("In a call with alice."))
	plays(t, alice)
	plays(t, bob)
}

// TestWebRTCExampleFails: lost responses do no harm, and the page says what the user can do about a camera.
func TestWebRTCExampleFails(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC)
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	lose := until(`(window.lost = 0, window.send = fetch, window.fetch = async (...request) => {
		const response = await send(...request)
		if (lost++ % 2 == 0) throw new TypeError("lost")
		return response
	}, true)`)
	alice.do(t, lose)
	bob.do(t, lose)
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	alice.do(t, clicks("end"))
	bob.do(t, ended("alice hung up.")...)
	require.Equal(t, 4, evaluate[int](t, alice, "lost"), "each request was sent twice")
	require.Equal(t, 2, evaluate[int](t, bob, "lost"))

	bob.do(t, until(`(navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("", "NotAllowedError") }, true)`))
	alice.do(t, rings("bob"))
	bob.do(t, clicks("accept"), stateIs("alice is calling. Allow this page to use your camera and microphone."),
		clicks("reject"))
	alice.do(t, ended("bob declined.")...)
	bob.do(t, rings("alice"))
	bob.do(t, ended("Allow this page to use your camera and microphone.")...)

	// A program that has no media can call as well.
	begun := send(t, e.server, http.MethodPost, "/v1/namespaces/calls/calls", `{"from":"carol","to":"alice"}`, "")
	require.Equal(t, http.StatusCreated, begun.status)
	alice.do(t, clicks("accept"), stateIs("carol is calling. That did not work. Try again."), clicks("reject"))
	alice.do(t, ended("You declined.")...)
}

// TestWebRTCExampleOffersFit: what the pages send is well below the limit.
func TestWebRTCExampleOffersFit(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC)
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	record := until(`(window.sizes = [], window.send = fetch, window.fetch = (url, init) => {
		if (init.body?.includes("v=0")) sizes.push(new Blob([JSON.stringify(JSON.parse(init.body).app)]).size)
		return send(url, init)
	}, true)`)
	alice.do(t, record)
	bob.do(t, record)
	talk(t, alice, bob, "alice", "bob")
	for name, b := range map[string]*browser{"offer": alice, "answer": bob} {
		sizes := evaluate[[]int](t, b, "sizes")
		require.Len(t, sizes, 1)
		t.Logf("%s: %d bytes", name, sizes[0])
		require.Less(t, sizes[0], 16<<10)
	}
}

// TestWebRTCExampleLooks: on a small screen in the dark, all of the page can be read and reached.
func TestWebRTCExampleLooks(t *testing.T) {
	t.Parallel()
	e := startExample(t, buildWebRTC)
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	bob.do(t, chromedp.EmulateViewport(360, 740), prefersScheme("dark"))
	alice.do(t, rings("bob"))
	bob.do(t, stateIs("alice is calling."), settled)
	require.Empty(t, measure[[]string](t, bob, "faint(4.5)"))
	require.Empty(t, measure[[]string](t, bob, "cutOff()"))
	bob.do(t, clicks("accept"))
	plays(t, bob)
	bob.do(t, settled)
	require.Equal(t, 360, evaluate[int](t, bob, "document.documentElement.scrollWidth"))
	require.NotContains(t, evaluate[string](t, bob, "document.body.innerText"), "undefined")
}
