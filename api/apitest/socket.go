package apitest

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// NewGuardedSocketServer is NewGuardedServer for WebSockets.
func NewGuardedSocketServer(t *testing.T, changes ...func(*api.Config)) (*Server, map[string]string) {
	t.Helper()
	authenticator, headers := kit.Callers(t)
	return NewSocketServer(t, append(changes, func(c *api.Config) { c.Auth = authenticator })...), headers
}

// NewSocketServer serves WebSockets on a store whose changes are followed.
func NewSocketServer(t *testing.T, changes ...func(*api.Config)) *Server {
	t.Helper()
	return NewSocketServerOn(t, kit.FileStore(t), changes...)
}

// NewSocketServerOn is [NewSocketServer] with a store.
func NewSocketServerOn(t *testing.T, s store.Store, changes ...func(*api.Config)) *Server {
	t.Helper()
	listening := make(chan struct{})
	listened := kit.ListenedStore{Store: s, Listens: sync.OnceFunc(func() { close(listening) })}
	w := NewServer(t, s, append([]func(*api.Config){WithStoreTime(listened), WithConnections(t, s)}, changes...)...)
	kit.Background(t, w.Config.Shared.Listen)
	kit.Await(t, func() bool {
		_ = s.Signal(t.Context(), store.Signal{Kind: kit.SignalProbe, Namespace: "chat", User: "alice"})
		select {
		case <-listening:
			return true
		default:
			return false
		}
	}, "the server does not listen")
	return w
}

// WithConnections has a registry of connections run until the test ends.
func WithConnections(t *testing.T, s store.Store) func(*api.Config) {
	return func(c *api.Config) {
		settings := connections.Settings{Thresholds: c.Settings.Thresholds, PingInterval: c.Settings.PingInterval}
		c.Connections = connections.New(connections.Options{
			Store: s, Settings: func(string) connections.Settings { return settings }, Logger: c.Logger, MaxUser: 4,
		})
		kit.Background(t, c.Connections.Run)
	}
}

// DialSocket opens a WebSocket; headers are "Name: value".
func (w *Server) DialSocket(namespace string, headers ...string) *kit.Socket {
	w.T.Helper()
	conn, err := w.tryDial(namespace, headers...)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = conn.Close() })
	return &kit.Socket{T: w.T, Conn: conn}
}

func (w *Server) tryDial(namespace string, headers ...string) (*websocket.Conn, error) {
	header := http.Header{}
	kit.AddHeaders(header, headers)
	dialer := websocket.Dialer{HandshakeTimeout: kit.Eventually}
	conn, response, err := dialer.Dial(w.SocketURL(namespace), header)
	if response != nil {
		_ = response.Body.Close()
	}
	return conn, err
}

// SocketURL returns where clients open WebSockets.
func (w *Server) SocketURL(namespace string) string {
	return "ws" + strings.TrimPrefix(w.URL, "http") + "/v1/namespaces/" + namespace + "/connect"
}

// Refused asks for a WebSocket, which must fail with a code before the upgrade.
func (w *Server) Refused(want problem.Code, headers ...string) {
	w.T.Helper()
	w.Fails(want, "GET", "/chat/connect", "", kit.UpgradeHeaders(headers...)...)
}

// Hello opens a WebSocket in the namespace chat and sends the frame hello with a content. It returns the content of
// welcome.
func (w *Server) Hello(content string, headers ...string) (*kit.Socket, map[string]any) {
	w.T.Helper()
	kit.CheckFrame(w.T, "client", []byte(`{"hello":`+content+`}`))
	s := w.Greet(content, headers...)
	return s, s.Want("welcome")
}

// Greet is Hello without the response.
func (w *Server) Greet(content string, headers ...string) *kit.Socket {
	w.T.Helper()
	s := w.DialSocket("chat", headers...)
	s.Send(`{"hello":` + content + `}`)
	return s
}

// AwaitSockets waits until a number of WebSockets are open.
func (w *Server) AwaitSockets(n int) {
	w.T.Helper()
	kit.Await(w.T, func() bool { return w.Config.Shared.WebSockets() == n })
}

// AwaitAlice waits until a member of the presence of alice has a value.
func (w *Server) AwaitAlice(member string, want any) {
	w.T.Helper()
	kit.Await(w.T, func() bool { return w.Get("/chat/users/alice")[member] == want })
}

// EachPair runs a test on two servers that share all data: in one process on the file store, and on one Redis.
func EachPair(t *testing.T, test func(t *testing.T, one, two *Server)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		s := kit.FileStore(t)
		test(t, NewSocketServerOn(t, s), NewSocketServerOn(t, s))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		url := redistest.Start(t)
		test(t, NewRedisSocketServer(t, url), NewRedisSocketServer(t, url))
	})
}

// NewRedisSocketServer serves WebSockets on a Redis. It returns once signals of other servers arrive.
func NewRedisSocketServer(t *testing.T, url string) *Server {
	t.Helper()
	s := kit.RedisStore(t, url)
	w := NewSocketServerOn(t, s)
	kit.Await(t, func() bool { return s.SignalStats().Listening })
	return w
}
