//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// The codes with which a server closes a WebSocket.
const (
	closedUser  = websocket.StatusCode(4410)
	closedFlood = websocket.StatusCode(4429)
)

// socketOptions are how a client connects to the namespace chat.
type socketOptions struct {
	url    string // of the server, with http
	hello  object
	deaf   bool // the client does not answer pings
	buffer int  // of the kernel for what arrives, in bytes; 0 for the usual size
}

// object is a JSON object.
type object map[string]any

// device returns the hello of a user's device of a kind.
func device(user, id, kind string) object {
	return object{"user": user, "device": object{"id": id, "kind": kind}}
}

// with returns the object with another field.
func (o object) with(name string, value any) object {
	all := object{name: value}
	for k, v := range o {
		if k != name {
			all[k] = v
		}
	}
	return all
}

// socket is a WebSocket client. It reads in the background and keeps what it gets.
type socket struct {
	conn    *websocket.Conn
	raw     net.Conn
	welcome welcome
	news    chan struct{} // has an element after each frame
	ended   chan struct{} // closed when the connection has ended
	err     error         // why, afterwards

	mu     sync.Mutex
	frames []frame // after the welcome
}

// frame is what a server sends.
type frame struct {
	name     string
	id       string // JSON
	data     json.RawMessage
	received time.Time
}

// welcome is what these tests need of the frame.
type welcome struct {
	Users []presence `json:"users"`
}

// openSocket connects, says hello and waits for the welcome.
func openSocket(ctx context.Context, o socketOptions) (*socket, error) {
	s, err := openUnread(ctx, o)
	if err == nil {
		go s.read()
	}
	return s, err
}

// openUnread is openSocket for a client that reads nothing after the welcome.
func openUnread(ctx context.Context, o socketOptions) (*socket, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	s := &socket{news: make(chan struct{}, 1), ended: make(chan struct{})}
	options := &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: &http.Transport{DialContext: s.dial(o.buffer)}},
		Subprotocols: []string{"lastseen.v1"},
	}
	if o.deaf {
		options.OnPingReceived = func(context.Context, []byte) bool { return false }
	}
	//nolint:bodyclose // package websocket closes it
	conn, response, err := websocket.Dial(ctx, o.url+"/v1/namespaces/chat/connect", options)
	if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
		return nil, refusal(fmt.Sprintf("HTTP %d", response.StatusCode))
	}
	if err != nil {
		return nil, err
	}
	s.conn = conn
	if err := s.greet(ctx, o.hello); err != nil {
		_ = conn.CloseNow() // the error says why
		return nil, err
	}
	return s, nil
}

// dial returns a function that keeps the connection, which a test can break.
func (s *socket) dial(buffer int) func(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if buffer > 0 {
		d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
			return errors.Join(raw.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer)
			}), err)
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		s.raw = conn
		return conn, err
	}
}

// greet says hello and reads the welcome.
func (s *socket) greet(ctx context.Context, hello object) error {
	if err := s.write(ctx, object{"hello": hello}); err != nil {
		return err
	}
	f, err := s.next(ctx)
	if err != nil {
		return err
	}
	if f.name != "welcome" { // a problem, and then the connection is closed
		_, err = s.next(ctx)
		return fmt.Errorf("the first frame is %s: %s: %w", f.name, f.data, err)
	}
	return json.Unmarshal(f.data, &s.welcome)
}

func (s *socket) write(ctx context.Context, o object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.conn.Write(ctx, websocket.MessageText, text)
}

// next reads a frame. Frames of more than 32 KiB are an error.
func (s *socket) next(ctx context.Context) (frame, error) {
	_, text, err := s.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	f := frame{received: time.Now()}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return f, err
	}
	f.id = string(fields["id"])
	delete(fields, "id")
	for f.name, f.data = range fields {
	}
	if len(fields) != 1 {
		return f, fmt.Errorf("a frame without exactly one name: %s", text)
	}
	return f, nil
}

// read keeps frames until the connection ends.
func (s *socket) read() {
	defer close(s.ended)
	for {
		f, err := s.next(context.Background())
		if err != nil {
			s.err = err
			_ = s.conn.CloseNow() // it has ended
			return
		}
		s.mu.Lock()
		s.frames = append(s.frames, f)
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// connect is openSocket that must succeed. The connection ends at the latest when the test does.
func connect(t testing.TB, o socketOptions) *socket {
	t.Helper()
	s, err := openSocket(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.abandon)
	return s
}

// abandon ends the connection without a word.
func (s *socket) abandon() {
	_ = s.conn.CloseNow() // a second time, too
	<-s.ended
}

// close ends the connection with a close frame, as a browser does when its page closes.
func (s *socket) close() { _ = s.conn.Close(websocket.StatusNormalClosure, "") }

// reset ends the connection as a machine does that has lost it.
func (s *socket) reset(t testing.TB) {
	t.Helper()
	require.NoError(t, s.raw.(*net.TCPConn).SetLinger(0))
	require.NoError(t, s.raw.Close())
}

// hangUp ends the TCP connection without a close frame.
func (s *socket) hangUp(t testing.TB) {
	t.Helper()
	require.NoError(t, s.raw.Close())
}

// ask sends a frame and waits for its answer.
func (s *socket) ask(t testing.TB, name string, value object) frame {
	t.Helper()
	id := fmt.Sprintf("%q", fmt.Sprintf("%s at %d", name, time.Now().UnixNano()))
	require.NoError(t, s.write(t.Context(), object{name: value, "id": json.RawMessage(id)}))
	var answer frame
	await(t, "an answer to "+name, func() bool {
		for _, f := range s.received() {
			if f.id == id {
				answer = f
			}
		}
		return answer.name != "" || !s.open()
	})
	require.NotEmpty(t, answer.name, "the connection ended: %v", s.why())
	return answer
}

// received returns the frames after the welcome.
func (s *socket) received() []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames[:len(s.frames):len(s.frames)]
}

// find returns the first frame with a name, if one has arrived.
func (s *socket) find(name string) (f frame, ok bool) {
	for _, f := range s.received() {
		if f.name == name {
			return f, true
		}
	}
	return frame{}, false
}

func (s *socket) open() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// why returns the error with which the connection has ended; nil while it is open.
func (s *socket) why() error {
	if s.open() {
		return nil
	}
	return s.err
}

// awaitEnd waits until the connection has ended, and returns the code of the server's close frame; -1 without one.
func (s *socket) awaitEnd(t testing.TB) websocket.StatusCode {
	t.Helper()
	await(t, "the end of the connection", func() bool { return !s.open() })
	return websocket.CloseStatus(s.err)
}

// endOf names how a connection ended, or why it did not begin.
func endOf(err error) string {
	var refused refusal
	if errors.As(err, &refused) {
		return err.Error()
	}
	if code := websocket.CloseStatus(err); code >= 0 {
		return fmt.Sprint(int(code))
	}
	return "broken"
}
