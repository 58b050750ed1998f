package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

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
			one.say(body)
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
		two.send("DELETE", "/chat/users/alice/availability", "").is(t, http.StatusNoContent)
		wantSelf(t, here, saying(nil, nil, nil))
		bob.quiet() // nothing else came before
	})
}

// TestSelfEnds: a client learns that what its user says has ended, and what the user said before being invisible.
func TestSelfEnds(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		w.connects()
		say := func(body string) { w.do("PUT", "/users/alice/availability", body) }
		say(`{"availability":"away"}`)
		say(`{"availability":"invisible","for":"30s"}`)
		alice, welcome := w.hello(`{"user":"alice"}`)
		require.Equal(t, "invisible", welcome["self"].(map[string]any)["availability"])
		awaitSelf(t, alice, saying("away", nil, nil))
		say(`{"note":"brb","for":"20s"}`)
		require.Equal(t, "brb", alice.want(frameSelf)["note"])
		wantSelf(t, alice, saying(nil, nil, nil))
	})
}

// TestSelfEndsByTheStoresClock: the timer alone does not end what a user says.
func TestSelfEndsByTheStoresClock(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	timers := make(chan func(), 10)
	w.config.Shared.userStates.after = func(d time.Duration, f func()) *time.Timer {
		require.LessOrEqual(t, d, maxSelfEnd)
		timers <- f
		return time.NewTimer(0)
	}
	alice, _ := w.hello(`{"user":"alice"}`)
	w.say(`{"availability":"away","for":"1000h"}`)
	alice.want(frameSelf)
	(<-timers)() // early
	(<-timers)()
	alice.quiet() // nothing else came before
}

// readStore is a store that a test can have do something around reads of what users say.
type readStore struct {
	*hookedStore
	reads       atomic.Int64
	readsBefore func() error
	readsAfter  func()
}

func newReadStore(t *testing.T) *readStore {
	r := &readStore{hookedStore: &hookedStore{Store: fileStore(t)}}
	r.before = func(_ context.Context, call string) error {
		if call != "ReadAvailability" {
			return nil
		}
		r.reads.Add(1)
		if r.readsBefore != nil {
			return r.readsBefore()
		}
		return nil
	}
	r.after = func(call string) error {
		if call == "ReadAvailability" && r.readsAfter != nil {
			r.readsAfter()
		}
		return nil
	}
	return r
}

// set sets what alice says, without a signal.
func (r *readStore) set(said lastseen.Said) error {
	now, err := r.Now(context.Background())
	if err == nil {
		_, err = r.SetAvailability(context.Background(), "chat", "alice", said, now)
	}
	return err
}

// TestSelfWhileOpening: what changes after it was read for the frame welcome, and before that was sent, follows, unless
// it was read in time for the frame. If signals are lost meanwhile and nobody has said anything, it is not sent again.
func TestSelfWhileOpening(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ says, inTime bool }{{true, false}, {true, true}, {false, false}} {
		s := newReadStore(t)
		w := newSocketServerOn(t, s)
		var reads atomic.Int64
		again, welcomed := make(chan struct{}), make(chan struct{})
		s.readsAfter = func() {
			switch reads.Add(1) {
			case 1:
				signal := store.Signal{}
				if test.says {
					err := s.set(lastseen.Said{Availability: lastseen.Busy})
					assert.NoError(t, err) //nolint:testifylint // not the goroutine of the test
					signal = store.Signal{Kind: signalSelf, Namespace: "chat", User: "alice"}
				}
				w.config.Shared.receive(signal)
				if test.inTime {
					assert.True(t, happens(func() bool { return !w.refreshes("alice") }))
				}
			case 2:
				close(again)
				if !test.inTime {
					<-welcomed
				}
			}
		}
		alice, welcome := w.hello(`{"user":"alice"}`)
		close(welcomed)
		<-again
		switch {
		case test.inTime:
			require.Subset(t, welcome["self"], saying("busy", nil, nil))
		case test.says:
			require.Subset(t, welcome["self"], saying(nil, nil, nil))
			wantSelf(t, alice, saying("busy", nil, nil))
		}
		waitWelcomed(t, w)
		waitReread(t, w)
		alice.quiet()
	}
}

// waitWelcomed waits until all sessions have noted that their clients got the frame welcome: what changes before is
// read once more.
func waitWelcomed(t *testing.T, w *testServer) {
	t.Helper()
	for _, n := range w.config.Shared.sockets.all() {
		awaitLocked(t, &n.mu, func() bool { return n.welcomed })
	}
}

