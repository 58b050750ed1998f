package sockettests

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestConnectFrameErrors: errors of frames after hello, which do not end the connection.
func TestConnectFrameErrors(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	user, _ := w.Hello(`{"user":"alice"}`)
	watcher, _ := w.Hello(`{}`)
	many, _ := json.Marshal(strings.Split("u"+strings.Repeat(",u", kit.MaxTypingTo), ","))
	in := strings.Repeat("x", kit.MaxTypingIn)
	for _, c := range []struct {
		s      *kit.Socket
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
		{
			watcher, problem.TooManyItems,
			[]string{`{"watch":{"add":[` + strings.Repeat(`"a",`, kit.MaxLookup) + `"b"]}}`},
		},
	} {
		for _, frame := range c.frames {
			c.s.Refuses(c.want, frame)
		}
	}
	user.Asks(`{"typing":{"to":["bob"],"in":"`+in+`"}}`, "ok")
	most, _ := json.Marshal(strings.Split("u"+strings.Repeat(",u", kit.MaxTypingTo-1), ","))
	user.Asks(fmt.Sprintf(`{"typing":{"to":%s}}`, most), "ok")
	watcher.Asks(`{"watch":{}}`, "ok")
	watcher.Asks(`{"watch":{"add":["alice"]}}`, "changes")
}

