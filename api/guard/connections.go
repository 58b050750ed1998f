package guard

import (
	linked "container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen/api/telemetry"
)

// LimitConnections returns a listener for the server that keeps at most limit connections open. When the limit is
// reached, a new connection replaces the one that has waited longest for a request, as clients must expect of an idle
// connection. If each has a request in progress, the new one is closed at once: a client or load balancer then tries
// another server, whereas a waiting connection would look like a slow response. It replaces the server's ConnState. The
// registerer of metrics can be nil.
func LimitConnections(server *http.Server, listener net.Listener, limit int, logger *slog.Logger,
	metrics prometheus.Registerer,
) net.Listener {
	l := &limitedListener{
		Listener: listener, limit: limit, log: telemetry.NewThrottle(logger, 1),
		accepted: make(chan net.Conn, min(limit, maxAccepted)), failed: make(chan error), closed: make(chan struct{}),
	}
	l.export(promauto.With(metrics))
	server.ConnState = l.setState
	go l.accept()
	return l
}

// maxAccepted is the number of connections that wait to be served. The operating system drops those beyond a limit of
// its own, often 4,096, and their clients try again only after seconds.
const maxAccepted = 1 << 14

type limitedListener struct {
	net.Listener
	limit int
	log   *telemetry.Throttle

	accepted chan net.Conn // within the limit, that are not served yet
	failed   chan error    // of accepting
	closed   chan struct{}
	closing  sync.Once

	refused prometheus.Counter

	mu   sync.Mutex
	open int
	idle linked.List // of *limitedConn without a request, those that have waited longest first
}

// export registers metrics of the connections.
func (l *limitedListener) export(register promauto.Factory) {
	l.refused = register.NewCounter(prometheus.CounterOpts{
		Name: "lastseen_http_connections_refused_total",
		Help: "Connections refused because the maximum was reached, with a request on each.",
	})
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_http_connections", Help: "Client connections that are open.",
	}, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(l.open)
	})
}

// Accept returns the next connection within the limit. It lets all goroutines run that can: what has begun comes before
// new connections. Otherwise thousands of clients that connect at once would all wait for each other.
func (l *limitedListener) Accept() (net.Conn, error) {
	runtime.Gosched()
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-l.accepted:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// accept accepts connections until the listener is closed, and closes those beyond the limit.
func (l *limitedListener) accept() {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case err != nil:
			select {
			case l.failed <- err: // the server calls Accept again when it is worth it
			case <-l.closed:
				l.closeAccepted()
				return
			}
		case l.makeRoom():
			limited := &limitedConn{Conn: conn, listener: l}
			select {
			case l.accepted <- limited:
			case <-l.closed:
				_ = limited.Close() // it was not used
			}
		default:
			l.refused.Inc()
			_ = conn.Close() // it was not used
		}
	}
}

// Close closes the listener, and the connections that nobody serves yet.
func (l *limitedListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *limitedListener) closeAccepted() {
	for {
		select {
		case conn := <-l.accepted:
			_ = conn.Close() // it was not used
		default:
			return
		}
	}
}

// makeRoom reports whether there is room for another connection, and counts it if so.
func (l *limitedListener) makeRoom() bool {
	l.mu.Lock()
	if l.open < l.limit {
		l.open++
		l.mu.Unlock()
		return true
	}
	oldest := l.idle.Front()
	l.mu.Unlock()
	maximum := slog.Int("max", l.limit)
	if oldest == nil {
		const message = "connections refused: the maximum is reached, with a request on each"
		l.log.Log(slog.LevelError, message, message, maximum)
		return false
	}
	const message = "idle connections closed: the maximum is reached"
	l.log.Log(slog.LevelWarn, message, message, maximum)
	_ = oldest.Value.(*limitedConn).Close() // its server goroutine notices
	return l.makeRoom()
}

// setState notes whether the server waits for a request on a connection.
func (l *limitedListener) setState(conn net.Conn, state http.ConnState) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeIdle(c)
	if (state == http.StateNew || state == http.StateIdle) && !c.closed {
		c.idle = l.idle.PushBack(c)
	}
}

// removeIdle removes a connection from the idle ones. The caller holds the mutex.
func (l *limitedListener) removeIdle(c *limitedConn) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// limitedConn is a connection that counts until it is closed. The mutex of the listener guards its fields.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	closed   bool
	idle     *linked.Element // nil while a request is in progress
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.removeIdle(c)
	if !c.closed {
		c.closed = true
		c.listener.open--
	}
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending side, so that the server can still read what a client sends.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
