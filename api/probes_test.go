package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
)

// TestPanicOfAMiddlewareIsCounted checks what echo's recovery does not see: the panic goes on to package net/http.
func TestPanicOfAMiddlewareIsCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := &server{Shared: NewShared(Config{Metrics: registry})}
	c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
	require.Panics(t, func() { _ = s.begin(func(echo.Context) error { panic("a defect") })(c) })
	require.Equal(t, map[string]float64{"GET,other,5xx": 1}, kit.Samples(t, registry, "lastseen_http_requests_total"))
	require.Empty(t, kit.Samples(t, registry, "lastseen_http_requests_in_progress"))
}

// outageTest is the handler without a network, on a store that can fail, and its log.
type outageTest struct {
	t             *testing.T
	api           http.Handler
	log           *kit.Log
	reads, writes atomic.Pointer[error] // of calls to the store
}

func (o *outageTest) fails(reads, writes error) {
	o.reads.Store(&reads)
	o.writes.Store(&writes)
}

func newOutageTest(t *testing.T, level slog.Level) *outageTest {
	t.Helper()
	o := &outageTest{t: t, log: &kit.Log{}}
	o.fails(nil, nil)
	o.api = New(Config{
		Store: kit.HookedFileStore(t, func(_ context.Context, call string) error {
			if call == "Describe" {
				return *o.reads.Load()
			}
			return *o.writes.Load()
		}),
		Settings: usualSettings(), Logger: slog.New(slog.NewJSONHandler(o.log, &slog.HandlerOptions{Level: level})),
	})
	return o
}

const (
	pingAlice = "POST /v1/namespaces/chat/users/alice/ping"
	readAlice = "GET /v1/namespaces/chat/users/alice"
	readiness = "GET /readyz"
)

// send sends requests one after another and returns the status of the last one.
func (o *outageTest) send(n int, request string) (status int) {
	method, path, _ := strings.Cut(request, " ")
	for range n {
		status = kit.Serve(o.api, method, path, "").Code
	}
	return status
}

// lines returns what was logged since the last call.
func (o *outageTest) lines() []map[string]any { return kit.ParseLog(o.t, o.log.Take()) }

// wait lets time pass and timers run.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestOutageIsLoggedOnce follows an outage: a line for the first failure, a count each minute, a line at its end.
func TestOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutageTest(t, slog.LevelInfo)
		o.fails(fmt.Errorf("%w: connection refused", store.ErrUnavailable), store.ErrUnavailable)
		require.Equal(t, http.StatusServiceUnavailable, o.send(1, readAlice))
		o.send(999, pingAlice)
		first := o.lines()
		require.Len(t, first, 1)
		require.Equal(t, "ERROR", first[0]["level"])
		require.Equal(t, "store_unavailable", first[0]["code"])
		require.Contains(t, first[0]["error"], "connection refused")
		require.NotEmpty(t, first[0]["request_id"])

		wait(time.Minute)
		o.send(50, readAlice)
		wait(time.Minute)
		wait(time.Minute) // nobody asks
		o.send(1, readiness)
		counts := o.lines()
		require.Len(t, counts, 2)
		require.EqualValues(t, 999, counts[0]["failed"])
		require.EqualValues(t, 50, counts[1]["failed"])
		require.EqualValues(t, 1050, counts[1]["total"])
		require.Equal(t, "store_unavailable", counts[1]["code"])

		wait(30 * time.Second)
		o.fails(nil, nil)
		o.send(100, pingAlice)
		require.Empty(t, o.lines(), "it may be back for a moment only")
		wait(telemetry.SettleTime)
		back := o.lines()
		require.Len(t, back, 1)
		require.Equal(t, "INFO", back[0]["level"])
		require.EqualValues(t, 1051, back[0]["failed"])
		require.Equal(t, "3m30s", back[0]["after"])
		wait(time.Hour)
		o.send(1, pingAlice)
		require.Empty(t, o.lines(), "it is over")

		o.fails(store.ErrUnavailable, store.ErrUnavailable)
		o.send(3, pingAlice)
		require.Len(t, o.lines(), 1, "the next outage begins with a line, too")
	})
}

// TestFlappingIsOneOutage checks a store that fails some requests and not others because a part of it is down.
func TestFlappingIsOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutageTest(t, slog.LevelInfo)
		for range 90 {
			o.fails(nil, store.ErrUnavailable)
			o.send(1, pingAlice)
			o.fails(nil, nil)
			o.send(1, pingAlice)
			wait(time.Second)
		}
		require.Len(t, o.lines(), 2, "the first failure, and the count of a minute")
		wait(telemetry.SettleTime)
		back := o.lines()
		require.Len(t, back, 1)
		require.EqualValues(t, 90, back[0]["failed"])
	})
}