// TestConnectBadFrames: frames that end the connection. The close code and the problem say why.
func TestConnectBadFrames(t *testing.T) {
	w := apitest.NewSocketServer(t)
	for want, texts := range map[problem.Code][]string{
		problem.InvalidJSON: {
			``, `{`, `[]`, `{}`, `null`, `{"id":1}`, `{"hello":{},"watch":{}}`, `{"hello":{}} {}`,
			`{"hello":{},"hello":{}}`,
			`{"hello":{},"id":{}}`, `{"hello":{},"id":"` + strings.Repeat("x", kit.MaxFrameID) + `"}`,
			`{"hello":{"user":"a","user":"b"}}`, `{"hello":{"user":"\ud800"}}`, "{\"hello\":{\"user\":\"\xff\"}}",
			`{"hello":1}`, `{"hello":{"user":1}}`, strings.Repeat("[", kit.MaxHello),
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
		problem.BodyTooLarge: {`{"hello":{"token":"` + strings.Repeat("x", kit.MaxHello) + `"}}`},
	} {
		for _, text := range texts {
			s := w.DialSocket("chat")
			s.Send(text)
			require.Less(t, len(s.Fails(want)), 400, "%.60s", text)
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
		require.Error(t, kit.FrameError(t, "client", []byte(frame)), frame)
	}
	for _, frame := range []string{
		`{"welcome":{}}`, `{"changes":{"users":[]}}`, `{"bye":{}}`, `{"problem":{}}`, `{"ok":{"a":1}}`,
		`{"tick":{},"id":1}`,
	} {
		require.Error(t, kit.FrameError(t, "server", []byte(frame)), frame)
	}
}

// TestConnectLargeFrames: after hello, frames can be larger.
func TestConnectLargeFrames(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{}`)
	s.Asks(`{"watch":{`+strings.Repeat(" ", kit.MaxFrame-40)+`}}`, "ok")
	s.Send(strings.Repeat(" ", kit.MaxFrame+1))
	s.Fails(problem.BodyTooLarge)
	s, _ = w.Hello(`{}`)
	s.Send(strings.Repeat("x", 1<<20))
	s.Fails(problem.BodyTooLarge)
	s, _ = w.Hello(`{}`)
	require.NoError(t, s.Conn.WriteMessage(websocket.BinaryMessage, []byte(`{"watch":{}}`)))
	s.Fails(problem.InvalidJSON)
}

// TestConnectLargeFramesWait: each 2 KiB of a frame count as a request of the caller, on all connections. Beyond the
// limit frames wait. Small ones do not count.
func TestConnectLargeFramesWait(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		w.Config.Limits = limit.Limits{Caller: 2} // bursts of 10
		w.Connects()
		one, _ := w.Hello(`{}`)
		two, _ := w.Hello(`{}`)
		begun := time.Now()
		frame := func(n int) string { return `{"watch":{` + strings.Repeat(" ", n*kit.FrameCharge-22) + `}}` }
		for range 15 {
			one.Asks(strings.Replace(frame(1), " ", "", 1), "ok")
		}
		for range 4 { // the upgrades have taken two
			one.Asks(frame(1), "ok")
			two.Asks(frame(1), "ok")
		}
		require.Zero(t, time.Since(begun))
		one.Asks(frame(1), "ok")
		require.Equal(t, 500*time.Millisecond, time.Since(begun))
		two.Asks(frame(16), "ok")
		require.Equal(t, 3*time.Second, time.Since(begun), "at most half of a burst")
		one.Asks(`{"watch":{}}`, "ok")
		require.Equal(t, 3*time.Second, time.Since(begun))
	})
}

// TestConnectFlood: a client that sends too many frames is closed.
func TestConnectFlood(t *testing.T) {
	w := apitest.NewSocketServer(t)
	for name, send := range map[string]func(*kit.Socket) error{
		"frames": func(s *kit.Socket) error {
			return s.Conn.WriteMessage(websocket.TextMessage, []byte(`{"activity":{"idle":true}}`))
		},
		"pings": func(s *kit.Socket) error { return s.Conn.WriteMessage(websocket.PingMessage, nil) },
		"pongs": func(s *kit.Socket) error { return s.Conn.WriteMessage(websocket.PongMessage, nil) },
	} {
		s, _ := w.Hello(`{"user":"alice"}`)
		for range 4 * kit.FrameBurst {
			if send(s) != nil {
				break
			}
		}
		s.Closed(4429, string(problem.RateLimited))
		require.NotEmpty(t, name)
	}
}

// TestConnectSilence: a client that does not answer pings is closed, and that is no leave.
func TestConnectSilence(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		w.Config.Settings.PingInterval = time.Second
		w.Connects()
		s, _ := w.Hello(`{"user":"alice","grace_ms":0}`)
		s.Conn.SetPingHandler(func(string) error { return nil })
		s.Closed(4408, string(problem.TimedOut))
		require.NotEqual(t, true, w.Do("GET", "/users/alice", "")["left"])
		answers, _ := w.Hello(`{"user":"bob"}`)
		for range 6 {
			answers.Want("tick")
		}
	})
}

// TestConnectLateHello: a client has to say hello soon.
func TestConnectLateHello(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		w.Connects()
		begun := time.Now()
		w.Greet("").Fails(problem.TimedOut)
		require.InDelta(t, kit.HelloTimeout.Seconds(), time.Since(begun).Seconds(), 0.5)
	})
}

// heldStore returns a store that reports when it is to record devices, and does so when a test lets it.
func heldStore(inner store.Store) (s store.Store, begun, proceed chan struct{}) {
	begun, proceed = make(chan struct{}, 1), make(chan struct{})
	return &kit.HookedStore{Store: inner, Before: func(ctx context.Context, call string) error {
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
	apitest.InBubble(t, func(_ *testing.T, w *apitest.BubbleServer) {
		var begun, proceed chan struct{}
		w.Config.Store, begun, proceed = heldStore(w.Config.Store)
		w.Connects()
		late := w.Greet(`{"user":"alice"}`)
		<-begun
		late.Fails(problem.Overloaded)
		slow := w.Greet(`{"user":"alice"}`)
		<-begun
		time.Sleep(kit.HelloTimeout + 100*time.Millisecond)
		close(proceed)
		slow.Want("welcome")
	})
}

// TestConnectKeyRemovedDuringHello: a reload is not missed while the frame hello is handled.
func TestConnectKeyRemovedDuringHello(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		authenticator, headers := kit.Callers(t)
		other, _ := kit.Callers(t)
		var begun, proceed chan struct{}
		w.Config.Store, begun, proceed = heldStore(w.Config.Store)
		w.Config.Auth = authenticator
		w.Connects()
		c := w.Greet(`{"user":"alice","token":"` + strings.TrimPrefix(headers["all"], "Bearer ") + `"}`)
		<-begun
		w.Reload(func(c *api.Config) { c.Auth = other })
		synctest.Wait() // until the check that follows a reload is done
		close(proceed)
		reloaded := time.Now()
		c.Closed(4403, string(problem.Forbidden))
		require.Less(t, time.Since(reloaded), kit.MaxSocketPing/2, "before the next check")
	})
}

// TestConnectStoreAway: while the store is away, open connections stay, and new ones are refused.
func TestConnectStoreAway(t *testing.T) {
	var away atomic.Bool
	w := apitest.NewSocketServerOn(t, kit.HookedFileStore(t, func(_ context.Context, call string) error {
		if call == "RecordDevices" && away.Load() {
			return store.ErrUnavailable
		}
		return nil
	}))
	open, _ := w.Hello(`{"user":"alice"}`)
	away.Store(true)
	w.Greet(`{"user":"bob"}`).Fails(problem.StoreUnavailable)
	open.Refuses(problem.StoreUnavailable, `{"leave":{}}`)
	open.Quiet()
	away.Store(false)
	open.Asks(`{"leave":{}}`, "ok")
}
