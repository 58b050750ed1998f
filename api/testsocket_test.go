package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// newSocketServer serves WebSockets on a store whose changes are followed.
func newSocketServer(t *testing.T, changes ...func(*Config)) *testServer {
	t.Helper()
	return newSocketServerOn(t, fileStore(t), changes...)
}

func newSocketServerOn(t *testing.T, s store.Store, changes ...func(*Config)) *testServer {
	t.Helper()
	heard := make(chan struct{})
	listened := listenedStore{s, sync.OnceFunc(func() { close(heard) })}
	w := newTestServer(t, s, append([]func(*Config){live(listened), held(t, s)}, changes...)...)
	background(t, w.config.Shared.Listen)
	await(t, func() bool {
		_ = s.Signal(t.Context(), store.Signal{Kind: signalProbe, Namespace: "chat", User: "alice"})
		select {
		case <-heard:
			return true
		default:
			return false
		}
	}, "the server does not listen")
	return w
}

// listenedStore is a store that reports when it has begun to listen.
type listenedStore struct {
	store.Store
	listens func()
}

func (s listenedStore) Unwrap() store.Store { return s.Store }

func (s listenedStore) Listen(ctx context.Context, receive func(store.Signal)) {
	s.Store.Listen(ctx, func(signal store.Signal) {
		if signal.Kind == signalProbe {
			s.listens()
		}
		receive(signal)
	})
}

// signalProbe is the kind of the signals by which [newSocketServerOn] notices that the server listens.
const signalProbe = "probe"

// held has a registry of connections run until the test ends.
func held(t *testing.T, s store.Store) func(*Config) {
	return func(c *Config) {
		settings := connections.Settings{Thresholds: c.Settings.Thresholds, PingInterval: c.Settings.PingInterval}
		c.Connections = connections.New(connections.Options{
			Store: s, Settings: func(string) connections.Settings { return settings }, Logger: c.Logger, MaxUser: 4,
		})
		background(t, c.Connections.Run)
	}
}

// testSocket is a WebSocket as a client has it.
type testSocket struct {
	t    *testing.T
	conn *websocket.Conn
}

