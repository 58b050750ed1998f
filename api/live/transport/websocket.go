package transport

import (
	"bufio"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Subprotocol is the only subprotocol of a [Socket]. A client that offers none gets none.
const Subprotocol = "lastseen.v1"

const (
	socketReadBuffer  = 128     // bytes; each socket has one, for short frames: a control frame has up to 125
	socketWriteBuffer = 4 << 10 // bytes; in use only during a write

	handshakeTimeout = 10 * time.Second
	closeTimeout     = time.Second     // for a close frame; a peer that does not take it is cut off
	lingerTime       = 5 * time.Second // from the close frame to the end of the connection
	lingerBytes      = 4 << 20         // that are discarded meanwhile
)

// SocketLimits are the limits of what a peer can send.
type SocketLimits struct {
	Message     int           // bytes of a message
	MessageTime time.Duration // from its first frame to its last byte
	PerSecond   int           // frames a second, control frames included
	Burst       int           // frames at once, after a pause
}

// overhead is how many bytes a message can take on the wire besides its text: enough for fragments of 8 bytes or more.
func (l SocketLimits) overhead() int { return l.Message + 1<<10 }

// Socket is a WebSocket that carries texts. Its methods may be called concurrently, except Serve, which one goroutine
// calls, and SetMessageLimit, which only the handler of that goroutine calls.
type Socket struct {
	conn    *websocket.Conn
	metered *meteredConn
	limits  SocketLimits
	began   time.Time
	due     time.Duration // since began: when the frames received so far would have come at the rate allowed

	writing sync.Mutex // held during the write of a text

	mu      sync.Mutex
	closing bool // Close was called
	code    int  // of the close frame, sent or received
}

// IsUpgrade reports whether a request asks for a WebSocket.
func IsUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoAtLeast(1, 1) && websocket.IsWebSocketUpgrade(r)
}

// IsSupportedVersion reports whether a request asks for the version of the protocol that [Upgrade] speaks.
func IsSupportedVersion(r *http.Request) bool {
	return slices.Equal(r.Header["Sec-Websocket-Version"], []string{SocketVersion})
}

// SocketVersion is the version of the protocol: see RFC 6455.
const SocketVersion = "13"

// CheckUpgrade returns an error unless the other parts of a request for a WebSocket are as RFC 6455 demands.
func CheckUpgrade(r *http.Request) error {
	keys := r.Header["Sec-Websocket-Key"]
	if len(keys) != 1 {
		return errors.New("there is not exactly one header Sec-WebSocket-Key")
	}
	key, err := base64.StdEncoding.DecodeString(keys[0])
	switch {
	case err != nil || len(key) != 16:
		return errors.New("the header Sec-WebSocket-Key is not 16 bytes in base64")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return errors.New("the request has a body")
	case strings.Count(strings.Join(r.Header["Sec-Websocket-Protocol"], ","), ",") >= maxProtocols:
		return errors.New("there are too many subprotocols")
	}
	return nil
}

const maxProtocols = 20

// SocketUpgrader upgrades requests to sockets. Use [NewSocketUpgrader].
type SocketUpgrader struct{ upgrader websocket.Upgrader }

// NewSocketUpgrader returns an upgrader, whose sockets share memory for writes.
func NewSocketUpgrader() *SocketUpgrader {
	return &SocketUpgrader{websocket.Upgrader{
		HandshakeTimeout: handshakeTimeout, ReadBufferSize: socketReadBuffer,
		WriteBufferSize: socketWriteBuffer, WriteBufferPool: &sync.Pool{},
		Subprotocols: []string{Subprotocol},
		CheckOrigin:  func(*http.Request) bool { return true },                // the caller has checked it
		Error:        func(http.ResponseWriter, *http.Request, int, error) {}, // the caller responds
	}}
}

// Upgrade takes a connection over from package net/http. The caller has checked the request by [IsUpgrade],
// [IsSupportedVersion] and [CheckUpgrade], and its origin. After an error the connection is closed.
func (u *SocketUpgrader) Upgrade(
	w http.ResponseWriter, r *http.Request, header http.Header, limits SocketLimits,
) (*Socket, error) {
	h := &hijacker{ResponseWriter: w}
	conn, err := u.upgrader.Upgrade(h, r, header)
	if err != nil {
		if h.conn != nil {
			_ = h.conn.Close()
		}
		return nil, err
	}
	h.conn.budget = limits.Message + limits.overhead()
	return &Socket{conn: conn, metered: h.conn, limits: limits, began: time.Now()}, nil
}

// hijacker is a response writer whose connection is metered when it is taken over.
type hijacker struct {
	http.ResponseWriter
	conn *meteredConn
}

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &meteredConn{Conn: conn, budget: socketReadBuffer}
	return h.conn, buffers, nil
}

// meteredConn limits how many bytes a message takes, whatever its frames are: a peer could send empty fragments without
// end. One goroutine reads.
type meteredConn struct {
	net.Conn
	budget int // bytes until the next message or control frame
}

var errBudget = errors.New("the frames of a message take too many bytes")

func (c *meteredConn) Read(b []byte) (int, error) {
	if c.budget <= 0 {
		return 0, errBudget
	}
	n, err := c.Conn.Read(b)
	c.budget -= n
	return n, err
}

// Send sends a text, of valid UTF-8. It returns an error if the peer does not take it within a time; the connection is
// then unusable.
func (s *Socket) Send(text []byte, within time.Duration) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(within)) // always nil
	return s.conn.WriteMessage(websocket.TextMessage, text)
}

// IsSlow reports whether an error of Send means that the peer does not read.
func IsSlow(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// PingText sends a ping and a text of at most 125 bytes in one write. It does not go through package websocket, whose
// control frames and short texts are single writes, too, so that frames do not mix.
func (s *Socket) PingText(text string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	closing := s.closing
	if !closing { // else the shorter deadline of Close counts
		_ = s.metered.SetWriteDeadline(time.Now().Add(WriteTimeout))
	}
	s.mu.Unlock()
	if closing {
		return websocket.ErrCloseSent
	}
	_, err := s.metered.Write(append([]byte{0x89, 0, 0x81, byte(len(text))}, text...))
	return err
}

// Ping sends a ping. The handler receives the peer's pong.
func (s *Socket) Ping() error {
	return s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(WriteTimeout))
}

// Close sends a close frame and begins to end the connection. The reason has at most 123 bytes. Serve returns soon. The
// first call counts; it returns false for others.
func (s *Socket) Close(code int, reason string) bool {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return false
	}
	s.closing, s.code = true, code
	s.mu.Unlock()
	now := time.Now()
	frame := websocket.FormatCloseMessage(code, reason)
	err := s.conn.WriteControl(websocket.CloseMessage, frame, now.Add(closeTimeout))
	if err != nil && !errors.Is(err, websocket.ErrCloseSent) {
		_ = s.metered.Close()
		return true
	}
	// The peer gets the close frame although it may still send: unread data would reset the connection.
	if half, ok := s.metered.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = s.metered.SetReadDeadline(now.Add(lingerTime))
	return true
}

// Code returns the code of the close frame that was sent or received; [CodeBroken] if the connection ended without one.
func (s *Socket) Code() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.code
}

// setCode sets the code, unless Close was called.
func (s *Socket) setCode(code int) (closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.code = code
	}
	return s.closing
}

// deadline sets a deadline for reading; none for 0. It returns false if the connection is being closed.
func (s *Socket) deadline(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = s.metered.SetReadDeadline(at)
	return true
}
