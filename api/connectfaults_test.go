package api

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/stream"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// TestConnectFrameErrors: errors of frames after hello.
func TestConnectFrameErrors(t *testing.T) {
	w := newSocketServer(t)
	s, _ := w.hello(`{"user":"alice"}`)
	s.refuses(codeUnknownFrame, `{"wave":{}}`)
	s.refuses(codeUnknownFrame, `{"hello":{}}`)
	s.refuses(codeInvalidParameter, `{"activity":{}}`)
	s.refuses(codeInvalidJSON, `{"activity":{"idle":"yes"}}`)
	s.refuses(codeInvalidJSON, `{"activity":true}`)
	s.refuses(codeUnknownField, `{"leave":{"at":1}}`)
	watcher, _ := w.hello(`{}`)
	watcher.refuses(codeInvalidParameter, `{"activity":{"idle":true}}`)
	watcher.refuses(codeInvalidParameter, `{"leave":{}}`)
	s.asks(`{"activity":{"idle":false}}`, frameOK)
}

// TestConnectBadFrames: frames that end the connection. The close code and the problem say why.
func TestConnectBadFrames(t *testing.T) {
	w := newSocketServer(t)
	for text, want := range map[string]code{
		``: codeInvalidJSON, `{`: codeInvalidJSON, `[]`: codeInvalidJSON, `{}`: codeInvalidJSON,
		`null`:     codeInvalidJSON,
		`{"id":1}`: codeInvalidJSON, `{"hello":{},"watch":{}}`: codeInvalidJSON, `{"hello":{}} {}`: codeInvalidJSON,
		`{"hello":{},"hello":{}}`: codeInvalidJSON, `{"hello":{},"id":{}}`: codeInvalidJSON,
		`{"hello":{},"id":"` + strings.Repeat("x", maxFrameID) + `"}`: codeInvalidJSON,
		`{"hello":{"user":"a","user":"b"}}`:                           codeInvalidJSON,
		`{"hello":{"user":"\ud800"}}`:                                 codeInvalidJSON,
		"{\"hello\":{\"user\":\"\xff\"}}":                             codeInvalidJSON,
		`{"hello":1}`:                                                 codeInvalidJSON,
		`{"hello":{"user":1}}`:                                        codeInvalidJSON,
		`{"watch":{}}`:                                                codeUnknownFrame,
		`{"Hello":{}}`:                                                codeUnknownFrame,
		`{"hello":{"User":"alice"}}`:                                  codeUnknownField,
		`{"hello":{"user":""}}`:                                       codeInvalidUser,
		`{"hello":{"user":"alice","grace_ms":60001}}`:                 codeInvalidDuration,
		`{"hello":{"user":"alice","grace_ms":-1}}`:                    codeInvalidDuration,
		`{"hello":{"user":"alice","device":{"id":"\u0000"}}}`:         codeInvalidDevice,
		`{"hello":{"user":"alice","device":{"kind":"fridge"}}}`:       codeInvalidDevice,
		`{"hello":{"device":{"id":"a"}}}`:                             codeInvalidParameter,
		`{"hello":{"cursor":"x"}}`:                                    codeInvalidParameter,
		`{"hello":{"watch":{"users":["a"],"everyone":true}}}`:         codeInvalidParameter,
		`{"hello":{"watch":{"users":[""]}}}`:                          codeInvalidUser,
		strings.Repeat("[", maxHello):                                 codeInvalidJSON,
		`{"hello":{"token":"` + strings.Repeat("x", maxHello) + `"}}`: codeBodyTooLarge,
	} {
		s := w.dialSocket("chat")
		s.send(text)
		detail := s.fails(want)
		require.Less(t, len(detail), 400, "%.60s", text)
	}
}

