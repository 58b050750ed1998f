package session_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// awaitSelf reads frames of a client until one says this. An availability set just before a greeting can come once more
// after it.
func awaitSelf(t *testing.T, c *kit.Socket, says map[string]any) {
	t.Helper()
	for !maps.Equal(says, c.Want("self")) {
		continue
	}
}

// TestSelf: all connections of a user learn the user's availability, on all servers, and those of others do not.
func TestSelf(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		here, welcome := one.Hello(`{"user":"alice"}`)
		require.Subset(t, welcome["self"], kit.Saying(nil, nil, nil))
		there, _ := two.Hello(`{"user":"alice"}`)
		bob, _ := two.Hello(`{"user":"bob"}`)
		next := func(body string, want map[string]any) {
			t.Helper()
			one.Say(body)
			kit.WantSelf(t, here, want)
			kit.WantSelf(t, there, want)
		}
		next(`{"availability":"busy","note":"in \"a\" meeting"}`, kit.Saying("busy", `in "a" meeting`, nil))
		next(`{"note":"only a note"}`, kit.Saying(nil, "only a note", nil))
		next(`{"note":"only a note"}`, kit.Saying(nil, "only a note", nil)) // again: see TestSelfSaidTwice
		next(`{"availability":"invisible","until":"2100-01-01T00:00:00Z"}`,
			kit.Saying("invisible", nil, "2100-01-01T00:00:00.000Z"))
		_, welcome = two.Hello(`{"user":"alice"}`)
		self := welcome["self"].(map[string]any)
		require.Subset(t, self, kit.Saying("invisible", nil, "2100-01-01T00:00:00.000Z"))
		require.Equal(t, true, self["left"], "as others see it")
		two.Send("DELETE", "/chat/users/alice/availability", "").Is(t, http.StatusNoContent)
		kit.WantSelf(t, here, kit.Saying(nil, nil, nil))
		bob.Quiet() // nothing else came before
	})
}

// TestSelfEnds: a client learns that its user's availability has ended, and the availability before being invisible.
func TestSelfEnds(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		w.Connects()
		say := func(body string) { w.Do("PUT", "/users/alice/availability", body) }
		say(`{"availability":"away"}`)
		say(`{"availability":"invisible","for":"30s"}`)
		alice, welcome := w.Hello(`{"user":"alice"}`)
		require.Equal(t, "invisible", welcome["self"].(map[string]any)["availability"])
		awaitSelf(t, alice, kit.Saying("away", nil, nil))
		say(`{"note":"brb","for":"20s"}`)
		require.Equal(t, "brb", alice.Want("self")["note"])
		kit.WantSelf(t, alice, kit.Saying(nil, nil, nil))
	})
}

// TestSelfEndsByTheStoresClock: the timer alone does not end a user's availability.
func TestSelfEndsByTheStoresClock(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	timers := make(chan func(), 10)
	w.Config.Shared.SetTimers(func(d time.Duration, f func()) *time.Timer {
		require.LessOrEqual(t, d, kit.MaxSelfEnd)
		timers <- f
		return time.NewTimer(0)
	})
	alice, _ := w.Hello(`{"user":"alice"}`)
	w.Say(`{"availability":"away","for":"1000h"}`)
	alice.Want("self")
	(<-timers)() // early
	(<-timers)()
	alice.Quiet() // nothing else came before
}

// readStore is a store that a test can have do something around reads of the availability of users.
type readStore struct {
	*kit.HookedStore
	reads       atomic.Int64
	readsBefore func() error
	readsAfter  func()
}

func newReadStore(t *testing.T) *readStore {
	r := &readStore{HookedStore: &kit.HookedStore{Store: kit.FileStore(t)}}
	r.Before = func(_ context.Context, call string) error {
		if call != "ReadAvailability" {
			return nil
		}
		r.reads.Add(1)
		if r.readsBefore != nil {
			return r.readsBefore()
		}
		return nil
	}
	r.After = func(call string) error {
		if call == "ReadAvailability" && r.readsAfter != nil {
			r.readsAfter()
		}
		return nil
	}
	return r
}

// set sets alice's availability, without a signal.
func (r *readStore) set(availability lastseen.AvailabilityState) error {
	now, err := r.Now(context.Background())
	if err == nil {
		_, err = r.SetAvailability(context.Background(), "chat", "alice", availability, now)
	}
	return err
}

