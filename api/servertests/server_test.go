package servertests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
)

func TestServerLimits(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
	server := guard.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	for _, limit := range []time.Duration{
		server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout,
		server.IdleTimeout,
	} {
		require.Positive(t, limit)
	}
	query := strings.Repeat("&user="+strings.Repeat("%C3%BC", 128), 100)
	require.Len(t, kit.Names(w.Get("/chat/lookup?"+query[1:])), 100, "the longest lookup fits")
	w.Send("GET", "/chat", "", "X-Large: "+strings.Repeat("x", 200<<10)).Is(t, http.StatusRequestHeaderFieldsTooLarge)
}

// TestSlowSenders checks that a client that sends very slowly is cut off in time.
func TestSlowSenders(t *testing.T) {
	const ping, pings = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: a\r\n",
		"POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n"
	const long, chunked, lines = "Content-Length: 10000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", kit.NDJSON + "\r\n"
	const begun = time.Second + kit.RateWindow // the first byte of a body comes after a second
	for name, c := range map[string]struct {
		begin, part string        // what is sent first, and then each second
		most        time.Duration // that it may go on
		code        problem.Code  // of the response; "" if there is none
	}{
		"a request line":      {"G", "E", kit.HeaderTimeout, ""},
		"a header":            {"GET /healthz HTTP/1.1\r\n", "X: y\r\n", kit.HeaderTimeout, ""},
		"a body":              {ping + long, " ", begun + kit.DrainTimeout, problem.InvalidJSON},
		"chunks":              {ping + chunked, "1\r\n \r\n", begun + kit.DrainTimeout, problem.InvalidJSON},
		"a chunk's extension": {ping + chunked + "1;", "x", kit.ReadTimeout + kit.DrainTimeout, problem.InvalidJSON},
		"many pings":          {pings + long, " ", begun + kit.DrainTimeout, problem.InvalidJSON},
		"a body that was asked for": {
			ping + "Expect: 100-continue\r\n" + long, " ", begun + kit.DrainTimeout,
			problem.InvalidJSON,
		},
		"a line": {pings + lines + long + `{"user":"`, "a", kit.LineTimeout + kit.DrainTimeout, problem.InvalidJSON},
		"what is not read any more": {
			"POST /nothing HTTP/1.1\r\nHost: a\r\n" + long, " ", kit.DrainTimeout, problem.NotFound,
		},
		"what follows a bad line": {pings + lines + long + "{}\n", " ", kit.DrainTimeout, problem.InvalidUser},
		"what nobody reads":       {"GET /healthz HTTP/1.1\r\nHost: a\r\n" + long, " ", kit.ReadTimeout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
				took, responses := sendSlowly(t, dial(), c.begin, c.part)
				require.LessOrEqual(t, took, c.most+time.Second, "%s", responses)
				if c.code == "" {
					require.NotContains(t, responses, "problem+json")
				} else {
					require.Contains(t, responses, fmt.Sprintf("%q:%q", "code", c.code))
				}
			})
		})
	}
}

// TestIdleConnections checks that connections are closed: soon before the first request, and later after one.
func TestIdleConnections(t *testing.T) {
	withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
		for request, most := range map[string]time.Duration{
			"": kit.HeaderTimeout,
			"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n": kit.IdleTimeout,
		} {
			conn, begun := dial(), time.Now()
			_, err := io.WriteString(conn, request)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, conn)
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(begun), most, "%q", request)
		}
	})
}

// TestSlowReaders checks that a client that does not read its responses is cut off, however many it requested.
func TestSlowReaders(t *testing.T) {
	withFakeClock(t, nil, func(t *testing.T, dial func() net.Conn) {
		many := strings.Repeat("GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n",
			1000)
		conn, begun := dial(), time.Now()
		_, err := io.WriteString(conn, many) // a pipe holds nothing: the server would have to take it all
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.LessOrEqual(t, time.Since(begun), kit.ReadTimeout+kit.WriteTimeout)
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)

		conn, begun = dial(), time.Now()
		_, err = io.WriteString(conn, many[:len(many)/1000])
		require.NoError(t, err)
		for range 100 { // reads a byte a second
			if _, err = conn.Read(make([]byte, 1)); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(begun), kit.ReadTimeout+kit.WriteTimeout+time.Second)
	})
}

