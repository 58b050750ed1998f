package api

import (
	linked "container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// LimitConnections returns a listener for the server that keeps at most so many connections open. When all are taken,
// a new one replaces the connection that has waited longest for a request, as clients have to expect of an idle one.
// If there is none, because a request is in progress on each, the new one is closed at once: a client or balancer
// sees that, and turns to another server, while it could not tell a connection that waits from a slow answer.
// It replaces the server's ConnState.
func LimitConnections(server *http.Server, listener net.Listener, most int, logger *slog.Logger) net.Listener {
	l := &limitedListener{Listener: listener, most: most, log: newSummary(logger)}
	server.ConnState = l.changed
	return l
}

type limitedListener struct {
	net.Listener
	most int
	log  *summary

	mu      sync.Mutex
	open    int
	waiting linked.List // of *limitedConn, in the order in which they began to wait
}

// Accept returns the next connection that there is room for.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.makeRoom() {
			return &limitedConn{Conn: conn, listener: l}, nil
		}
		_ = conn.Close() // nobody has used it
	}
}

// makeRoom reports whether there is room for another connection, and counts it if so.
func (l *limitedListener) makeRoom() bool {
	l.mu.Lock()
	if l.open < l.most {
		l.open++
		l.mu.Unlock()
		return true
	}
	oldest := l.waiting.Front()
	l.mu.Unlock()
	if oldest == nil {
		l.log.log(slog.LevelError, "connections refused: there are as many as allowed, with a request on each", "max", l.most)
		return false
	}
	l.log.log(slog.LevelWarn, "idle connections closed: there are as many as allowed", "max", l.most)
	_ = oldest.Value.(*limitedConn).Close() // its server goroutine notices
	return l.makeRoom()
}

// changed notes that the server is about to wait on a connection, or does not any more.
func (l *limitedListener) changed(conn net.Conn, state http.ConnState) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopWaiting(c)
	if (state == http.StateNew || state == http.StateIdle) && !c.closed {
		c.waits = l.waiting.PushBack(c)
	}
}

// stopWaiting takes a connection out of those that wait. The caller holds the mutex.
func (l *limitedListener) stopWaiting(c *limitedConn) {
	if c.waits != nil {
		l.waiting.Remove(c.waits)
		c.waits = nil
	}
}

// limitedConn is a connection that counts until it is closed. Its fields belong to the mutex of the listener.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	closed   bool
	waits    *linked.Element // among those that wait; nil if it does not
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.stopWaiting(c)
	if !c.closed {
		c.closed = true
		c.listener.open--
	}
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what is sent, so that the server can still read what a client sends meanwhile.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
