package transport

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// recorder is a handler that keeps what it gets.
type recorder struct {
	socket   *Socket
	room     int // bytes that can be reserved
	released int

	mu       sync.Mutex
	received int
	texts    []string
	faults   []Fault
}

func (r *recorder) Received() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received++
}

func (r *recorder) Message(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, string(text))
}

func (r *recorder) Fault(f Fault) {
	r.mu.Lock()
	r.faults = append(r.faults, f)
	r.mu.Unlock()
	r.socket.Close(4400, "fault")
}

func (r *recorder) Reserve(bytes int) bool {
	if r.room -= bytes; r.room < 0 {
		r.socket.Close(4503, "overloaded")
		return false
	}
	return true
}

func (r *recorder) Release() { r.released++ }

// served is a socket that is served, and its client.
type served struct {
	*recorder
	client *websocket.Conn
	ending chan Ending
}

func serve(t *testing.T, limits SocketLimits) *served {
	t.Helper()
	s := &served{recorder: &recorder{room: 1 << 20}, ending: make(chan Ending, 1)}
	upgrader, upgraded := NewSocketUpgrader(), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsUpgrade(r) || !IsSupportedVersion(r) || CheckUpgrade(r) != nil {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		socket, err := upgrader.Upgrade(w, r, nil, limits)
		if err != nil {
			s.ending <- Broken
			return
		}
		s.socket = socket
		close(upgraded)
		go func() { s.ending <- socket.Serve(s) }()
	}))
	t.Cleanup(server.Close)
	client, response, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	t.Cleanup(func() { _ = client.Close() })
	s.client = client
	<-upgraded
	return s
}

func limits() SocketLimits {
	return SocketLimits{Message: 4000, MessageTime: time.Minute, PerSecond: 100, Burst: 100}
}

// closedBy reads until the close frame and returns its code.
func (s *served) closedBy(t *testing.T) int {
	t.Helper()
	for {
		_, _, err := s.client.ReadMessage()
		if err == nil {
			continue
		}
		closed, ok := errors.AsType[*websocket.CloseError](err)
		require.True(t, ok, "%v", err)
		_ = s.client.Close()
		return closed.Code
	}
}

func TestSocketCarriesTexts(t *testing.T) {
	s := serve(t, limits())
	for _, text := range []string{"", "a", strings.Repeat("x", 4000)} {
		require.NoError(t, s.client.WriteMessage(websocket.TextMessage, []byte(text)))
	}
	require.NoError(t, s.client.WriteMessage(websocket.PingMessage, nil))
	require.NoError(t, s.client.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(3000, "")))
	require.Equal(t, 3000, s.closedBy(t))
	require.Equal(t, Gone, <-s.ending)
	require.Equal(t, 3000, s.socket.Code())
	require.Equal(t, []string{"", "a", strings.Repeat("x", 4000)}, s.texts)
	require.Equal(t, 4, s.received)
	require.Equal(t, 3, s.released)
}

func TestSocketFaults(t *testing.T) {
	for name, c := range map[string]struct {
		limits SocketLimits
		send   func(*websocket.Conn) error
		want   Fault
	}{
		"binary": {
			limits(), func(c *websocket.Conn) error { return c.WriteMessage(websocket.BinaryMessage, nil) },
			FaultBinary,
		},
		"large": {
			limits(),
			func(c *websocket.Conn) error { return c.WriteMessage(websocket.TextMessage, make([]byte, 4001)) },
			FaultLarge,
		},
		"flood": {
			SocketLimits{Message: 10, MessageTime: time.Minute, PerSecond: 1, Burst: 1},
			func(c *websocket.Conn) error {
				return errors.Join(c.WriteMessage(websocket.PongMessage, nil),
					c.WriteMessage(websocket.PongMessage, nil))
			},
			FaultFlood,
		},
		"slow": {
			SocketLimits{Message: 10, MessageTime: time.Millisecond, PerSecond: 100, Burst: 100},
			func(c *websocket.Conn) error {
				_, err := c.NetConn().Write([]byte{0x81, 0x82, 1, 2, 3, 4, 'x'})
				return err
			},
			FaultSlow,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.limits)
			require.NoError(t, c.send(s.client))
			require.Equal(t, 4400, s.closedBy(t))
			require.Equal(t, Closed, <-s.ending)
			require.Equal(t, []Fault{c.want}, s.faults)
			require.Empty(t, s.texts)
		})
	}
}

