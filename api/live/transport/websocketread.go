package transport

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

// SocketHandler handles what a socket receives. Its methods are called one after the other.
type SocketHandler interface {
	// Received is called for each message and each control frame except the last, which closes the connection.
	Received()
	// Message is called for each text, in its own goroutine. The text is valid until it returns.
	Message(text []byte)
	// Fault is called when the peer breaks a limit. It calls Close.
	Fault(Fault)
	// Reserve is called before a message takes more memory: that many bytes, besides those reserved before. If it
	// returns false, it has called Close. Release is called when the message is not used any longer.
	Reserve(bytes int) bool
	Release()
}

// Fault is a limit that a peer broke.
type Fault int

// The faults.
const (
	FaultBinary Fault = iota // a message that is not a text
	FaultLarge               // a message that is too large
	FaultFlood               // too many frames
	FaultSlow                // a message that is not complete in time
)

// Ending is how a connection ended.
type Ending int

// The endings.
const (
	Closed Ending = iota // Close was called
	Gone                 // the peer closed the connection, or it broke
	Lost                 // the network says that the peer cannot be reached
	Broken               // the peer broke the protocol
)

// Codes of close frames.
const (
	CodeNormal   = websocket.CloseNormalClosure
	CodeProtocol = websocket.CloseProtocolError
	CodeBroken   = websocket.CloseAbnormalClosure // the connection ended without a close frame
)

// texts are buffers for messages.
var texts = sync.Pool{New: func() any { b := make([]byte, 0, minText); return &b }}

const (
	minText = 1 << 10 // bytes; more are reserved
	maxText = 8 << 10 // larger buffers are not used again
)

// SetMessageLimit changes the largest size of a message in bytes.
func (s *Socket) SetMessageLimit(bytes int) { s.limits.Message = bytes }

// Serve reads from the connection until it ends, and then closes it. It returns how it ended.
func (s *Socket) Serve(h SocketHandler) Ending {
	defer func() { _ = s.metered.Close() }() // also after a panic
	s.conn.SetPingHandler(func(data string) error {
		if err := s.received(h); err != nil {
			return err
		}
		err := s.conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(WriteTimeout))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})
	s.conn.SetPongHandler(func(string) error { return s.received(h) })
	err := s.read(h)
	ending, code := endingOf(err)
	if s.setCode(code) {
		ending = Closed
	}
	if ending == Broken {
		s.Close(CodeProtocol, "protocol_error") // package websocket has sent a close frame for most violations
	}
	if ending == Closed || ending == Broken {
		s.linger()
	}
	return ending
}

// endingOf returns what an error of reading means.
func endingOf(err error) (Ending, int) {
	closed, isClose := errors.AsType[*websocket.CloseError](err) // also the end of the stream
	_, isNetwork := errors.AsType[net.Error](err)
	switch {
	case isClose:
		return Gone, closed.Code
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return Gone, CodeBroken
	case isNetwork, errors.Is(err, net.ErrClosed):
		return Lost, CodeBroken
	default:
		return Broken, CodeProtocol
	}
}

// errClosing ends reading: Close was called.
var errClosing = errors.New("the connection is being closed")

// read reads messages until the connection ends.
func (s *Socket) read(h SocketHandler) error {
	for {
		kind, message, err := s.conn.NextReader()
		if err != nil {
			return err
		}
		if err := s.received(h); err != nil {
			return err
		}
		if kind != websocket.TextMessage {
			h.Fault(FaultBinary)
			return errClosing
		}
		if err := s.readMessage(message, h); err != nil {
			return err
		}
	}
}

// received notes a frame. It returns an error if there are too many.
func (s *Socket) received(h SocketHandler) error {
	s.metered.budget = s.limits.Message + s.limits.overhead()
	interval := time.Second / time.Duration(s.limits.PerSecond)
	now := time.Since(s.began)
	s.due = max(s.due, now) + interval
	if s.due-now > interval*time.Duration(s.limits.Burst) {
		h.Fault(FaultFlood)
		return errClosing
	}
	h.Received()
	return nil
}

// readMessage reads a message and has it handled.
func (s *Socket) readMessage(from io.Reader, h SocketHandler) error {
	if !s.deadline(s.limits.MessageTime) {
		return errClosing
	}
	buffer := texts.Get().(*[]byte)
	text, err := s.readText((*buffer)[:0], from, h)
	defer func() {
		if *buffer = text; cap(text) <= maxText {
			texts.Put(buffer)
		}
		h.Release()
	}()
	if err != nil {
		return err
	}
	if !s.deadline(0) {
		return errClosing
	}
	handled := make(chan struct{})
	go func() { // on its own stack, since that of the reader would keep the size that it grew to
		defer close(handled)
		h.Message(text)
	}()
	<-handled
	return nil
}

// readText appends a message to a buffer, which grows with what arrives, whatever its length was announced to be.
func (s *Socket) readText(b []byte, from io.Reader, h SocketHandler) ([]byte, error) {
	for {
		if len(b) > s.limits.Message {
			h.Fault(FaultLarge)
			return b, errClosing
		}
		if len(b) == cap(b) {
			size := min(2*cap(b), s.limits.Message+1)
			if !h.Reserve(size) {
				return b, errClosing
			}
			b = append(make([]byte, 0, size), b...)
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			if len(b) > s.limits.Message {
				continue
			}
			return b, nil
		case errors.Is(err, errBudget):
			h.Fault(FaultLarge)
			return b, errClosing
		case IsSlow(err):
			h.Fault(FaultSlow)
			return b, errClosing
		case err != nil:
			return b, err
		}
	}
}

// linger discards what the peer still sends, until it closes the connection, too. After a frame that package websocket
// cannot read beyond, it does not look for the peer's close frame.
func (s *Socket) linger() {
	ignore := func(string) error { return nil }
	s.conn.SetPingHandler(ignore)
	s.conn.SetPongHandler(ignore)
	s.metered.budget = lingerBytes
	var err error
	for err == nil {
		_, _, err = s.conn.NextReader()
	}
	if _, closed := errors.AsType[*websocket.CloseError](err); closed {
		return
	}
	var discarded [512]byte
	for total := 0; total < lingerBytes; {
		n, err := s.metered.Conn.Read(discarded[:])
		if err != nil {
			return
		}
		total += n
	}
}
