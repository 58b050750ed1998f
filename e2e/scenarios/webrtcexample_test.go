package scenarios

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// visitor opens the page of examples/webrtc as a user, in its own browser. It returns when calls can ring there.
func (e *example) visitor(t *testing.T, user string) *testbrowser.Browser {
	t.Helper()
	b := testbrowser.Open(t, e.page)
	b.Do(t, chromedp.EmulateViewport(1000, 680), testbrowser.PrefersScheme("light"))
	e.visit(t, b, user)
	return b
}

func (e *example) visit(t *testing.T, b *testbrowser.Browser, user string) {
	t.Helper()
	b.Do(t, chromedp.Navigate(e.page+"/?user="+user), online)
}

// online waits until the page has a connection: it shows that dave, who never comes, is offline.
var online = dotIs("dave", "grey")

// dotIs waits until the page shows a dot of a user.
func dotIs(user, dot string) step {
	return until(`document.querySelector("[data-user='` + user + `'] presence-dot")?.presence?.dot == "` + dot + `"`)
}

// rings clicks the button that calls a user.
func rings(user string) step {
	return chromedp.Click(chromedp.CSS("[data-user='" + user + "'] button:enabled"))
}

// clicks clicks a button below the state of the call, once it is shown.
func clicks(id string) step {
	return chromedp.Click(chromedp.CSS("#" + id + ":not([hidden])"))
}

// stateIs waits until the page says this about the call.
func stateIs(text string) step {
	return until(`document.getElementById("state").textContent == "` + text + `"`)
}

// plays waits until the picture of the other party is there and moves, and its sound is there.
func plays(t *testing.T, b *testbrowser.Browser) {
	t.Helper()
	b.Do(t, until("remote.videoWidth > 0 && !remote.paused && !remote.muted"),
		until("(window.shownAt = remote.currentTime, true)"), until("remote.currentTime > shownAt + 0.2"))
	require.Equal(t, "audio live,video live", testbrowser.Evaluate[string](t, b,
		`remote.srcObject.getTracks().map(({ kind, readyState }) => kind + " " + readyState).sort().join()`))
}

// talk lets the first user call the second, who accepts.
func talk(t *testing.T, from, to *testbrowser.Browser, caller, callee string) {
	t.Helper()
	from.Do(t, rings(callee), stateIs("Calling "+callee+" …"))
	to.Do(t, stateIs(caller+" is calling."), until(`document.title == "`+caller+` is calling"`), clicks("accept"),
		stateIs("In a call with "+caller+"."))
	from.Do(t, stateIs("In a call with "+callee+"."))
}

// ended waits until a page shows how a call ended, and has let go of the camera.
func ended(text string) []step {
	return []step{stateIs(text), until("document.getElementById('videos').hidden && !local.srcObject && !remote.srcObject")}
}

// TestWebRTCExample runs the example as its readers do: two users call each other, and see each other.
func TestWebRTCExample(t *testing.T) {
	e := startExample(t, "examples/webrtc", "--redial-wait off")
	alice, bob, carol := e.visitor(t, "alice"), e.visitor(t, "bob"), e.visitor(t, "carol")
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	plays(t, bob)
	carol.Do(t, dotIs("alice", "red"), rings("bob"))
	carol.Do(t, ended("bob is in another call.")...)
	alice.Do(t, dotIs("bob", "red"))
	testbrowser.WritePicture(t, alice, "webrtc.png", "remote.currentTime > 1")
	alice.Do(t, clicks("end"))
	alice.Do(t, ended("The call has ended.")...)
	bob.Do(t, ended("alice hung up.")...)
	carol.Do(t, dotIs("alice", "green"))

	talk(t, bob, alice, "bob", "alice")
	plays(t, bob)
	bob.Do(t, clicks("end"))
	alice.Do(t, ended("bob hung up.")...)

	alice.Do(t, rings("bob"))
	bob.Do(t, clicks("reject"))
	bob.Do(t, ended("You declined.")...)
	alice.Do(t, ended("bob declined.")...)
	alice.Do(t, rings("bob"))
	bob.Do(t, stateIs("alice is calling."))
	alice.Do(t, clicks("end"))
	alice.Do(t, ended("You cancelled the call.")...)
	bob.Do(t, ended("Missed call from alice.")...)
	require.Empty(t, append(e.complaints(alice), e.complaints(bob)...))
	e.interrupt(t)
}