// dialSocket opens a WebSocket; headers are "Name: value".
func (w *testServer) dialSocket(namespace string, headers ...string) *testSocket {
	w.t.Helper()
	conn, err := w.tryDial(namespace, headers...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return &testSocket{w.t, conn}
}

func (w *testServer) tryDial(namespace string, headers ...string) (*websocket.Conn, error) {
	header := http.Header{}
	addHeaders(header, headers)
	dialer := websocket.Dialer{HandshakeTimeout: eventually}
	conn, response, err := dialer.Dial(w.socketURL(namespace), header)
	if response != nil {
		_ = response.Body.Close()
	}
	return conn, err
}

func (w *testServer) socketURL(namespace string) string {
	return "ws" + strings.TrimPrefix(w.url, "http") + "/v1/namespaces/" + namespace + "/connect"
}

// refused asks for a WebSocket, which must fail with a code before the upgrade.
func (w *testServer) refused(want problem.Code, headers ...string) {
	w.t.Helper()
	w.fails(want, "GET", "/chat/connect", "", upgradeHeaders(headers...)...)
}

// hello opens a WebSocket in the namespace chat and sends the frame hello with a content. It returns the content of
// welcome.
func (w *testServer) hello(content string, headers ...string) (*testSocket, map[string]any) {
	w.t.Helper()
	checkFrame(w.t, "client", []byte(`{"hello":`+content+`}`))
	s := w.greet(content, headers...)
	return s, s.want(frameWelcome)
}

// greet is hello without the response.
func (w *testServer) greet(content string, headers ...string) *testSocket {
	w.t.Helper()
	s := w.dialSocket("chat", headers...)
	s.send(`{"hello":` + content + `}`)
	return s
}

// session returns the only session of a server.
func (w *testServer) session() *session { return w.config.Shared.sockets.all()[0] }

// awaitSockets waits until a number of WebSockets are open.
func (w *testServer) awaitSockets(n int) {
	w.t.Helper()
	await(w.t, func() bool { return w.config.Shared.WebSockets() == n })
}

// awaitAlice waits until a member of the presence of alice has a value.
func (w *testServer) awaitAlice(member string, want any) {
	w.t.Helper()
	await(w.t, func() bool { return w.get("/chat/users/alice")[member] == want })
}

// quiet checks that nothing but ticks came before the response to a frame.
func (s *testSocket) quiet() {
	s.t.Helper()
	s.asks(`{"activity":{"idle":false}}`, frameOK)
}

func (s *testSocket) send(text string) {
	s.t.Helper()
	require.NoError(s.t, s.conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// next returns the next frame: its name, its content and its ID.
func (s *testSocket) next() (name string, content map[string]any, id any) {
	s.t.Helper()
	return s.nextBy(time.Now().Add(eventually))
}

// nextBy is next with a deadline. What skips frames passes the same deadline again each time: ticks never end.
func (s *testSocket) nextBy(deadline time.Time) (name string, content map[string]any, id any) {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(deadline))
	kind, text, err := s.conn.ReadMessage()
	require.NoError(s.t, err)
	require.Equal(s.t, websocket.TextMessage, kind)
	require.LessOrEqual(s.t, len(text), maxSent)
	var frame map[string]any
	require.NoError(s.t, json.Unmarshal(text, &frame), "%s", text)
	id = frame["id"]
	delete(frame, "id")
	require.Len(s.t, frame, 1, "%s", text)
	for name, value := range frame {
		checkFrame(s.t, "server", text)
		return name, value.(map[string]any), id
	}
	return "", nil, nil
}

// want returns the content of the next frame that is not a tick, which must have a name.
func (s *testSocket) want(name string) map[string]any {
	s.t.Helper()
	content, _ := s.wantID(name)
	return content
}

func (s *testSocket) wantID(name string) (content map[string]any, id any) {
	s.t.Helper()
	deadline := time.Now().Add(eventually)
	for {
		got, content, id := s.nextBy(deadline)
		if got == frameTick && name != frameTick {
			continue
		}
		require.Equal(s.t, name, got, "%v", content)
		return content, id
	}
}

// asks sends a frame and returns the response to it, which must have a name and the same ID.
func (s *testSocket) asks(frame, name string) map[string]any {
	s.t.Helper()
	frame = strings.TrimSuffix(frame, "}") + `,"id":"q1"}`
	if name != frameProblem {
		checkFrame(s.t, "client", []byte(frame))
	}
	s.send(frame)
	content, id := s.wantID(name)
	require.Equal(s.t, "q1", id)
	return content
}

// asksDespite is asks, but other frames that have a name may come before the response.
func (s *testSocket) asksDespite(frame, name, other string) map[string]any {
	s.t.Helper()
	s.send(strings.TrimSuffix(frame, "}") + `,"id":"q1"}`)
	deadline := time.Now().Add(eventually)
	for {
		got, content, id := s.nextBy(deadline)
		if got == other && id == nil || got == frameTick {
			continue
		}
		require.Equal(s.t, name, got, "%v", content)
		require.Equal(s.t, "q1", id)
		return content
	}
}

// refuses sends a frame that must fail with a code, and returns the detail.
func (s *testSocket) refuses(want problem.Code, frame string) string {
	s.t.Helper()
	return s.problem(want, s.asks(frame, frameProblem))
}

func (s *testSocket) problem(want problem.Code, p map[string]any) string {
	s.t.Helper()
	require.Equal(s.t, string(want), p["code"], "%v", p)
	require.Equal(s.t, "/docs/errors#"+string(want), p["type"])
	require.EqualValues(s.t, want.Type().Status, p["status"])
	require.NotEmpty(s.t, p["request_id"])
	return p["detail"].(string)
}

// fails waits for a problem with a code and the close frame that belongs to it, and returns the detail.
func (s *testSocket) fails(want problem.Code) string {
	s.t.Helper()
	detail := s.problem(want, s.want(frameProblem))
	s.closed(want.CloseCode(), string(want))
	return detail
}

// closed waits for a close frame. Frames before it are discarded.
func (s *testSocket) closed(code int, reason string) {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(eventually)))
	for {
		_, _, err := s.conn.ReadMessage()
		if err == nil {
			continue
		}
		closed, ok := errors.AsType[*websocket.CloseError](err)
		require.True(s.t, ok, "%v", err)
		require.Equal(s.t, code, closed.Code, closed.Text)
		require.Equal(s.t, reason, closed.Text)
		return
	}
}

// eachPair runs a test on two servers that share all data: in one process on the file store, and on one Redis.
func eachPair(t *testing.T, test func(t *testing.T, one, two *testServer)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		s := fileStore(t)
		test(t, newSocketServerOn(t, s), newSocketServerOn(t, s))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		url := redistest.Start(t)
		test(t, newRedisSocketServer(t, url), newRedisSocketServer(t, url))
	})
}

// newRedisSocketServer serves WebSockets on a Redis. It returns once signals of other servers arrive.
func newRedisSocketServer(t *testing.T, url string) *testServer {
	t.Helper()
	s := redisStore(t, url)
	w := newSocketServerOn(t, s)
	await(t, func() bool { return s.SignalStats().Listening })
	return w
}
