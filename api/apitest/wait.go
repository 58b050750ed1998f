package apitest

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// BubbleServer is a server with the usual limits, in a bubble whose clock advances only when every goroutine waits. It
// follows the changes of its store and advances their watermarks.
type BubbleServer struct {
	t       *testing.T
	Config  api.Config
	Handler atomic.Pointer[http.Handler]
	conns   chan net.Conn
	Advance func() (stop func())
}

// InBubble runs a test with a server.
func InBubble(t *testing.T, test func(*testing.T, *BubbleServer)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		w := &BubbleServer{t: t, Config: api.Config{
			Store: kit.FileStore(t), Logger: logger, Random: func() float64 { return 0.5 }, Settings: Settings(),
		}}
		of := func(string) feed.Settings {
			return feed.Settings{Thresholds: w.Config.Settings.Thresholds, Mode: feed.On}
		}
		require.NoError(t, w.Config.Store.Register(t.Context(), []string{"chat"}))
		w.Config.Feeds = feed.New(feed.Options{Store: w.Config.Store, Settings: of, Logger: logger})
		kit.Background(t, w.Config.Feeds.Run)
		w.Advance = func() func() {
			watermarks := jobs.NewWatermarks(w.Config.Store, func() []string { return []string{"chat"} }, of, logger)
			return w.Run(watermarks.Run)
		}
		w.serve()
		test(t, w)
	})
}

// serve serves connections until the test ends.
func (w *BubbleServer) serve() {
	w.Config.Shared, w.conns = api.NewShared(w.Config), make(chan net.Conn)
	w.Reload(func(*api.Config) {})
	handler := http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		(*w.Handler.Load()).ServeHTTP(response, request)
	})
	kit.ServeOver(w.t, w.conns, guard.NewServer(handler, w.Config.Logger))
}

// Another returns another server on the same store, which keeps connections.
func (w *BubbleServer) Another() *BubbleServer {
	other := &BubbleServer{t: w.t, Config: w.Config}
	other.serve()
	other.Connects()
	return other
}

// Stop ends the connections of a server as a process does that stops.
func (w *BubbleServer) Stop() {
	w.t.Helper()
	w.Config.Shared.Drain()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.Config.Shared.EndWebSockets(ctx)
	w.Config.Connections.Stop(ctx)
	require.NoError(w.t, ctx.Err(), "clients stay")
}

// Run runs a job until the returned function is called.
func (w *BubbleServer) Run(job func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { job(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// Reload replaces the handler by one with a changed configuration. What handlers share is kept.
func (w *BubbleServer) Reload(change func(*api.Config)) {
	change(&w.Config)
	handler := api.New(w.Config)
	w.Handler.Store(&handler)
}

// Send sends a request without a body and returns its response when it begins.
func (w *BubbleServer) Send(method, path string, headers ...string) *http.Response {
	w.t.Helper()
	conn := w.Request(method, path, headers...)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_ = conn.Close()
		_ = response.Body.Close()
	})
	return response
}

// Request sends a request without a body and returns its connection.
func (w *BubbleServer) Request(method, path string, headers ...string) net.Conn {
	w.t.Helper()
	ours, theirs := net.Pipe()
	w.conns <- theirs
	lines := append([]string{"Host: a", "Content-Length: 0"}, headers...)
	_, err := fmt.Fprintf(ours, "%s /v1/namespaces/chat%s HTTP/1.1\r\n%s\r\n\r\n", method, path, strings.Join(lines, "\r\n"))
	require.NoError(w.t, err)
	return ours
}

// Follow opens a stream of events about alice.
func (w *BubbleServer) Follow(headers ...string) *kit.EventReader {
	w.t.Helper()
	headers = append(headers, kit.AcceptEvents)
	response := w.Send("GET", "/changes?user=alice", headers...) //nolint:bodyclose // the test's end does it
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	return kit.NewEventReader(w.t, response.Body)
}

// Whole sends a request without a body and returns its whole response.
func (w *BubbleServer) Whole(method, path string) kit.Response {
	w.t.Helper()
	return kit.ResponseOf(w.t, w.Send(method, path)) //nolint:bodyclose // it does
}

// Authenticate reloads the server with an authenticator.
func (w *BubbleServer) Authenticate(c auth.Config) {
	w.t.Helper()
	authenticator, err := auth.New(c, auth.Options{})
	require.NoError(w.t, err)
	w.Reload(func(c *api.Config) { c.Auth = authenticator })
}

// Connects has the server keep connections.
func (w *BubbleServer) Connects() {
	WithConnections(w.t, w.Config.Store)(&w.Config)
	kit.Background(w.t, w.Config.Shared.Listen)
	w.Reload(func(*api.Config) {})
}

// Greet opens a WebSocket and sends the frame hello with a content, if there is one.
func (w *BubbleServer) Greet(content string) *kit.Socket {
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
	s := &kit.Socket{T: w.t, Conn: conn}
	if content != "" {
		s.Send(`{"hello":` + content + `}`)
	}
	return s
}

// Hello is Greet with the response.
func (w *BubbleServer) Hello(content string) (*kit.Socket, map[string]any) {
	w.t.Helper()
	s := w.Greet(content)
	return s, s.Want("welcome")
}

// Do sends a request with a body that does not wait, and returns the response.
func (w *BubbleServer) Do(method, path, body string, headers ...string) map[string]any {
	w.t.Helper()
	r := kit.Serve(*w.Handler.Load(), method, "/v1/namespaces/chat"+path, body, headers...)
	require.Less(w.t, r.Code, 300, r.Body)
	return kit.Response{Body: r.Body.String()}.JSON(w.t)
}

// Poll begins to wait for the calls of a user after a response.
func (w *BubbleServer) Poll(user string, after map[string]any, headers ...string) kit.PendingPoll {
	w.t.Helper()
	return kit.PendingPoll{T: w.t, Conn: w.Request("GET", kit.CallsQuery(user, after), headers...), Began: time.Now()}
}
