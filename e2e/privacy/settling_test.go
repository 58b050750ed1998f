package privacy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// settling is how long connections and leaves that end in the hidden time take effect after that.
const settling = time.Second

// TestInvisibleSettlesLikeLeft compares a user who left with one who became invisible while she was connected, and
// whose connections end, and leaves come, before and after she is visible again.
func TestInvisibleSettlesLikeLeft(t *testing.T) {
	t.Parallel()
	testPair(t, hall, func(t *testing.T, w *pair) {
		w.seed(t)
		w.follow(t)
		before := w.connectAlice(t, "before")
		w.copyDevices(t)
		w.flush(t, "while connected", 0)
		at := w.hide(t, "alice", "")
		w.flush(t, "at once", 0)
		during := w.connectAlice(t, "during")
		w.goOn(t, at)
		before[0].ask(t, `{"leave":{},"id":4}`, "ok")
		before[1].hangUp(t)
		during[0].hangUp(t)
		w.leaveLater(t, "100ms")
		w.await(t, time.Now().Add(settling))
		w.check(t, "after connections ended", 0)

		before[2].hangUp(t)
		during[1].hangUp(t)
		during[2].hangUp(t)
		w.leaveLater(t, settling.String())
		// Servers estimate the clock of Redis. What ended at the same millisecond can be after the hidden time.
		w.await(t, time.Now().Add(100*time.Millisecond))
		w.both(t, "PUT", "/users/alice/availability", `{"note":"back"}`)
		w.check(t, "after going visible", 1)
		w.ping(t, "alice", at+1)
		w.await(t, time.Now().Add(settling))
		w.check(t, "after late pings, and leaves of the hidden time", 0)
		w.both(t, "POST", "/users/alice/ping", fmt.Sprintf(`{"at":%q,"device":{"id":"tab","kind":"web"}}`, exact(time.Now())))
		w.check(t, "after a ping that counts", 1)

		stays := w.hiding.connect(t, 1, "davey", `,"device":{"id":"stays","kind":"web"}`)
		w.hide(t, "davey", "")
		w.hiding.do(t, 0, "DELETE", "/users/davey/availability", "")
		require.Eventually(t, func() bool {
			return w.hiding.shownTo(t, 0, "ls_reader", "davey") == "green"
		}, testWait, 10*time.Millisecond, "a user who is connected and visible again")
		stays.hangUp(t)
	})
}

// connectAlice opens three connections of hers on different servers: one whose end is a leave at once, and two whose
// end is one after a while.
func (w *pair) connectAlice(t *testing.T, device string) (sockets []*clientSocket) {
	t.Helper()
	for i, grace := range []time.Duration{0, settling / 2, settling} {
		sockets = append(sockets, w.hiding.connect(t, i, "alice", fmt.Sprintf(
			`,"device":{"id":"%s-%d","kind":"web"},"grace_ms":%d`, device, i, grace.Milliseconds())))
	}
	return sockets
}

// copyDevices has Alice's connections be devices in the other site.
func (w *pair) copyDevices(t *testing.T) {
	t.Helper()
	r := w.hiding.do(t, 0, "GET", "/users/alice/devices", "")
	for _, each := range decoded(t, r.body)["devices"].([]any) {
		if device := each.(map[string]any); device["id"] != "tab" {
			w.gone.do(t, 0, "POST", "/users/alice/ping",
				fmt.Sprintf(`{"at":%q,"device":{"id":%q,"kind":"web"}}`, device["since"], device["id"]))
		}
	}
}

// leaveLater has Alice's devices ask for leaves that are recorded after a while.
func (w *pair) leaveLater(t *testing.T, after string) {
	t.Helper()
	for i, body := range []string{
		`{"device":{"id":"tab"},"after":%q}`, `{"device":{"id":"app"},"after":%q}`, `{"after":%q}`,
	} {
		w.hiding.do(t, i, "POST", "/users/alice/leave", fmt.Sprintf(body, after))
	}
}