// TestWebRTCExampleReloads: a page that is loaded again or closed hangs up at once. A call that rings goes on for
// the callee, who has not answered it.
func TestWebRTCExampleReloads(t *testing.T) {
	e := startExample(t, "examples/webrtc", "--ring-timeout 60s")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	e.visit(t, bob, "bob")
	alice.Do(t, ended("bob hung up.")...)
	alice.Do(t, rings("bob"))
	bob.Do(t, stateIs("alice is calling."))
	e.visit(t, bob, "bob")
	bob.Do(t, clicks("accept"))
	plays(t, alice)
	e.visit(t, alice, "alice")
	bob.Do(t, ended("alice hung up.")...)
	bob.Do(t, until(`import("`+e.server+`/lastseen.js").then(({ connect }) => (window.states = [], connect({
		namespace: "calls", user: "bob" }).addEventListener("call", ({ detail }) => states.push(detail.state)), true))`), until("window.states"))
	alice.Do(t, rings("bob"))
	bob.Do(t, stateIs("alice is calling."))
	alice.NewTab(t).Do(t, chromedp.Navigate("about:blank")) // the browser stays open
	alice.Close(t)
	bob.Do(t, ended("Missed call from alice.")...)
	require.Equal(t, "ringing,cancelled", testbrowser.Evaluate[string](t, bob, `states.slice(-2).join()`), "not by time")
}

// TestWebRTCExampleTime: a call that is not accepted is missed, and one with a page that crashed is lost.
func TestWebRTCExampleTime(t *testing.T) {
	e := startExample(t, "examples/webrtc", "--redial-wait off --ring-timeout 10s --green 8s --ping-interval 2s")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	alice.Do(t, rings("bob"))
	bob.Do(t, stateIs("alice is calling."))
	bob.Do(t, ended("Missed call from alice.")...)
	alice.Do(t, ended("bob did not answer.")...)
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	go func() { _, _ = chromedp.Call(bob.Ctx, cdppage.Crash, cdp.Empty{}) }() // which nothing responds to
	alice.Do(t, ended("The call was lost.")...)
	alice.Do(t, dotIs("bob", "grey"))
}

// TestWebRTCExampleDevices: all pages of a user ring. The others show where the call is, and can end it.
func TestWebRTCExampleDevices(t *testing.T) {
	e := startExample(t, "examples/webrtc")
	alice, bob, other := e.visitor(t, "alice"), e.visitor(t, "bob"), e.visitor(t, "bob")
	alice.Do(t, rings("bob"))
	other.Do(t, stateIs("alice is calling."))
	bob.Do(t, clicks("accept"))
	other.Do(t, stateIs("In a call with alice on another device."), until("accept.hidden && reject.hidden && videos.hidden"))
	plays(t, alice)
	plays(t, bob)
	other.Do(t, clicks("end"))
	alice.Do(t, ended("bob hung up.")...)
	bob.Do(t, ended("The call has ended.")...)

	// Both accept at the same time: one of them does, and the other one shows that.
	alice.Do(t, rings("bob"))
	held := until(`(window.send = fetch, window.fetch = (...request) => new Promise(resolve => window.go = resolve).then(
		() => send(...request)), true)`)
	bob.Do(t, stateIs("alice is calling."), held, clicks("accept"), until("window.go"))
	other.Do(t, clicks("accept"), stateIs("In a call with alice."))
	bob.Do(t, stateIs("In a call with alice on another device."), until("(go(), true)"),
		stateIs("In a call with alice on another device."), until("videos.hidden"))
	plays(t, other)
}

// TestWebRTCExampleGlare: two users who call each other at the same moment are in a call.
func TestWebRTCExampleGlare(t *testing.T) {
	e := startExample(t, "examples/webrtc")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	alice.Do(t, until(`(window.send = fetch, window.fetch = (...request) => new Promise(resolve => window.go = resolve).then(
		() => (window.fetch = send)(...request)), true)`), rings("bob"), until("window.go"))
	bob.Do(t, rings("alice"))
	alice.Do(t, stateIs("bob is calling."), until("(go(), true)"), stateIs("In a call with bob."))
	bob.Do(t, stateIs("In a call with alice."))
	plays(t, alice)
	plays(t, bob)
}

