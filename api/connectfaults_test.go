package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// TestConnectFrameErrors: errors of frames after hello, which do not end the connection.
func TestConnectFrameErrors(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	user, _ := w.hello(`{"user":"alice"}`)
	watcher, _ := w.hello(`{}`)
	many, _ := json.Marshal(strings.Split("u"+strings.Repeat(",u", maxTypingTo), ","))
	in := strings.Repeat("x", maxTypingIn)
	for _, c := range []struct {
		s      *testSocket
		want   problem.Code
		frames []string
	}{
		{user, problem.UnknownFrame, []string{`{"wave":{}}`, `{"hello":{}}`}},
		{user, problem.InvalidParameter, []string{
			`{"activity":{}}`, `{"typing":{}}`, `{"typing":{"to":[]}}`, `{"typing":{"to":["bob"],"in":"` + in + `x"}}`,
			`{"typing":{"to":["bob"],"in":"\u202eecila"}}`, `{"typing":{"to":["bob"],"in":"a\u2028b"}}`,
		}},
		{user, problem.InvalidJSON, []string{`{"activity":{"idle":"yes"}}`, `{"activity":true}`, `{"typing":[]}`}},
		{user, problem.UnknownField, []string{
			`{"leave":{"at":1}}`, `{"typing":{"to":["bob"],"user":"carol"}}`, `{"activity":{"idle":true,"idle_ms":1}}`,
		}},
		{user, problem.TooManyItems, []string{fmt.Sprintf(`{"typing":{"to":%s}}`, many)}},
		{user, problem.InvalidUser, []string{`{"typing":{"to":[""]}}`, `{"typing":{"to":["a\u0000"]}}`}},
		{watcher, problem.InvalidParameter, []string{
			`{"activity":{"idle":true}}`, `{"leave":{}}`, `{"typing":{"to":["bob"]}}`, `{"watch":{"cursor":"x"}}`,
		}},
		{watcher, problem.InvalidUser, []string{`{"watch":{"add":[""]}}`, `{"watch":{"remove":[".."]}}`}},
		{watcher, problem.UnknownField, []string{`{"watch":{"ad":["alice"]}}`}},
		{watcher, problem.InvalidJSON, []string{`{"watch":{"add":"alice"}}`, `{"watch":{"counts":1}}`, `{"watch":[]}`}},
		{watcher, problem.InvalidCursor, []string{`{"watch":{"add":["alice"],"cursor":"x"}}`}},
		{watcher, problem.TooManyItems, []string{`{"watch":{"add":[` + strings.Repeat(`"a",`, maxLookup) + `"b"]}}`}},
	} {
		for _, frame := range c.frames {
			c.s.refuses(c.want, frame)
		}
	}
	user.asks(`{"typing":{"to":["bob"],"in":"`+in+`"}}`, frameOK)
	most, _ := json.Marshal(strings.Split("u"+strings.Repeat(",u", maxTypingTo-1), ","))
	user.asks(fmt.Sprintf(`{"typing":{"to":%s}}`, most), frameOK)
	watcher.asks(`{"watch":{}}`, frameOK)
	watcher.asks(`{"watch":{"add":["alice"]}}`, frameChanges)
}

// TestConnectBadFrames: frames that end the connection. The close code and the problem say why.
func TestConnectBadFrames(t *testing.T) {
	w := newSocketServer(t)
	for want, texts := range map[problem.Code][]string{
		problem.InvalidJSON: {
			``, `{`, `[]`, `{}`, `null`, `{"id":1}`, `{"hello":{},"watch":{}}`, `{"hello":{}} {}`,
			`{"hello":{},"hello":{}}`,
			`{"hello":{},"id":{}}`, `{"hello":{},"id":"` + strings.Repeat("x", maxFrameID) + `"}`,
			`{"hello":{"user":"a","user":"b"}}`, `{"hello":{"user":"\ud800"}}`, "{\"hello\":{\"user\":\"\xff\"}}",
			`{"hello":1}`, `{"hello":{"user":1}}`, strings.Repeat("[", maxHello),
		},
		problem.UnknownFrame: {`{"watch":{}}`, `{"Hello":{}}`},
		problem.UnknownField: {`{"hello":{"User":"alice"}}`},
		problem.InvalidUser:  {`{"hello":{"user":""}}`, `{"hello":{"watch":{"users":[""]}}}`},
		problem.InvalidDuration: {
			`{"hello":{"user":"alice","grace_ms":60001}}`, `{"hello":{"user":"alice","grace_ms":-1}}`,
			`{"hello":{"user":"alice","activity":{"idle":true,"idle_ms":-1}}}`,
			`{"hello":{"user":"alice","activity":{"idle":true,"idle_ms":604800001}}}`,
		},
		problem.InvalidDevice: {
			`{"hello":{"user":"alice","device":{"id":"\u0000"}}}`, `{"hello":{"user":"alice","device":{"kind":"fridge"}}}`,
		},
		problem.InvalidParameter: {
			`{"hello":{"device":{"id":"a"}}}`, `{"hello":{"activity":{"idle":true}}}`,
			`{"hello":{"user":"alice","activity":{}}}`, `{"hello":{"cursor":"x"}}`, `{"hello":{"watch":{"users":["a"],"everyone":true}}}`,
		},
		problem.BodyTooLarge: {`{"hello":{"token":"` + strings.Repeat("x", maxHello) + `"}}`},
	} {
		for _, text := range texts {
			s := w.dialSocket("chat")
			s.send(text)
			require.Less(t, len(s.fails(want)), 400, "%.60s", text)
		}
	}
}