// script is a connection on which a client sends everything at once and then nothing more.
type script struct {
	net.Conn // for the addresses
	input    *bytes.Reader
	output   bytes.Buffer
	closed   func()
}

func (s *script) Read(p []byte) (int, error) { return s.input.Read(p) }

func (s *script) Write(p []byte) (int, error) { return s.output.Write(p) }

func (s *script) SetDeadline(time.Time) error { return nil }

func (s *script) SetReadDeadline(time.Time) error { return nil }

func (s *script) SetWriteDeadline(time.Time) error { return nil }

func (s *script) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (s *script) LocalAddr() net.Addr { return &net.TCPAddr{} }

func (s *script) Close() error {
	s.closed()
	return nil
}

// FuzzConnection checks that any data on a connection gets a response without a server error, or ends the
// connection.
func FuzzConnection(f *testing.F) {
	for _, seed := range []string{
		pingStart + "\r\n" + smuggled, pingStart + "Content-Length: 2\r\n\r\n{}",
		pingStart + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"GET /v1/namespaces/chat/users?limit=1&cursor=A HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nPrefer: return=minimal\r\n\r\n",
		"POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n" + kit.NDJSON +
			"\r\nContent-Length: 17\r\n\r\n{\"user\":\"alice\"}\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /v1/namespaces/chat?confirm=chat HTTP/1.0\r\n\r\n",
		"\x16\x03\x01",
		"GET http://u:p@h/docs/%2e%2e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	server := guard.NewServer(apitest.FuzzHandler(f), slog.New(slog.DiscardHandler))
	p := &kit.PipeListener{Conns: make(chan net.Conn), Closed: make(chan struct{})}
	go server.Serve(p)
	f.Cleanup(func() { _ = server.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		done := make(chan struct{})
		conn := &script{input: bytes.NewReader(data), closed: sync.OnceFunc(func() { close(done) })}
		p.Conns <- conn
		<-done
		responses := bufio.NewReader(&conn.output)
		for {
			response, err := http.ReadResponse(responses, nil)
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
					bytes.Contains(data, []byte("HEAD")), "%v", err)
				return
			}
			require.NotEqual(t, http.StatusInternalServerError, response.StatusCode,
				"503 is for clients that have gone")
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if err != nil || bytes.Contains(data, []byte("HEAD")) {
				return
			}
		}
	})
}

// TestDrain: a server that drains is alive but not ready, serves requests, and ends their connections.
func TestDrain(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	const ping = "/v1/namespaces/chat/users/alice/ping"
	closes := func(method, path string) bool {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		return response.Close
	}
	require.False(t, closes("POST", ping))
	require.False(t, closes("GET", "/readyz"))

	w.Config.Shared.Drain()
	w.Reload(func(*api.Config) {})
	for range 2 { // each on its own connection
		require.True(t, closes("POST", ping))
	}
	require.True(t, closes("GET", "/healthz"))
	r := w.SendTo("GET", "/readyz", "").Is(t, http.StatusServiceUnavailable)
	require.Equal(t, "shutting_down", r.JSON(t)["code"])
	require.NotEmpty(t, r.Header.Get("Retry-After"))
	require.NotContains(t, w.Log.String(), "level=ERROR", "it is no failure")
}

// TestDrainHTTP2: HTTP/2 clients connect again, too.
func TestDrainHTTP2(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	server := httptest.NewUnstartedServer(w)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	reuses := func() (reused bool) {
		trace := httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &trace), "GET",
			server.URL+"/healthz", http.NoBody)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 2, response.ProtoMajor)
		return reused
	}
	require.False(t, reuses())
	require.True(t, reuses())
	w.Config.Shared.Drain()
	kit.Await(t, func() bool { return !reuses() })
}

// The beginning of a ping of alice, without the end of its header, and a whole ping of mallory: the last request
// on its connection.
const (
	pingStart = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: lastseen\r\n"
	smuggled  = "POST /v1/namespaces/chat/users/mallory/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

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
		kit.ServeOver(t, conns, guard.NewServer(api.New(api.Config{
			Store: kit.HookedFileStore(t, before), Logger: logger, Settings: apitest.Settings(),
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