// TestSelfAfterLostSignals: what users say is read again, once for all connections of a user.
func TestSelfAfterLostSignals(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	w := newTestServer(t, s, live(s), held(t, s)) // gets no signals but the one below
	one, _ := w.hello(`{"user":"alice"}`)
	two, _ := w.hello(`{"user":"alice"}`)
	_, _ = w.hello(`{"user":"bob"}`)
	_, _ = w.hello(`{"watch":{"users":["bob"]}}`)
	waitWelcomed(t, w)
	require.NoError(t, s.set(lastseen.Said{Availability: lastseen.Busy}))
	before := s.reads.Load()
	w.config.Shared.receive(store.Signal{})
	require.Equal(t, "busy", one.want(frameSelf)["availability"])
	require.Equal(t, "busy", two.want(frameSelf)["availability"])
	await(t, func() bool { return s.reads.Load() == before+2 })
}

// TestSelfOfDeletedNamespace: nothing is said there any longer.
func TestSelfOfDeletedNamespace(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	w.say(`{"availability":"busy"}`)
	alice, _ := w.hello(`{"user":"alice"}`)
	w.send("DELETE", "/chat?confirm=chat", "").is(t, http.StatusNoContent)
	awaitSelf(t, alice, saying(nil, nil, nil))
}

// TestSelfWhileTheStoreIsAway: it is read again until it is known. A client that connects meanwhile gets an error.
func TestSelfWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	w := newSocketServerOn(t, s)
	alice, _ := w.hello(`{"user":"alice"}`)
	require.NoError(t, s.set(lastseen.Said{Availability: lastseen.Busy}))
	var away atomic.Bool
	away.Store(true)
	failed := make(chan struct{}, 100)
	s.readsBefore = func() error {
		if !away.Load() {
			return nil
		}
		failed <- struct{}{}
		return errors.Join(store.ErrUnavailable, errors.New("away"))
	}
	w.config.Shared.receive(store.Signal{Kind: signalSelf, Namespace: "chat", User: "alice"})
	<-failed
	w.greet(`{"user":"bob"}`).fails(problem.StoreUnavailable)
	alice.refuses(problem.StoreUnavailable, `{"typing":{"to":["bob"]}}`)
	away.Store(false)
	require.Equal(t, "busy", alice.want(frameSelf)["availability"])
}

// TestSelfSaidTwice: two devices say something at the same time, and what was said last is what the connections knew
// before. They are sent it nevertheless: one of the devices knows from its response what is not so any longer.
func TestSelfSaidTwice(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	w := newSocketServerOn(t, s)
	alice, _ := w.hello(`{"user":"alice"}`)
	w.say(`{"availability":"away"}`)
	wantSelf(t, alice, saying("away", nil, nil))
	waitReread(t, w)
	both := make(chan struct{})
	s.readsBefore = func() error {
		<-both
		return nil
	}
	w.say(`{"availability":"busy"}`)
	w.say(`{"availability":"away"}`)
	await(t, func() bool { return s.reads.Load() == 3 }) // the third one waits
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
	states := w.config.Shared.userStates
	awaitLocked(t, &states.mu, func() bool {
		for _, st := range states.users {
			if st.job != nil {
				return false
			}
		}
		return !states.spreads
	})
	for _, n := range w.config.Shared.sockets.all() {
		awaitLocked(t, &n.mu, func() bool { return !n.sending })
	}
}

// refreshes reports whether the state of a user is to be read again.
func (w *testServer) refreshes(user string) bool {
	states := w.config.Shared.userStates
	return locked(&states.mu, func() bool {
		st := states.users[lastseen.UserKey{Namespace: "chat", User: user}]
		return st != nil && st.job != nil
	})
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
			for err := error(nil); err == nil; {
				_, _, err = alice.conn.ReadMessage()
			}
		}()
		two.say(`{"availability":"invisible"}`)
		left := two.get("/chat/users/alice")
		require.Equal(t, true, left["left"])
		alice.send(`{"activity":{"idle":true}}`)
		other, _ := two.hello(`{"user":"alice","grace_ms":0}`)
		other.asksDespite(`{"leave":{}}`, frameOK, frameSelf)
		require.Equal(t, left["last_seen"], one.get("/chat/users/alice")["last_seen"])
		require.Empty(t, liveDevices(two, "alice"))
		two.say(`{"note":"here again"}`)
		two.awaitAlice("status", "green")
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
	n := w.session()
	for _, body := range []string{
		`{"availability":"busy"}`, `{"availability":"invisible"}`, `{"availability":"invisible","note":"x"}`, `{"note":"x"}`,
	} {
		w.say(body)
		alice.want(frameSelf)
		awaitLocked(t, &n.mu, func() bool { return !n.sending }) // it is sent
		// which also handles the pings before the response
		alice.quiet()
		require.Len(t, pings, 1, body)
		<-pings
	}
}

// say sets what alice says over HTTP.
func say(_ *testing.T, w *testServer, body string) { w.say(body) }