// TestReadsDoNotEndWriteOutage checks a full disk, or a Redis that refuses writes: reads succeed all the time.
func TestReadsDoNotEndWriteOutage(t *testing.T) {
	for _, cause := range []error{store.ErrUnavailable, store.ErrFull} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutageTest(t, slog.LevelInfo)
			o.fails(nil, cause)
			o.send(1, pingAlice)
			require.Len(t, o.lines(), 1)
			require.Equal(t, http.StatusOK, o.send(10, readAlice))
			require.Equal(t, http.StatusOK, o.send(10, "GET /healthz"))
			require.Equal(t, http.StatusOK, o.send(10, "GET /v1/namespaces/chat"))
			wait(2 * telemetry.SettleTime)
			require.Empty(t, o.lines())
			o.fails(nil, nil)
			require.Equal(t, http.StatusOK, o.send(1, readiness))
			wait(telemetry.SettleTime)
			require.Len(t, o.lines(), 1)
		})
	}
}

// TestDefectsAreLoggedSeparately checks that each unknown error is logged with its cause, up to a number of lines a
// minute.
func TestDefectsAreLoggedSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutageTest(t, slog.LevelInfo)
		o.fails(errors.New("a defect"), nil)
		o.send(3, readAlice)
		lines := o.lines()
		require.Len(t, lines, 3)
		require.NotEqual(t, lines[0]["request_id"], lines[1]["request_id"])
		o.send(1000, readAlice)
		require.Len(t, o.lines(), 20-3)
		wait(time.Minute)
		count := o.lines()
		require.Len(t, count, 1)
		require.EqualValues(t, 1003-20, count[0]["times"])
		o.send(1, readAlice)
		require.Len(t, o.lines(), 1, "details again")
		wait(time.Hour)
		require.Empty(t, o.lines())
	})
}

// TestDebugLogsEachFailure checks that every request ID is in the log at level debug.
func TestDebugLogsEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutageTest(t, slog.LevelDebug)
		o.fails(nil, store.ErrUnavailable)
		o.send(5, pingAlice)
		lines := o.lines()
		require.Len(t, lines, 5)
		require.Equal(t, "ERROR", lines[0]["level"])
		require.Equal(t, "DEBUG", lines[4]["level"])
		require.NotEmpty(t, lines[4]["request_id"])
	})
}

// TestFailuresAreCountedOnce counts failures of many goroutines. Run it with -race.
func TestFailuresAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutageTest(t, slog.LevelInfo)
		o.fails(store.ErrUnavailable, store.ErrUnavailable)
		var senders sync.WaitGroup
		for range 8 {
			senders.Go(func() { o.send(100, pingAlice) })
		}
		senders.Wait()
		wait(time.Minute)
		lines := o.lines()
		require.Len(t, lines, 2)
		require.EqualValues(t, 799, lines[1]["failed"])
		o.fails(nil, nil)
		for range 8 {
			senders.Go(func() { o.send(100, pingAlice) })
		}
		senders.Wait()
		wait(telemetry.SettleTime)
		require.Len(t, o.lines(), 1)
	})
}

// outOfFiles is a listener that fails like one whose process has too many open files. A real one would make the test
// fail, too.
type outOfFiles struct {
	net.Listener
	left int
}

func (o *outOfFiles) Accept() (net.Conn, error) {
	if o.left--; o.left < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: temporary{errors.New("too many open files")}}
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }

func (temporary) Timeout() bool { return false }

// TestServerLog checks that failures of the server are logged as errors, once a minute, and those of clients are
// not.
func TestServerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		logger := slog.New(slog.NewTextHandler(&log, nil))
		server := guard.NewServer(http.NotFoundHandler(), logger)
		require.ErrorIs(t, server.Serve(guard.LimitConnections(server,
			&outOfFiles{&kit.PipeListener{Closed: make(chan struct{})}, 30}, 10, logger, nil)), net.ErrClosed)
		require.Equal(t, 1, bytes.Count([]byte(log.String()),
			[]byte("level=ERROR msg=\"http: Accept error: accept tcp: too many open files\"")), log.String())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, log.String(), "times=29 within=1m0s")

		log.Take()
		server.ErrorLog.Print("http: TLS handshake error from 203.0.113.7:1234: EOF")
		require.Empty(t, log.String())
		for client := range 3 {
			server.ErrorLog.Printf("http: panic serving 203.0.113.%d:1234: out of range\ngoroutine 1 [running]", client)
		}
		require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("level=ERROR msg=\"http: panic out of range\"")),
			log.String())
		require.Contains(t, log.String(), "goroutine 1 [running]")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Contains(t, log.String(), "times=2")
		log.Take()
		server.ErrorLog.Print("http: panic serving 203.0.113.7:1234: out of range")
		require.NotEmpty(t, log.String(), "after a minute without one it is logged at once")
		for n := range 10_000 {
			server.ErrorLog.Printf("http: panic serving 203.0.113.7:1234: %d", n)
		}
		require.LessOrEqual(t, bytes.Count([]byte(log.String()), []byte("\n")), 32+1)
		time.Sleep(3 * time.Minute)
	})
}