// TestWebRTCExampleFails: lost responses do no harm, and the page says what the user can do about a camera.
func TestWebRTCExampleFails(t *testing.T) {
	e := startExample(t, "examples/webrtc")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	lose := until(`(window.lost = 0, window.send = fetch, window.fetch = async (...request) => {
		const response = await send(...request)
		if (lost++ % 2 == 0) throw new TypeError("lost")
		return response
	}, true)`)
	alice.Do(t, lose)
	bob.Do(t, lose)
	talk(t, alice, bob, "alice", "bob")
	plays(t, alice)
	alice.Do(t, clicks("end"))
	bob.Do(t, ended("alice hung up.")...)
	alice.Do(t, until("lost >= 4")) // bob can learn of it before the response to alice
	require.Equal(t, 4, testbrowser.Evaluate[int](t, alice, "lost"), "each request was sent twice")
	require.Equal(t, 2, testbrowser.Evaluate[int](t, bob, "lost"))

	bob.Do(t, until(`(navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("", "NotAllowedError") }, true)`))
	alice.Do(t, rings("bob"))
	bob.Do(t, clicks("accept"), stateIs("alice is calling. Allow this page to use your camera and microphone."),
		clicks("reject"))
	alice.Do(t, ended("bob declined.")...)
	bob.Do(t, rings("alice"))
	bob.Do(t, ended("Allow this page to use your camera and microphone.")...)

	// A program that has no media can call as well.
	begun, err := http.Post(e.server+"/v1/namespaces/calls/calls", "application/json",
		strings.NewReader(`{"from":"carol","to":"alice"}`))
	require.NoError(t, err)
	require.NoError(t, begun.Body.Close())
	require.Equal(t, http.StatusCreated, begun.StatusCode)
	alice.Do(t, clicks("accept"), stateIs("carol is calling. Something went wrong. Try again."), clicks("reject"))
	alice.Do(t, ended("You declined.")...)
}

// TestWebRTCExampleOffersFit: what the pages send is well below the limit.
func TestWebRTCExampleOffersFit(t *testing.T) {
	e := startExample(t, "examples/webrtc")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	record := until(`(window.sizes = [], window.send = fetch, window.fetch = (url, init) => {
		if (init.body?.includes("v=0")) sizes.push(new Blob([JSON.stringify(JSON.parse(init.body).app)]).size)
		return send(url, init)
	}, true)`)
	alice.Do(t, record)
	bob.Do(t, record)
	talk(t, alice, bob, "alice", "bob")
	for name, b := range map[string]*testbrowser.Browser{"offer": alice, "answer": bob} {
		sizes := testbrowser.Evaluate[[]int](t, b, "sizes")
		require.Len(t, sizes, 1)
		t.Logf("%s: %d bytes", name, sizes[0])
		require.Less(t, sizes[0], 16<<10)
	}
}

// TestWebRTCExampleLooks: on a small screen in the dark, all of the page can be read and reached.
func TestWebRTCExampleLooks(t *testing.T) {
	e := startExample(t, "examples/webrtc")
	alice, bob := e.visitor(t, "alice"), e.visitor(t, "bob")
	bob.Do(t, chromedp.EmulateViewport(360, 740), testbrowser.PrefersScheme("dark"))
	alice.Do(t, rings("bob"))
	bob.Do(t, stateIs("alice is calling."), testbrowser.Settled)
	require.Empty(t, testbrowser.Measure[[]string](t, bob, "faint(4.5)"))
	require.Empty(t, testbrowser.Measure[[]string](t, bob, "cutOff()"))
	bob.Do(t, clicks("accept"))
	plays(t, bob)
	bob.Do(t, testbrowser.Settled)
	require.Equal(t, 360, testbrowser.Evaluate[int](t, bob, "document.documentElement.scrollWidth"))
	require.NotContains(t, testbrowser.Evaluate[string](t, bob, "document.body.innerText"), "undefined")
}
