package browser

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// callsScript keeps alice online, and notes the calls of the client: in events, and those that go on.
const callsScript = `
const received = []
const client = connect({ url, namespace, user: "alice", ...window.options })
client.addEventListener("call", ({ detail }) => received.push(detail.id + " " + detail.state))
const going = () => client.calls?.map(({ id, state }) => id + " " + state).join()
Object.assign(window, { client, received, going })`

// going waits until these calls go on as far as a page knows.
func going(calls string) step { return until("going() === '" + calls + "'") }

// caller begins and changes calls, as requests to a server do.
type caller struct {
	t *testing.T
	*calls.Manager
}

func (s *scripted) caller(t *testing.T) caller {
	t.Helper()
	return caller{t, calls.New(s.Store, nil)}
}

func (c caller) ring(id, from, to string) {
	c.t.Helper()
	_, finish, err := c.Start(context.Background(), "chat", store.NewCall{
		ID: id, From: from, To: to, FromDevice: "phone", App: `{"sdp":1}`, Ring: time.Minute, Timeout: time.Minute, Shown: true,
	})
	require.NoError(c.t, err)
	finish()
}

func (c caller) act(id, user string, action lastseen.CallAction) {
	c.t.Helper()
	step, finish, err := c.Act(context.Background(), "chat", store.CallAct{ID: id, User: user, Device: "tab", Action: action})
	require.NoError(c.t, err)
	finish()
	require.Equal(c.t, lastseen.Stepped, step.Outcome)
}

// talk has two users be in a call.
func (s *scripted) talk(t *testing.T, from, to string) {
	t.Helper()
	c, id := s.caller(t), from+"-"+to
	c.ring(id, from, to)
	c.act(id, to, lastseen.Accept)
}

// TestScriptCalls: a page knows the calls of its user, those that others begin and those on other devices.
func TestScriptCalls(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	c := s.caller(t)
	b := testbrowser.Open(t, s.pages)
	page := s.addPage("", callsScript)
	b.Do(t, chromedp.Navigate(page), going(""))
	c.ring("one", "bob", "alice")
	b.Do(t, going("one ringing"), until("client.calls[0].expiresAt - client.calls[0].createdAt == 60_000"))
	call := testbrowser.Evaluate[map[string]any](t, b, "client.calls[0]")
	require.Subset(t, call, map[string]any{
		"from": "bob", "to": "alice", "fromDevice": "phone", "toDevice": nil, "acceptedAt": nil, "endedAt": nil,
		"app": map[string]any{"sdp": 1.0}, "by": map[string]any{"user": "bob", "device": "phone"},
	})
	c.act("one", "alice", lastseen.Accept)
	b.Do(t, going("one active"), until("client.calls[0].toDevice == 'tab' && client.calls[0].acceptedAt instanceof Date"))
	other := testbrowser.Open(t, s.pages)
	other.Do(t, chromedp.Navigate(page), going("one active"))
	c.act("one", "bob", lastseen.End)
	c.ring("two", "alice", "carol")
	b.Do(t, going("two ringing"), until("(client.leave(), true)"), until("client.calls === undefined"))
	require.Equal(t, "one ringing,one active,one ended,two ringing", testbrowser.Evaluate[string](t, b, "received.join()"))
	other.Do(t, going("two ringing"))
	require.Equal(t, "one active,one ended,two ringing", testbrowser.Evaluate[string](t, other, "received.join()"))
}

// TestScriptCallsMeanwhile: after a connection broke, a page knows the calls that go on. How those ended that ended
// meanwhile is not known.
func TestScriptCallsMeanwhile(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	c := s.caller(t)
	c.ring("one", "alice", "bob")
	b := s.open(t, "", callsScript)
	b.Do(t, going("one ringing"))
	s.cut()
	b.Do(t, until("client.calls.length == 1"))
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	c.act("one", "alice", lastseen.End)
	c.ring("two", "carol", "alice")
	s.setAnswer(nil)
	b.Do(t, going("two ringing"), until("received.join() == 'one ringing,one ended,two ringing'"))
	s.refuseSockets(http.StatusServiceUnavailable)
	s.cut()
	b.Do(t, passIn(50*time.Second), going("two ringing"), passIn(20*time.Second), going(""),
		until("received.at(-1) == 'two missed'"))
}
