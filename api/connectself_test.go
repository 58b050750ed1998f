package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// say sets what alice says over HTTP.
func say(t *testing.T, w *testServer, body string) {
	t.Helper()
	r := w.send(http.MethodPut, aliceAvailability, body)
	require.Equal(t, http.StatusOK, r.status, r.body)
}

// saying returns the fields by which a client learns what its user says.
func saying(availability, note, until any) map[string]any {
	return map[string]any{"availability": availability, "note": note, "until": until}
}

// wantSelf reads the next frame of a client, which says this.
func wantSelf(t *testing.T, c *testSocket, says map[string]any) {
	t.Helper()
	got := c.want(frameSelf)
	require.Equal(t, says, got)
}

// awaitSelf reads frames of a client until one says this. What the user said just before a greeting can come once more
// after it.
func awaitSelf(t *testing.T, c *testSocket, says map[string]any) {
	t.Helper()
	for !maps.Equal(says, c.want(frameSelf)) {
		continue
	}
}

// TestSelf: all connections of a user learn what the user says, on all servers, and those of others do not.
func TestSelf(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		here, welcome := one.hello(`{"user":"alice"}`)
		require.Subset(t, welcome["self"], saying(nil, nil, nil))
		there, _ := two.hello(`{"user":"alice"}`)
		bob, _ := two.hello(`{"user":"bob"}`)
		next := func(body string, want map[string]any) {
			t.Helper()
			say(t, one, body)
			wantSelf(t, here, want)
			wantSelf(t, there, want)
		}
		next(`{"availability":"busy","note":"in \"a\" meeting"}`, saying("busy", `in "a" meeting`, nil))
		next(`{"note":"only a note"}`, saying(nil, "only a note", nil))
		next(`{"note":"only a note"}`, saying(nil, "only a note", nil)) // again: see TestSelfSaidTwice
		next(`{"availability":"invisible","until":"2100-01-01T00:00:00Z"}`,
			saying("invisible", nil, "2100-01-01T00:00:00.000Z"))
		_, welcome = two.hello(`{"user":"alice"}`)
		self := welcome["self"].(map[string]any)
		require.Subset(t, self, saying("invisible", nil, "2100-01-01T00:00:00.000Z"))
		require.Equal(t, true, self["left"], "as others see it")
		require.Equal(t, http.StatusNoContent, two.send(http.MethodDelete, "/chat/users/alice/availability", "").status)
		wantSelf(t, here, saying(nil, nil, nil))
		bob.asks(`{"activity":{"idle":false}}`, frameOK) // nothing else came before
	})
}

// TestSelfEnds: a client learns that what its user says has ended, and what the user said before being invisible.
func TestSelfEnds(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	say(t, w, `{"availability":"away"}`)
	say(t, w, `{"availability":"invisible","for":"3s"}`)
	alice, welcome := w.hello(`{"user":"alice"}`)
	require.Equal(t, "invisible", welcome["self"].(map[string]any)["availability"])
	awaitSelf(t, alice, saying("away", nil, nil))
	say(t, w, `{"note":"brb","for":"2s"}`)
	require.Equal(t, "brb", alice.want(frameSelf)["note"])
	wantSelf(t, alice, saying(nil, nil, nil))
}

// TestSelfEndsByTheStoresClock: the timer alone does not end what a user says.
func TestSelfEndsByTheStoresClock(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	timers := make(chan func(), 10)
	w.config.Shared.selves.after = func(d time.Duration, f func()) *time.Timer {
		require.LessOrEqual(t, d, maxSelfEnd)
		timers <- f
		return time.NewTimer(0)
	}
	alice, _ := w.hello(`{"user":"alice"}`)
	say(t, w, `{"availability":"away","for":"1000h"}`)
	alice.want(frameSelf)
	(<-timers)() // early
	(<-timers)()
	alice.asks(`{"activity":{"idle":false}}`, frameOK) // nothing else came before
}

// readStore lets a test do something around ReadAvailability: real stores do nothing on demand.
type readStore struct {
	store.Store
	reads  atomic.Int64
	before func() error
	after  func()
}

func (r *readStore) ReadAvailability(
	ctx context.Context, namespace, user string, at lastseen.Instant,
) (lastseen.Said, error) {
	r.reads.Add(1)
	if r.before != nil {
		if err := r.before(); err != nil {
			return lastseen.Said{}, err
		}
	}
	said, err := r.Store.ReadAvailability(ctx, namespace, user, at)
	if r.after != nil {
		r.after()
	}
	return said, err
}

