package kit

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
)

// PipeListener is a listener of in-memory connections, whose deadlines use the clock of the test.
type PipeListener struct {
	Conns  chan net.Conn
	Closed chan struct{}
}

func (p *PipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.Conns:
		return conn, nil
	case <-p.Closed:
		return nil, net.ErrClosed
	}
}

func (p *PipeListener) Close() error {
	close(p.Closed)
	return nil
}

func (p *PipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Run runs the tests of a package and ends the process.
func Run(m *testing.M) {
	testenv.WaitInParallel()
	testenv.LimitWalks(100)
	os.Exit(m.Run())
}

// Now is the server's time when a test starts.
const Now lastseen.Instant = 1_795_176_000_000

// ClockFrom returns a clock that begins at a time and goes on from there: whether tokens of tests are valid does not
// depend on the date.
func ClockFrom(start lastseen.Instant) func() time.Time {
	began := time.Now()
	return func() time.Time { return time.UnixMilli(int64(start)).Add(time.Since(began)) }
}

// Bounds for what happens soon.
const (
	Eventually = time.Minute
	Tick       = 5 * time.Millisecond
)

// ServeOver has a server serve connections until the test ends.
func ServeOver(t *testing.T, conns chan net.Conn, server *http.Server) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(&PipeListener{conns, make(chan struct{})}) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

// PendingPoll is a poll that waits.
type PendingPoll struct {
	T     *testing.T
	Conn  net.Conn
	Began time.Time
}

// End returns the response, and how long the poll took.
func (p PendingPoll) End() (map[string]any, time.Duration) {
	p.T.Helper()
	response, err := http.ReadResponse(bufio.NewReader(p.Conn), nil) //nolint:bodyclose // ResponseOf does it
	require.NoError(p.T, err)
	took := time.Since(p.Began)
	r := ResponseOf(p.T, response)
	require.NoError(p.T, p.Conn.Close())
	body := r.JSON(p.T)
	body["status"] = response.StatusCode
	body["connection"] = response.Header.Get("Connection") + map[bool]string{true: "close"}[response.Close]
	return body, took
}

// Background runs jobs until the test ends.
func Background(t testing.TB, jobs ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, job := range jobs {
		running.Go(func() { job(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// Happens waits until a condition is true, and reports whether it is.
func Happens(condition func() bool) bool {
	for deadline := time.Now().Add(Eventually); !condition(); time.Sleep(Tick) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// Await waits until a condition is true. It is for the goroutine of the test: the condition can fail the test.
func Await(t testing.TB, condition func() bool, why ...any) {
	t.Helper()
	if !Happens(condition) {
		require.Fail(t, "it does not happen", why...)
	}
}

// Locked reads something under a lock.
func Locked[T any](mu sync.Locker, read func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return read()
}
