package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// settling is how long connections and goodbyes that end in the hidden time take effect after that.
const settling = 1500 * time.Millisecond

// TestInvisibleSettlesLikeLeft compares users who left with users who became invisible while they were connected, and
// whose connections end, and goodbyes come, before and after they are visible again.
func TestInvisibleSettlesLikeLeft(t *testing.T) {
	t.Parallel()
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(0, servers, s)
		begun := time.Now()
		w.seed(t, begun)
		before := w.connectAlice(t, "before")
		stays := w.connect(t, 1, "davey", `"device":{"id":"stays","kind":"web"}`)
		w.copyDevices(t)
		f := w.beginAhead(t, begun)
		check := func(phase string, changes int) {
			t.Helper()
			f.check(t, phase, changes)
			f.checkCounts(t, phase, changes)
		}
		f.check(t, "before", -1) // the rest would take until the connections are heard again
		at := w.hide(t, []string{"alice", "davey"}, "")
		check("at once", 2)
		stays.ask(t, `{"activity":{"idle":true},"id":1}`, "ok")
		during := w.connectAlice(t, "during")
		w.goOn(t, at)
		before[0].ask(t, `{"leave":{},"id":4}`, "ok")
		before[1].hangUp(t)
		during[0].hangUp(t)
		w.leaveLater(t, "100ms")
		time.Sleep(settling)
		check("after connections ended", 0)

		before[2].hangUp(t)
		during[1].hangUp(t)
		during[2].hangUp(t)
		w.leaveLater(t, settling.String())
		// Servers estimate the clock of Redis. What ended at the same millisecond can be after the hidden time.
		time.Sleep(100 * time.Millisecond)
		w.both(t, "PUT", "/users/alice/availability", `{"note":"back"}`)
		check("after going visible", 1)
		w.ping(t, "alice", at+1)
		check("after late pings", 0)
		time.Sleep(settling)
		check("after goodbyes of the hidden time", 0)
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, exact(time.Now())))
		check("after a ping that counts", 1)

		w.hide(t, []string{"alice"}, "")
		check("invisible again", 1)
		w.both(t, "DELETE", "/users/alice/availability", "")
		check("visible at once", 1)
		f.checkReturn(t, stays)
	})
}

// connectAlice opens three connections of hers on different servers: one whose end is a goodbye at once, and two whose
// end is one after a while.
func (w twins) connectAlice(t *testing.T, device string) (sockets []*twinSocket) {
	t.Helper()
	for i, grace := range []time.Duration{0, settling / 2, settling} {
		sockets = append(sockets, w.connect(t, i, "alice", fmt.Sprintf(
			`"device":{"id":"%s-%d","kind":"web"},"grace_ms":%d`, device, i, grace.Milliseconds())))
	}
	return sockets
}

// copyDevices has the users' connections be devices in the other namespace.
func (w twins) copyDevices(t *testing.T) {
	t.Helper()
	for _, user := range []string{"alice", "davey"} {
		r := w.do(t, 0, "GET", "/v1/namespaces/"+w.hidden+"/users/"+user+"/devices", "")
		for _, device := range decoded(t, r.body)["devices"].([]any) {
			id, since := device.(map[string]any)["id"].(string), device.(map[string]any)["since"].(string)
			if id != "tab" && id != "app" { // of [twins.seed]
				w.do(t, 0, "POST", "/v1/namespaces/"+w.left+"/users/"+user+"/ping",
					fmt.Sprintf(`{"at":%q,"device":{"id":%q,"kind":"web"}}`, since, id))
			}
		}
	}
}

// beginAhead gives both users the same newest time in both namespaces, whenever they connected, and begins to follow.
func (w twins) beginAhead(t *testing.T, begun time.Time) *twinFollowers {
	t.Helper()
	ahead := exact(time.Now().Add(4 * time.Second)) // as much as a clock may be, and some latency
	for _, user := range []string{"alice", "davey"} {
		w.both(t, "POST", "/users/"+user+"/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, ahead))
		for _, namespace := range []string{w.left, w.hidden} {
			states, err := w.store.Lookup(t.Context(), namespace, []string{user})
			require.NoError(t, err)
			require.Equal(t, ahead, states[0].At.String(), "the machine is too slow, or its clock was set")
		}
	}
	return w.begin(t, begun)
}

// leaveLater has Alice's devices ask for leaves that are recorded after a while.
func (w twins) leaveLater(t *testing.T, after string) {
	t.Helper()
	path := "/v1/namespaces/" + w.hidden + "/users/alice/leave"
	for i, body := range []string{`{"device":{"id":"tab"},"after":%q}`, `{"device":{"id":"app"},"after":%q}`, `{"after":%q}`} {
		w.do(t, i, "POST", path, fmt.Sprintf(body, after))
	}
}

// hangUp ends a connection without a goodbye. The server has noticed that when it returns.
func (s *twinSocket) hangUp(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Close(websocket.StatusNormalClosure, ""))
}

// checkReturn has Davey become visible while he is connected. He is present by what is heard next, and from then on as
// one who pings then.
func (f *twinFollowers) checkReturn(t *testing.T, stays *twinSocket) {
	t.Helper()
	f.both(t, "PUT", "/users/davey/availability", `{"note":"here"}`)
	var back string
	require.Eventually(t, func() bool {
		states, err := f.store.Lookup(t.Context(), f.hidden, []string{"davey"})
		if err != nil || states[0].Left {
			return false
		}
		back = states[0].At.String()
		return true
	}, time.Minute, 10*time.Millisecond, "a user who is connected and visible")
	f.do(t, 0, "POST", "/v1/namespaces/"+f.left+"/users/davey/ping",
		fmt.Sprintf(`{"at":%q,"device":{"id":"stays","kind":"web"},"activity":"idle"}`, back))
	f.check(t, "after the connection returned", -1)
	require.NoError(t, stays.Close(websocket.StatusNormalClosure, ""))
}