// TestSelfWhileOpening: what changes after it was read for the frame welcome, and before that was sent, follows, unless
// it was read in time for the frame. If signals are lost meanwhile and nobody has set an availability, it is not sent
// again.
func TestSelfWhileOpening(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ says, inTime bool }{{true, false}, {true, true}, {false, false}} {
		s := newReadStore(t)
		w := apitest.NewSocketServerOn(t, s)
		var reads atomic.Int64
		again, welcomed := make(chan struct{}), make(chan struct{})
		s.readsAfter = func() {
			switch reads.Add(1) {
			case 1:
				signal := store.Signal{}
				if test.says {
					err := s.set(lastseen.AvailabilityState{Availability: lastseen.Busy})
					assert.NoError(t, err) //nolint:testifylint // not the goroutine of the test
					signal = store.Signal{Kind: "self", Namespace: "chat", User: "alice"}
				}
				w.Config.Shared.Receive(signal)
				if test.inTime {
					assert.True(t, kit.Happens(func() bool { return w.Config.Shared.Refreshing() == 0 }))
				}
			case 2:
				close(again)
				if !test.inTime {
					<-welcomed
				}
			}
		}
		alice, welcome := w.Hello(`{"user":"alice"}`)
		close(welcomed)
		<-again
		switch {
		case test.inTime:
			require.Subset(t, welcome["self"], kit.Saying("busy", nil, nil))
		case test.says:
			require.Subset(t, welcome["self"], kit.Saying(nil, nil, nil))
			kit.WantSelf(t, alice, kit.Saying("busy", nil, nil))
		}
		waitWelcomed(t, w)
		waitReread(t, w)
		alice.Quiet()
	}
}

// TestRenewedWhileOpening: a user who becomes invisible, and visible again, while a connection opens is shown again by
// it: the store has dropped its record.
func TestRenewedWhileOpening(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	w := apitest.NewSocketServerOn(t, s)
	var opened atomic.Bool
	s.readsAfter = func() {
		if opened.Swap(true) {
			return
		}
		for _, body := range []string{`{"availability":"invisible"}`, `{"note":"here again"}`} {
			before := s.reads.Load()
			w.Say(body)
			assert.True(t, kit.Happens(func() bool { // its signal has come
				return s.reads.Load() > before && w.Config.Shared.Refreshing() == 0
			}))
		}
	}
	alice, welcome := w.Hello(`{"user":"alice","device":{"id":"tab","kind":"web"}}`)
	require.Subset(t, welcome["self"], kit.Saying(nil, "here again", nil))
	answered := make(chan struct{})
	go func() { // answers pings
		defer close(answered)
		for err := error(nil); err == nil; {
			_, _, err = alice.Conn.ReadMessage()
		}
	}()
	kit.Await(t, func() bool { return slices.Equal([]string{"tab"}, liveDevices(w, "alice")) })
	require.NoError(t, alice.Conn.Close())
	<-answered
}

// waitWelcomed waits until all sessions have noted that their clients got the frame welcome: what changes before is
// read once more.
func waitWelcomed(t *testing.T, w *apitest.Server) {
	t.Helper()
	for _, n := range w.Config.Shared.Sessions() {
		kit.Await(t, func() bool { return n.Welcomed() })
	}
}

// TestSelfAfterLostSignals: the availability of users is read again, once for all connections of a user.
func TestSelfAfterLostSignals(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	// It gets no signals but the one below.
	w := apitest.NewServer(t, s, apitest.WithStoreTime(s), apitest.WithConnections(t, s))
	one, _ := w.Hello(`{"user":"alice"}`)
	two, _ := w.Hello(`{"user":"alice"}`)
	_, _ = w.Hello(`{"user":"bob"}`)
	_, _ = w.Hello(`{"watch":{"users":["bob"]}}`)
	waitWelcomed(t, w)
	require.NoError(t, s.set(lastseen.AvailabilityState{Availability: lastseen.Busy}))
	before := s.reads.Load()
	w.Config.Shared.Receive(store.Signal{})
	require.Equal(t, "busy", one.Want("self")["availability"])
	require.Equal(t, "busy", two.Want("self")["availability"])
	kit.Await(t, func() bool { return s.reads.Load() == before+2 })
}

// TestSelfOfDeletedNamespace: nothing is said there any longer.
func TestSelfOfDeletedNamespace(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	w.Say(`{"availability":"busy"}`)
	alice, _ := w.Hello(`{"user":"alice"}`)
	w.Send("DELETE", "/chat?confirm=chat", "").Is(t, http.StatusNoContent)
	awaitSelf(t, alice, kit.Saying(nil, nil, nil))
}