// TestFrameSchemas: the schemas refuse what the server refuses.
func TestFrameSchemas(t *testing.T) {
	for _, frame := range []string{
		`{"hello":{"user":""}}`, `{"hello":{"users":[]}}`, `{"hello":{"grace_ms":60001}}`, `{"hello":{},"id":{}}`,
		`{"hello":{"device":{"kind":"fridge"}}}`, `{"activity":{}}`, `{"token":{}}`, `{"leave":{"at":1}}`,
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
	s.fails(codeBodyTooLarge)
	s, _ = w.hello(`{}`)
	s.send(strings.Repeat("x", 1<<20))
	s.fails(codeBodyTooLarge)
	s, _ = w.hello(`{}`)
	require.NoError(t, s.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"watch":{}}`)))
	s.fails(codeInvalidJSON)
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
		s.closed(4429, string(codeRateLimited))
		require.NotEmpty(t, name)
	}
}

// TestConnectSilence: a client that does not answer pings is closed, and that is no goodbye.
func TestConnectSilence(t *testing.T) {
	w := newSocketServer(t, func(c *Config) { c.Settings.PingInterval = 100 * time.Millisecond })
	s, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	s.conn.SetPingHandler(func(string) error { return nil })
	s.closed(4408, string(codeTimedOut))
	require.Equal(t, "green", w.get("/chat/users/alice")["status"])
	answers, _ := w.hello(`{"user":"bob"}`)
	for range 6 {
		answers.want(frameTick)
	}
}

// TestConnectLateHello: a client has to say hello soon.
func TestConnectLateHello(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	s := w.dialSocket("chat")
	s.fails(codeTimedOut)
}

// heldStore is a store that records no devices until a test lets it.
type heldStore struct {
	store.Store
	begun, proceed chan struct{}
}

func newHeldStore(t *testing.T) *heldStore {
	t.Helper()
	return &heldStore{fileStore(t), make(chan struct{}, 1), make(chan struct{})}
}

func (s *heldStore) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	s.begun <- struct{}{}
	select {
	case <-s.proceed:
		return s.Store.RecordDevices(ctx, namespace, window, batch)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestConnectSlowHello: a client that said hello in time is not late because the server is, within limits.
func TestConnectSlowHello(t *testing.T) {
	t.Parallel()
	s := newHeldStore(t)
	w := newSocketServerOn(t, s)
	hello := func() *testSocket {
		c := w.dialSocket("chat")
		c.send(`{"hello":{"user":"alice"}}`)
		<-s.begun
		return c
	}
	late := hello()
	w.config.Shared.sockets.all()[0].wake()
	late.fails(codeOverloaded)
	slow := hello()
	time.Sleep(helloTimeout + 100*time.Millisecond)
	close(s.proceed)
	slow.want(frameWelcome)
}

// TestConnectKeyRemovedDuringHello: a reload is not missed while the frame hello is handled.
func TestConnectKeyRemovedDuringHello(t *testing.T) {
	authenticator, headers := callers(t)
	other, _ := callers(t)
	s := newHeldStore(t)
	w := newSocketServerOn(t, s, func(c *Config) { c.Auth = authenticator })
	c := w.dialSocket("chat", "Authorization: "+headers["all"])
	c.send(`{"hello":{"user":"alice"}}`)
	<-s.begun
	w.reload(func(c *Config) { c.Auth = other })
	time.Sleep(100 * time.Millisecond) // for the check that follows a reload
	close(s.proceed)
	require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(maxSocketPing/2))) // before the next check
	for {
		if _, _, err := c.conn.ReadMessage(); err != nil {
			require.True(t, websocket.IsCloseError(err, 4403), "%v", err)
			return
		}
	}
}

// awayStore is a store that is away when a test says so.
type awayStore struct {
	store.Store
	away atomic.Bool
}

func (s *awayStore) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	if s.away.Load() {
		return nil, store.ErrUnavailable
	}
	return s.Store.RecordDevices(ctx, namespace, window, batch)
}

// TestConnectStoreAway: while the store is away, open connections stay, and new ones are refused.
func TestConnectStoreAway(t *testing.T) {
	s := &awayStore{Store: fileStore(t)}
	w := newSocketServerOn(t, s)
	open, _ := w.hello(`{"user":"alice"}`)
	s.away.Store(true)
	refused := w.dialSocket("chat")
	refused.send(`{"hello":{"user":"bob"}}`)
	refused.fails(codeStoreUnavailable)
	open.refuses(codeStoreUnavailable, `{"leave":{}}`)
	open.asks(`{"activity":{"idle":true}}`, frameOK)
	s.away.Store(false)
	open.asks(`{"leave":{}}`, frameOK)
}

// TestConnectFailsWithoutWaiting: the end of a session does not wait for a client that receives nothing.
func TestConnectFailsWithoutWaiting(t *testing.T) {
	w := newSocketServer(t)
	w.hello(`{"user":"alice"}`)
	n := w.config.Shared.sockets.all()[0]
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
	case <-time.After(stream.WriteTimeout / 2):
		t.Error("it waits")
	}
}