func TestSocketReservesMemory(t *testing.T) {
	s := serve(t, SocketLimits{Message: 1 << 16, MessageTime: time.Minute, PerSecond: 100, Burst: 100})
	s.room = 5000
	require.NoError(t, s.client.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("x", 2000))))
	require.NoError(t, s.client.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("x", 60_000))))
	require.Equal(t, 4503, s.closedBy(t))
	require.Equal(t, Closed, <-s.ending)
	require.Len(t, s.texts, 1)
}

// TestSocketSlowReader: a client that takes nothing is noticed by the write that it does not take.
func TestSocketSlowReader(t *testing.T) {
	s := serve(t, limits())
	require.Eventually(t, func() bool {
		err := s.socket.Send(make([]byte, 1<<20), 10*time.Millisecond)
		require.True(t, err == nil || IsSlow(err), "%v", err)
		return err != nil
	}, time.Minute, time.Millisecond)
	require.True(t, s.socket.Close(4408, "timed_out"))
	require.False(t, s.socket.Close(4500, "again"))
	require.Equal(t, Closed, <-s.ending)
	require.Equal(t, 4408, s.socket.Code())
}

// TestSocketCloses: the peer gets the close frame although it is still sending.
func TestSocketCloses(t *testing.T) {
	s := serve(t, limits())
	require.NoError(t, s.client.WriteMessage(websocket.TextMessage, make([]byte, 1<<20)))
	require.Equal(t, 4400, s.closedBy(t))
	require.Equal(t, Closed, <-s.ending)
	require.Error(t, s.socket.Send([]byte("late"), time.Second))
	require.Error(t, s.socket.Ping())
}

func TestSocketBreaks(t *testing.T) {
	s := serve(t, limits())
	require.NoError(t, s.client.NetConn().Close())
	require.Equal(t, Gone, <-s.ending)
	require.Equal(t, CodeBroken, s.socket.Code())
}

// panicking is a handler with a defect.
type panicking struct{ *recorder }

func (panicking) Received() { panic("a defect") }

// TestSocketPanics: a defect of the handler leaves no connection open.
func TestSocketPanics(t *testing.T) {
	ended := make(chan any, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		socket, err := NewSocketUpgrader().Upgrade(w, r, nil, limits())
		if err != nil {
			ended <- err
			return
		}
		go func() {
			defer func() { ended <- recover() }()
			socket.Serve(panicking{&recorder{socket: socket}})
		}()
	}))
	defer server.Close()
	client, response, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	defer client.Close()
	require.NoError(t, client.WriteMessage(websocket.TextMessage, []byte("{}")))
	require.Equal(t, "a defect", <-ended)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
	_, _, err = client.ReadMessage()
	require.False(t, IsSlow(err), "the connection is still open")
}

func TestEndings(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Ending
		code int
	}{
		{&websocket.CloseError{Code: 1001}, Gone, 1001},
		{io.EOF, Gone, CodeBroken},
		{io.ErrUnexpectedEOF, Gone, CodeBroken},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Gone, CodeBroken},
		{&net.OpError{Op: "read", Err: syscall.ETIMEDOUT}, Lost, CodeBroken},
		{&net.OpError{Op: "read", Err: syscall.EHOSTUNREACH}, Lost, CodeBroken},
		{net.ErrClosed, Lost, CodeBroken},
		{errors.New("websocket: bad MASK"), Broken, CodeProtocol},
		{errBudget, Broken, CodeProtocol},
	} {
		ending, code := endingOf(c.err)
		require.Equal(t, c.want, ending, c.err)
		require.Equal(t, c.code, code, c.err)
	}
}