// TestFrameSchemas: the schemas refuse what the server refuses.
func TestFrameSchemas(t *testing.T) {
	for _, frame := range []string{
		`{"hello":{"user":""}}`, `{"hello":{"users":[]}}`, `{"hello":{"grace_ms":60001}}`, `{"hello":{},"id":{}}`,
		`{"hello":{"device":{"kind":"fridge"}}}`, `{"hello":{"activity":{"idle":true,"idle_ms":604800001}}}`, `{"activity":{}}`, `{"token":{}}`, `{"leave":{"at":1}}`,
		`{"activity":{"idle":true,"idle_ms":1}}`,
		`{"watch":{"add":"alice"}}`,
	} {
		require.Error(t, frameError(t, "client", []byte(frame)), frame)
	}
	for _, frame := range []string{
		`{"welcome":{}}`, `{"changes":{"users":[]}}`, `{"bye":{}}`, `{"problem":{}}`, `{"ok":{"a":1}}`,
		`{"tick":{},"id":1}`,
	} {
		require.Error(t, frameError(t, "server", []byte(frame)), frame)
	}
}

// TestConnectLargeFrames: after hello, frames can be larger.
func TestConnectLargeFrames(t *testing.T) {
	w := newSocketServer(t)
	s, _ := w.hello(`{}`)
	s.asks(`{"watch":{`+strings.Repeat(" ", maxFrame-40)+`}}`, frameOK)
	s.send(strings.Repeat(" ", maxFrame+1))
	s.fails(problem.BodyTooLarge)
	s, _ = w.hello(`{}`)
	s.send(strings.Repeat("x", 1<<20))
	s.fails(problem.BodyTooLarge)
	s, _ = w.hello(`{}`)
	require.NoError(t, s.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"watch":{}}`)))
	s.fails(problem.InvalidJSON)
}

// TestConnectLargeFramesWait: each 2 KiB of a frame count as a request of the caller, on all connections. Beyond the
// limit frames wait. Small ones do not count.
func TestConnectLargeFramesWait(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		w.config.Limits = limit.Limits{Caller: 2} // bursts of 10
		w.connects()
		one, _ := w.hello(`{}`)
		two, _ := w.hello(`{}`)
		begun := time.Now()
		frame := func(n int) string { return `{"watch":{` + strings.Repeat(" ", n*frameCharge-22) + `}}` }
		for range 15 {
			one.asks(strings.Replace(frame(1), " ", "", 1), frameOK)
		}
		for range 4 { // the upgrades have taken two
			one.asks(frame(1), frameOK)
			two.asks(frame(1), frameOK)
		}
		require.Zero(t, time.Since(begun))
		one.asks(frame(1), frameOK)
		require.Equal(t, 500*time.Millisecond, time.Since(begun))
		two.asks(frame(16), frameOK)
		require.Equal(t, 3*time.Second, time.Since(begun), "at most half of a burst")
		one.asks(`{"watch":{}}`, frameOK)
		require.Equal(t, 3*time.Second, time.Since(begun))
	})
}

// TestConnectFlood: a client that sends too many frames is closed.
func TestConnectFlood(t *testing.T) {
	w := newSocketServer(t)
	for name, send := range map[string]func(*testSocket) error{
		"frames": func(s *testSocket) error {
			return s.conn.WriteMessage(websocket.TextMessage, []byte(`{"activity":{"idle":true}}`))
		},
		"pings": func(s *testSocket) error { return s.conn.WriteMessage(websocket.PingMessage, nil) },
		"pongs": func(s *testSocket) error { return s.conn.WriteMessage(websocket.PongMessage, nil) },
	} {
		s, _ := w.hello(`{"user":"alice"}`)
		for range 4 * frameBurst {
			if send(s) != nil {
				break
			}
		}
		s.closed(4429, string(problem.RateLimited))
		require.NotEmpty(t, name)
	}
}

// TestConnectSilence: a client that does not answer pings is closed, and that is no goodbye.
func TestConnectSilence(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		w.config.Settings.PingInterval = time.Second
		w.connects()
		s, _ := w.hello(`{"user":"alice","grace_ms":0}`)
		s.conn.SetPingHandler(func(string) error { return nil })
		s.closed(4408, string(problem.TimedOut))
		require.NotEqual(t, true, w.do("GET", "/users/alice", "")["left"])
		answers, _ := w.hello(`{"user":"bob"}`)
		for range 6 {
			answers.want(frameTick)
		}
	})
}

// TestConnectLateHello: a client has to say hello soon.
func TestConnectLateHello(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		w.connects()
		begun := time.Now()
		w.greet("").fails(problem.TimedOut)
		require.InDelta(t, helloTimeout.Seconds(), time.Since(begun).Seconds(), 0.5)
	})
}

// heldStore returns a store that reports when it is to record devices, and does so when a test lets it.
func heldStore(inner store.Store) (s store.Store, begun, proceed chan struct{}) {
	begun, proceed = make(chan struct{}, 1), make(chan struct{})
	return &hookedStore{Store: inner, before: func(ctx context.Context, call string) error {
		if call != "RecordDevices" {
			return nil
		}
		begun <- struct{}{}
		select {
		case <-proceed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}, begun, proceed
}

// TestConnectSlowHello: a client that said hello in time is not late because the server is, within limits.
func TestConnectSlowHello(t *testing.T) {
	withWaiting(t, func(_ *testing.T, w *waitServer) {
		var begun, proceed chan struct{}
		w.config.Store, begun, proceed = heldStore(w.config.Store)
		w.connects()
		late := w.greet(`{"user":"alice"}`)
		<-begun
		late.fails(problem.Overloaded)
		slow := w.greet(`{"user":"alice"}`)
		<-begun
		time.Sleep(helloTimeout + 100*time.Millisecond)
		close(proceed)
		slow.want(frameWelcome)
	})
}

// TestConnectKeyRemovedDuringHello: a reload is not missed while the frame hello is handled.
func TestConnectKeyRemovedDuringHello(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		authenticator, headers := callers(t)
		other, _ := callers(t)
		var begun, proceed chan struct{}
		w.config.Store, begun, proceed = heldStore(w.config.Store)
		w.config.Auth = authenticator
		w.connects()
		c := w.greet(`{"user":"alice","token":"` + strings.TrimPrefix(headers["all"], "Bearer ") + `"}`)
		<-begun
		w.reload(func(c *Config) { c.Auth = other })
		synctest.Wait() // until the check that follows a reload is done
		close(proceed)
		reloaded := time.Now()
		c.closed(4403, string(problem.Forbidden))
		require.Less(t, time.Since(reloaded), maxSocketPing/2, "before the next check")
	})
}

// TestConnectStoreAway: while the store is away, open connections stay, and new ones are refused.
func TestConnectStoreAway(t *testing.T) {
	var away atomic.Bool
	w := newSocketServerOn(t, &hookedStore{Store: fileStore(t), before: func(_ context.Context, call string) error {
		if call == "RecordDevices" && away.Load() {
			return store.ErrUnavailable
		}
		return nil
	}})
	open, _ := w.hello(`{"user":"alice"}`)
	away.Store(true)
	w.greet(`{"user":"bob"}`).fails(problem.StoreUnavailable)
	open.refuses(problem.StoreUnavailable, `{"leave":{}}`)
	open.quiet()
	away.Store(false)
	open.asks(`{"leave":{}}`, frameOK)
}

// TestConnectFailsWithoutWaiting: the end of a session does not wait for a client that receives nothing.
func TestConnectFailsWithoutWaiting(t *testing.T) {
	w := newSocketServer(t)
	w.hello(`{"user":"alice"}`)
	n := w.session()
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { n.send(make([]byte, 64<<20)) })
	time.Sleep(100 * time.Millisecond) // until the buffers of the connection are full
	ended := make(chan struct{})
	go func() {
		n.ended(connections.Closed)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(transport.WriteTimeout / 2):
		t.Error("it waits")
	}
}
