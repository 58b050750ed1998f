package api

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// waitServer is a server with the usual limits, in a bubble whose clock advances only when every goroutine waits. It
// follows and sweeps the changes of its store.
type waitServer struct {
	t       *testing.T
	config  Config
	handler atomic.Pointer[http.Handler]
	conns   chan net.Conn
	sweep   func() (stop func())
}

// withWaiting runs a test with a server.
func withWaiting(t *testing.T, test func(*testing.T, *waitServer)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		w := &waitServer{t: t, config: Config{
			Store: fileStore(t), Logger: logger, Random: func() float64 { return 0.5 }, Settings: testSettings(),
		}}
		of := func(string) feed.Settings {
			return feed.Settings{Thresholds: w.config.Settings.Thresholds, Mode: feed.On}
		}
		require.NoError(t, w.config.Store.Register(t.Context(), []string{"chat"}))
		w.config.Feeds = feed.New(feed.Options{Store: w.config.Store, Settings: of, Logger: logger})
		background(t, w.config.Feeds.Run)
		w.sweep = func() func() {
			sweep := jobs.NewSweep(w.config.Store, func() []string { return []string{"chat"} }, of, logger)
			return w.run(sweep.Run)
		}
		w.serve()
		test(t, w)
	})
}

// serve serves connections until the test ends.
func (w *waitServer) serve() {
	w.config.Shared, w.conns = NewShared(w.config), make(chan net.Conn)
	w.reload(func(*Config) {})
	serveOver(w.t, w.conns, NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		(*w.handler.Load()).ServeHTTP(response, request)
	}), w.config.Logger))
}

// another returns another server on the same store, which keeps connections.
func (w *waitServer) another() *waitServer {
	other := &waitServer{t: w.t, config: w.config}
	other.serve()
	other.connects()
	return other
}

// stop ends the connections of a server as a process does that stops.
func (w *waitServer) stop() {
	w.t.Helper()
	w.config.Shared.Drain()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.config.Shared.EndWebSockets(ctx)
	w.config.Connections.Stop(ctx)
	require.NoError(w.t, ctx.Err(), "clients stay")
}

// serveOver has a server serve connections until the test ends.
func serveOver(t *testing.T, conns chan net.Conn, server *http.Server) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(&pipeListener{conns, make(chan struct{})}) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

// run runs a job until the returned function is called.
func (w *waitServer) run(job func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { job(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *waitServer) reload(change func(*Config)) {
	change(&w.config)
	handler := New(w.config)
	w.handler.Store(&handler)
}

// send sends a request without a body and returns its response when it begins.
func (w *waitServer) send(method, path string, headers ...string) *http.Response {
	w.t.Helper()
	conn := w.request(method, path, headers...)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_ = conn.Close()
		_ = response.Body.Close()
	})
	return response
}

// request sends a request without a body and returns its connection.
func (w *waitServer) request(method, path string, headers ...string) net.Conn {
	w.t.Helper()
	ours, theirs := net.Pipe()
	w.conns <- theirs
	lines := append([]string{"Host: a", "Content-Length: 0"}, headers...)
	_, err := fmt.Fprintf(ours, "%s /v1/namespaces/chat%s HTTP/1.1\r\n%s\r\n\r\n", method, path, strings.Join(lines, "\r\n"))
	require.NoError(w.t, err)
	return ours
}

const acceptEvents = "Accept: text/event-stream"

// follow opens a stream of events about alice.
func (w *waitServer) follow(headers ...string) *eventReader {
	w.t.Helper()
	headers = append(headers, acceptEvents)
	response := w.send("GET", "/changes?user=alice", headers...) //nolint:bodyclose // the test's end does it
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	return newEventReader(w.t, response.Body)
}

// whole sends a request without a body and returns its whole response.
func (w *waitServer) whole(method, path string) testResponse {
	w.t.Helper()
	return readTestResponse(w.t, w.send(method, path)) //nolint:bodyclose // it does
}

// authenticate reloads the server with an authenticator.
func (w *waitServer) authenticate(c auth.Config) {
	w.t.Helper()
	authenticator, err := auth.New(c, auth.Options{})
	require.NoError(w.t, err)
	w.reload(func(c *Config) { c.Auth = authenticator })
}

// connects has the server keep connections.
func (w *waitServer) connects() {
	held(w.t, w.config.Store)(&w.config)
	background(w.t, w.config.Shared.Listen)
	w.reload(func(*Config) {})
}

// greet opens a WebSocket and sends the frame hello with a content, if there is one.
func (w *waitServer) greet(content string) *testSocket {
	w.t.Helper()
	dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		w.conns <- theirs
		return ours, nil
	}}
	conn, response, err := dialer.Dial("ws://localhost/v1/namespaces/chat/connect", nil)
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())
	w.t.Cleanup(func() { _ = conn.Close() })
	s := &testSocket{w.t, conn}
	if content != "" {
		s.send(`{"hello":` + content + `}`)
	}
	return s
}

// hello is greet with the response.
func (w *waitServer) hello(content string) (*testSocket, map[string]any) {
	w.t.Helper()
	s := w.greet(content)
	return s, s.want(frameWelcome)
}

// do sends a request with a body that does not wait, and returns the response.
func (w *waitServer) do(method, path, body string, headers ...string) map[string]any {
	w.t.Helper()
	r := serve(*w.handler.Load(), method, "/v1/namespaces/chat"+path, body, headers...)
	require.Less(w.t, r.Code, 300, r.Body)
	return testResponse{body: r.Body.String()}.json(w.t)
}

// callsQuery returns the path of the next poll after a response.
func callsQuery(user string, after map[string]any) string {
	return "/calls?user=" + user + "&wait=50s&cursor=" + url.QueryEscape(cursorOf(after))
}

// pendingPoll is a poll that waits.
type pendingPoll struct {
	t     *testing.T
	conn  net.Conn
	began time.Time
}

// poll begins to wait for the calls of a user after a response.
func (w *waitServer) poll(user string, after map[string]any, headers ...string) pendingPoll {
	w.t.Helper()
	return pendingPoll{w.t, w.request("GET", callsQuery(user, after), headers...), time.Now()}
}

// end returns the response, and how long the poll took.
func (p pendingPoll) end() (map[string]any, time.Duration) {
	p.t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
	require.NoError(p.t, err)
	took := time.Since(p.began)
	r := readTestResponse(p.t, response)
	require.NoError(p.t, p.conn.Close())
	body := r.json(p.t)
	body["status"] = response.StatusCode
	body["connection"] = response.Header.Get("Connection") + map[bool]string{true: "close"}[response.Close]
	return body, took
}

// background runs jobs until the test ends.
func background(t testing.TB, jobs ...func(context.Context)) {
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

// happens waits until a condition is true, and reports whether it is.
func happens(condition func() bool) bool {
	for deadline := time.Now().Add(eventually); !condition(); time.Sleep(tick) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// await waits until a condition is true. It is for the goroutine of the test: the condition can fail the test.
func await(t testing.TB, condition func() bool, why ...any) {
	t.Helper()
	if !happens(condition) {
		require.Fail(t, "it does not happen", why...)
	}
}

// awaitLocked is await with a condition that holds a lock.
func awaitLocked(t testing.TB, mu sync.Locker, condition func() bool) {
	t.Helper()
	await(t, func() bool { return locked(mu, condition) })
}

// locked reads something under a lock.
func locked[T any](mu sync.Locker, read func() T) T {
	mu.Lock()
	defer mu.Unlock()
	return read()
}
