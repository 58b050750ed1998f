package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// dial connects to the server, for requests that Go's client would send differently.
func (w *testServer) dial() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// readResponse reads the final response from a connection.
func readResponse(t *testing.T, conn net.Conn) testResponse {
	t.Helper()
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil) //nolint:bodyclose // readTestResponse does it
	require.NoError(t, err)
	if response.StatusCode == http.StatusContinue {
		response, err = http.ReadResponse(from, nil) //nolint:bodyclose // readTestResponse does it
		require.NoError(t, err)
	}
	return readTestResponse(t, response)
}

// exchange sends bytes unchanged and returns all responses until the connection ends. The server may end it before
// it has read everything.
func (w *testServer) exchange(raw string) (responses []testResponse) {
	w.t.Helper()
	conn := w.dial()
	go io.WriteString(conn, raw)
	from := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			return responses
		}
		body, _ := io.ReadAll(response.Body) // what of it there is
		response.Body.Close()
		if response.StatusCode != http.StatusContinue {
			responses = append(responses, testResponse{response.StatusCode, response.Header, string(body)})
		}
	}
}

// exchanges sends a request whose headers do not end yet, and returns its only response.
func (w *testServer) exchanges(request string) testResponse {
	w.t.Helper()
	responses := w.exchange(request + "Connection: close\r\n\r\n")
	require.Len(w.t, responses, 1, "%.100q", request)
	return responses[0]
}

// The beginning of a ping of alice, without the end of its header, and a whole ping of mallory: the last request
// on its connection.
const (
	pingStart = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: lastseen\r\n"
	smuggled  = "POST /v1/namespaces/chat/users/mallory/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// pipeListener is a listener of in-memory connections, whose deadlines use the clock of the test.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error {
	close(p.closed)
	return nil
}

func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// withFakeClock runs a test against a server with the usual limits and a clock that advances only when every goroutine
// waits. Before is called before each call to the store, if it is not nil.
func withFakeClock(
	t *testing.T, before func(context.Context, string) error, test func(t *testing.T, dial func() net.Conn),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger, conns := slog.New(slog.NewTextHandler(&log, nil)), make(chan net.Conn)
		t.Cleanup(func() {
			synctest.Wait()
			require.Empty(t, log.String(), "who is slow is no matter for the log")
		})
		serveOver(t, conns, NewServer(New(Config{
			Store: &hookedStore{Store: fileStore(t), before: before}, Logger: logger, Settings: testSettings(),
		}), logger))
		test(t, func() net.Conn {
			ours, theirs := net.Pipe()
			conns <- theirs
			return ours
		})
	})
}

// sendSlowly sends the beginning and then a part each second until the connection ends, and returns how long that took
// and all responses.
func sendSlowly(t *testing.T, conn net.Conn, begin, part string) (took time.Duration, responses string) {
	t.Helper()
	begun := time.Now()
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(conn)
		read <- string(all)
	}()
	for next := begin; ; next = part {
		if _, err := io.WriteString(conn, next); err != nil {
			require.ErrorIs(t, err, io.ErrClosedPipe)
			return time.Since(begun), <-read
		}
		time.Sleep(time.Second)
		require.Less(t, time.Since(begun), 1000*time.Second, "nobody ended the connection")
	}
}

// start sends the head of a bulk request that announces a length, and the beginning of its body.
func start(t *testing.T, conn net.Conn, length int, begin string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s",
		length, begin)
	require.NoError(t, err)
}

// tryResponse reads a response from a connection. It is for goroutines that cannot end the test: an error is the body.
func tryResponse(conn net.Conn) testResponse {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return testResponse{body: err.Error()}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return testResponse{response.StatusCode, response.Header, string(body)}
}

// followed returns a hub that follows the changes of a store, which are swept, until the test ends.
func followed(t *testing.T, s store.Store, settings Settings) *feed.Hub {
	t.Helper()
	return followedUpTo(t, s, settings, 0)
}

