package privacy

import (
	"context"
	"net"
	"net/http/httptrace"
	"sync"
	"time"
)

// sentTimes has when the servers of a site handed something to the network. When a client has read it depends on what
// else the processors do, which are the client's, too, here: not so over a network. Its methods may be called by many
// goroutines at once.
type sentTimes struct {
	mu    sync.Mutex
	first map[string]time.Time // by the address of the client; nil before begin
}

// begin forgets all times.
func (s *sentTimes) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = map[string]time.Time{}
}

// since returns when a server first sent something to an address since begin.
func (s *sentTimes) since(address string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first[address]
}

func (s *sentTimes) note(address string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, sent := s.first[address]; !sent && s.first != nil {
		s.first[address] = now
	}
}

// timedListener notes when connections that it accepts are written to.
type timedListener struct {
	net.Listener
	sent *sentTimes
}

// Accept waits for the next connection.
func (l *timedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &timedConn{conn, l.sent}, nil
}

type timedConn struct {
	net.Conn
	sent *sentTimes
}

func (c *timedConn) Write(b []byte) (int, error) {
	c.sent.note(c.RemoteAddr().String())
	return c.Conn.Write(b)
}

// withAddress returns a context for a request, which sets the address of the client's end of its connection.
func withAddress(ctx context.Context, address *string) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(conn httptrace.GotConnInfo) {
		*address = conn.Conn.LocalAddr().String()
	}})
}