// set sets what alice says, without a signal.
func (r *readStore) set(t *testing.T, said lastseen.Said) {
	t.Helper()
	now, err := r.Now(t.Context())
	require.NoError(t, err)
	_, err = r.SetAvailability(t.Context(), "chat", "alice", said, now)
	require.NoError(t, err)
}

// TestSelfWhileOpening: what changes after it was read for the frame welcome, and before that was sent, follows.
func TestSelfWhileOpening(t *testing.T) {
	t.Parallel()
	s := &readStore{Store: fileStore(t)}
	w := newSocketServerOn(t, s)
	said := false
	s.after = func() {
		if said {
			return
		}
		said = true
		s.set(t, lastseen.Said{Availability: lastseen.Busy})
		require.NoError(t, s.Signal(t.Context(), store.Signal{Kind: signalSelf, Namespace: "chat", User: "alice"}))
		require.Eventually(t, func() bool {
			n := w.config.Shared.sockets.all()[0]
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.selfMissed
		}, eventually, tick)
	}
	alice, welcome := w.hello(`{"user":"alice"}`)
	require.Subset(t, welcome["self"], saying(nil, nil, nil))
	wantSelf(t, alice, saying("busy", nil, nil))
}

// TestSelfWhileOpeningAndSignalsAreLost: what was read for the frame welcome is not sent again if nobody has said
// anything.
func TestSelfWhileOpeningAndSignalsAreLost(t *testing.T) {
	t.Parallel()
	s := &readStore{Store: fileStore(t)}
	w := newSocketServerOn(t, s)
	shared := w.config.Shared
	var opens atomic.Bool
	s.after = func() {
		if opens.Swap(true) {
			return
		}
		shared.receive(store.Signal{})
		require.Eventually(t, func() bool {
			n := shared.sockets.all()[0]
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.selfMissed
		}, eventually, tick)
	}
	alice, _ := w.hello(`{"user":"alice"}`)
	waitWelcomed(t, w)
	require.Eventually(t, func() bool {
		shared.selves.mu.Lock()
		defer shared.selves.mu.Unlock()
		return len(shared.selves.jobs) == 0
	}, eventually, tick)
	alice.asks(`{"activity":{"idle":false}}`, frameOK)
}

// waitWelcomed waits until all sessions have noted that their clients got the frame welcome: what changes before is
// read once more.
func waitWelcomed(t *testing.T, w *testServer) {
	t.Helper()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(w.config.Shared.sockets.all(), func(n *session) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return !n.welcomed
		})
	}, eventually, tick)
}

// TestSelfAfterLostSignals: what users say is read again, once for all connections of a user.
func TestSelfAfterLostSignals(t *testing.T) {
	t.Parallel()
	s := &readStore{Store: fileStore(t)}
	w := newTestServer(t, s, live(s), held(t, s)) // gets no signals but the one below
	one, _ := w.hello(`{"user":"alice"}`)
	two, _ := w.hello(`{"user":"alice"}`)
	_, _ = w.hello(`{"user":"bob"}`)
	_, _ = w.hello(`{"watch":{"users":["bob"]}}`)
	waitWelcomed(t, w)
	s.set(t, lastseen.Said{Availability: lastseen.Busy})
	before := s.reads.Load()
	w.config.Shared.receive(store.Signal{})
	require.Equal(t, "busy", one.want(frameSelf)["availability"])
	require.Equal(t, "busy", two.want(frameSelf)["availability"])
	require.Eventually(t, func() bool { return s.reads.Load() == before+2 }, eventually, tick)
}

// TestSelfOfDeletedNamespace: nothing is said there any longer.
func TestSelfOfDeletedNamespace(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	say(t, w, `{"availability":"busy"}`)
	alice, _ := w.hello(`{"user":"alice"}`)
	require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat?confirm=chat", "").status)
	awaitSelf(t, alice, saying(nil, nil, nil))
}

// TestSelfWhileTheStoreIsAway: it is read again until it is known. A client that connects meanwhile gets an error.
func TestSelfWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	s := &readStore{Store: fileStore(t)}
	w := newSocketServerOn(t, s)
	alice, _ := w.hello(`{"user":"alice"}`)
	s.set(t, lastseen.Said{Availability: lastseen.Busy})
	var away atomic.Bool
	away.Store(true)
	failed := make(chan struct{}, 100)
	s.before = func() error {
		if !away.Load() {
			return nil
		}
		failed <- struct{}{}
		return errors.Join(store.ErrUnavailable, errors.New("away"))
	}
	w.config.Shared.receive(store.Signal{Kind: signalSelf, Namespace: "chat", User: "alice"})
	<-failed
	bob := w.dialSocket("chat")
	bob.send(`{"hello":{"user":"bob"}}`)
	bob.fails(codeStoreUnavailable)
	alice.refuses(codeStoreUnavailable, `{"typing":{"to":["bob"]}}`)
	away.Store(false)
	require.Equal(t, "busy", alice.want(frameSelf)["availability"])
}