// followedUpTo is followed with a maximum of users.
func followedUpTo(t *testing.T, s store.Store, settings Settings, max int) *feed.Hub {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	of := func(string) feed.Settings {
		return feed.Settings{Thresholds: settings.Thresholds, Mode: settings.Changes}
	}
	sweep := jobs.NewSweep(s, func() []string { return nil }, of, logger)
	hub := feed.New(feed.Options{Store: s, Settings: of, Recorded: sweep.Add, Logger: logger, MaxWatches: max})
	background(t, hub.Run, sweep.Run)
	return hub
}

// live makes the time of a server that of its store, for which newTestServer has another one.
func live(s store.Store) func(*Config) { return func(c *Config) { c.Store = s } }

// newLiveServer serves a store whose changes are followed.
func newLiveServer(t *testing.T, changes ...func(*Config)) *testServer {
	t.Helper()
	s := fileStore(t)
	return newTestServer(t, s, append([]func(*Config){live(s)}, changes...)...)
}

// cursorOf returns the cursor in a response.
func cursorOf(response map[string]any) string { return response["cursor"].(string) }

// statuses returns the users in a response with their statuses, such as "alice green".
func statuses(response map[string]any) []string {
	found := []string{}
	for _, u := range response["users"].([]any) {
		u := u.(map[string]any)
		found = append(found, u["user"].(string)+" "+u["status"].(string))
	}
	return found
}

// polled polls from a cursor on, waiting for changes, until users have the wanted statuses. It returns all users in the
// responses, and the last cursor.
func (w *testServer) polled(path, cursor string, want map[string]string) (found []map[string]any, last string) {
	w.t.Helper()
	know := map[string]string{}
	for !maps.Equal(know, want) {
		r := w.get(path + "&wait=30s&cursor=" + cursor)
		require.Equal(w.t, false, r["reset"])
		require.NotEmpty(w.t, r["users"], "after %v, wanted %v", know, want)
		for _, u := range r["users"].([]any) {
			u := u.(map[string]any)
			know[u["user"].(string)] = u["status"].(string)
			found = append(found, u)
		}
		cursor = cursorOf(r)
	}
	return found, cursor
}

// sentEvent is an event that a client received.
type sentEvent struct {
	name, id string
	data     map[string]any
}

// eventReader reads events as a browser does.
type eventReader struct {
	t      *testing.T
	lines  *bufio.Scanner
	retry  []string // the values of retry so far
	closed func()
}

// follow opens a stream of events; headers are "Name: value". The test has to call closed when it is done with it.
func (w *testServer) follow(method, path, body string, headers ...string) *eventReader {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, method, w.url+"/v1/namespaces"+path, strings.NewReader(body))
	require.NoError(w.t, err)
	addHeaders(request.Header, append(headers, acceptEvents))
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
	})
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	require.Equal(w.t, transport.MediaType, response.Header.Get("Content-Type"))
	r := newEventReader(w.t, response.Body)
	r.closed = cancel
	return r
}

func newEventReader(t *testing.T, from io.Reader) *eventReader {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	return &eventReader{t: t, lines: lines}
}

// next returns the next event; false at the end.
func (r *eventReader) next() (e sentEvent, ok bool) {
	r.t.Helper()
	for r.lines.Scan() {
		field, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch field {
		case "retry":
			r.retry = append(r.retry, value)
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			err := json.Unmarshal([]byte(value), &e.data)
			assert.NoError(r.t, err, value) //nolint:testifylint // it is also read on other goroutines
		case "":
			if e.name != "" {
				return e, true
			}
		default:
			r.t.Errorf("unknown field %q", field)
		}
	}
	return e, false
}

// changes returns the next event that is not a tick.
func (r *eventReader) changes() sentEvent {
	r.t.Helper()
	for {
		e, ok := r.next()
		require.True(r.t, ok, "the stream has ended")
		if e.name != eventTick {
			return e
		}
	}
}

func placesOf(t *testing.T, cursor string) []store.Place {
	t.Helper()
	places, err := openChangesCursor("chat", cursor)
	require.NoError(t, err)
	return places
}