// TestSelfWhileTheStoreIsAway: it is read again until it is known. A client that connects meanwhile gets an error.
func TestSelfWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	w := apitest.NewSocketServerOn(t, s)
	alice, _ := w.Hello(`{"user":"alice"}`)
	require.NoError(t, s.set(lastseen.AvailabilityState{Availability: lastseen.Busy}))
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
	w.Config.Shared.Receive(store.Signal{Kind: "self", Namespace: "chat", User: "alice"})
	<-failed
	w.Greet(`{"user":"bob"}`).Fails(problem.StoreUnavailable)
	alice.Refuses(problem.StoreUnavailable, `{"typing":{"to":["bob"]}}`)
	away.Store(false)
	require.Equal(t, "busy", alice.Want("self")["availability"])
}

// TestSelfSetTwice: two devices set an availability at the same time, and the last one is what the connections knew
// before. They are sent it nevertheless: one of the devices knows from its response what is not so any longer.
func TestSelfSetTwice(t *testing.T) {
	t.Parallel()
	s := newReadStore(t)
	w := apitest.NewSocketServerOn(t, s)
	alice, _ := w.Hello(`{"user":"alice"}`)
	w.Say(`{"availability":"away"}`)
	kit.WantSelf(t, alice, kit.Saying("away", nil, nil))
	waitReread(t, w)
	both := make(chan struct{})
	s.readsBefore = func() error {
		<-both
		return nil
	}
	w.Say(`{"availability":"busy"}`)
	w.Say(`{"availability":"away"}`)
	kit.Await(t, func() bool { return s.reads.Load() == 3 }) // the third one waits
	close(both)
	waitReread(t, w)
	alice.Send(`{"activity":{"idle":false}}`)
	name, says, _ := alice.Next()
	require.Equal(t, "self", name, "before the response to what was sent later")
	require.Equal(t, kit.Saying("away", nil, nil), says)
}

// waitReread waits until every availability that has to be read again was read, and what follows was sent.
func waitReread(t *testing.T, w *apitest.Server) {
	t.Helper()
	kit.Await(t, func() bool { return w.Config.Shared.Refreshing() == 0 })
	for _, n := range w.Config.Shared.Sessions() {
		kit.Await(t, func() bool { return n.AllSent() })
	}
}

func liveDevices(w *apitest.Server, user string) (live []string) {
	w.T.Helper()
	for _, d := range w.Get("/chat/users/" + user + "/devices")["devices"].([]any) {
		if d := d.(map[string]any); d["live"] == true {
			live = append(live, d["id"].(string))
		}
	}
	return live
}

// TestInvisibleConnection: the connection of an invisible user shows nothing. Once the user is visible, it does.
func TestInvisibleConnection(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		alice, _ := one.Hello(`{"user":"alice","device":{"id":"tab","kind":"web"},"grace_ms":0}`)
		answered := make(chan struct{})
		go func() { // answers pings
			defer close(answered)
			for err := error(nil); err == nil; {
				_, _, err = alice.Conn.ReadMessage()
			}
		}()
		two.Say(`{"availability":"invisible"}`)
		left := two.Get("/chat/users/alice")
		require.Equal(t, true, left["left"])
		alice.Send(`{"activity":{"idle":true}}`)
		other, _ := two.Hello(`{"user":"alice","grace_ms":0}`)
		other.AsksDespite(`{"leave":{}}`, "ok", "self")
		require.Equal(t, left["last_seen"], one.Get("/chat/users/alice")["last_seen"])
		require.Empty(t, liveDevices(two, "alice"))
		two.Say(`{"note":"here again"}`)
		two.AwaitAlice("status", "green")
		require.Equal(t, []string{"tab"}, liveDevices(two, "alice"))
		require.NoError(t, alice.Conn.Close())
		<-answered
	})
}

// TestSelfPings: the server pings once whatever the user says, so that a client that is not shown what that is, with a
// key that can only write, does not see who is invisible.
func TestSelfPings(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	alice, _ := w.Hello(`{"user":"alice"}`)
	pings := make(chan struct{}, 10)
	alice.Conn.SetPingHandler(func(string) error {
		pings <- struct{}{}
		return nil
	})
	n := w.Config.Shared.Sessions()[0]
	for _, body := range []string{
		`{"availability":"busy"}`, `{"availability":"invisible"}`, `{"availability":"invisible","note":"x"}`, `{"note":"x"}`,
	} {
		w.Say(body)
		alice.Want("self")
		kit.Await(t, func() bool { return n.AllSent() })
		// which also handles the pings before the response
		alice.Quiet()
		require.Len(t, pings, 1, body)
		<-pings
	}
}