// TestSelfSaidTwice: two devices say something at the same time, and what was said last is what the connections knew
// before. They are sent it nevertheless: one of the devices knows from its response what is not so any longer.
func TestSelfSaidTwice(t *testing.T) {
	t.Parallel()
	s := &readStore{Store: fileStore(t)}
	w := newSocketServerOn(t, s)
	alice, _ := w.hello(`{"user":"alice"}`)
	say(t, w, `{"availability":"away"}`)
	wantSelf(t, alice, saying("away", nil, nil))
	waitReread(t, w)
	both := make(chan struct{})
	s.before = func() error {
		<-both
		return nil
	}
	say(t, w, `{"availability":"busy"}`)
	say(t, w, `{"availability":"away"}`)
	require.Eventually(t, func() bool { return s.reads.Load() == 3 }, eventually, tick) // the third one waits
	close(both)
	waitReread(t, w)
	alice.send(`{"activity":{"idle":false}}`)
	name, says, _ := alice.next()
	require.Equal(t, frameSelf, name, "before the response to what was sent later")
	require.Equal(t, saying("away", nil, nil), says)
}

// waitReread waits until all that has to be read again of what users say was read, and what follows was sent.
func waitReread(t *testing.T, w *testServer) {
	t.Helper()
	require.Eventually(t, func() bool {
		selves := w.config.Shared.selves
		selves.mu.Lock()
		defer selves.mu.Unlock()
		return len(selves.jobs) == 0
	}, eventually, tick)
	for _, n := range w.config.Shared.sockets.all() {
		require.Eventually(t, func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.outbox == nil
		}, eventually, tick)
	}
}

// liveDevices returns the IDs of a user's live devices.
func liveDevices(w *testServer, user string) (live []string) {
	w.t.Helper()
	for _, d := range w.get("/chat/users/" + user + "/devices")["devices"].([]any) {
		if d := d.(map[string]any); d["live"] == true {
			live = append(live, d["id"].(string))
		}
	}
	return live
}

// TestInvisibleConnection: the connection of an invisible user shows nothing. Once the user is visible, it does.
func TestInvisibleConnection(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		alice, _ := one.hello(`{"user":"alice","device":{"id":"tab","kind":"web"},"grace_ms":0}`)
		answered := make(chan struct{})
		go func() { // answers pings
			defer close(answered)
			for {
				if _, _, err := alice.conn.ReadMessage(); err != nil {
					return
				}
			}
		}()
		say(t, two, `{"availability":"invisible"}`)
		left := two.get("/chat/users/alice")
		require.Equal(t, true, left["left"])
		alice.send(`{"activity":{"idle":true}}`)
		other, _ := two.hello(`{"user":"alice","grace_ms":0}`)
		other.asksDespite(`{"leave":{}}`, frameOK, frameSelf)
		require.Equal(t, left["last_seen"], one.get("/chat/users/alice")["last_seen"])
		require.Empty(t, liveDevices(two, "alice"))
		say(t, two, `{"note":"here again"}`)
		isGreen := func() bool { return two.get("/chat/users/alice")["status"] == "green" }
		require.Eventually(t, isGreen, eventually, tick)
		require.Equal(t, []string{"tab"}, liveDevices(two, "alice"))
		require.NoError(t, alice.conn.Close())
		<-answered
	})
}

// TestSelfPings: the server pings once whatever the user says, so that a client that is not shown what that is, with a
// key that can only write, does not see who is invisible.
func TestSelfPings(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	alice, _ := w.hello(`{"user":"alice"}`)
	pings := make(chan struct{}, 10)
	alice.conn.SetPingHandler(func(string) error {
		pings <- struct{}{}
		return nil
	})
	n := w.config.Shared.sockets.all()[0]
	isSent := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.outbox == nil
	}
	for _, body := range []string{
		`{"availability":"busy"}`, `{"availability":"invisible"}`, `{"availability":"invisible","note":"x"}`, `{"note":"x"}`,
	} {
		say(t, w, body)
		alice.want(frameSelf)
		require.Eventually(t, isSent, eventually, tick)
		alice.asks(`{"activity":{"idle":false}}`, frameOK) // which also handles the pings before the response
		require.Len(t, pings, 1, body)
		<-pings
	}
}
