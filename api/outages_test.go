package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// unreliableStore is a store that fails on demand. It is a fake because its clock is that of a synctest bubble, in
// which no real store can run.
type unreliableStore struct {
	idleStore
	mu            sync.Mutex
	reads, writes error
}

func (o *unreliableStore) fails(reads, writes error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads, o.writes = reads, writes
}

func (o *unreliableStore) errs() (reads, writes error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reads, o.writes
}

func (o *unreliableStore) Now(context.Context) (lastseen.Instant, error) { return testNow, nil }

func (o *unreliableStore) Ping(_ context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	_, err := o.errs()
	return make([]lastseen.State, len(batch)), err
}

func (o *unreliableStore) Describe(
	_ context.Context, _ string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	err, _ := o.errs()
	return make([]lastseen.State, len(users)), nil, err
}

func (o *unreliableStore) Ready(context.Context) error {
	_, err := o.errs()
	return err
}

// logBuffer holds what is logged, including by timers.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was logged since the last call.
func (l *logBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// outageTest is the handler without a network, on a store that can fail, and its log.
type outageTest struct {
	*unreliableStore
	t   *testing.T
	api http.Handler
	log *logBuffer
}

func newOutageTest(t *testing.T, level slog.Level) *outageTest {
	t.Helper()
	o := &outageTest{unreliableStore: &unreliableStore{}, t: t, log: &logBuffer{}}
	o.api = New(Config{
		Store: o.unreliableStore,
		Settings: Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour},
			PingInterval: time.Second,
		},
		Logger: slog.New(slog.NewJSONHandler(o.log, &slog.HandlerOptions{Level: level})),
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
		w := httptest.NewRecorder()
		o.api.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, nil))
		status = w.Code
	}
	return status
}

// lines returns what was logged since the last call.
func (o *outageTest) lines() (lines []map[string]any) {
	o.t.Helper()
	for line := range strings.Lines(o.log.take()) {
		var fields map[string]any
		require.NoError(o.t, json.Unmarshal([]byte(line), &fields), line)
		lines = append(lines, fields)
	}
	return lines
}

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
		wait(settleTime)
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
		wait(settleTime)
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
			wait(2 * settleTime)
			require.Empty(t, o.lines())
			o.fails(nil, nil)
			require.Equal(t, http.StatusOK, o.send(1, readiness))
			wait(settleTime)
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
		require.Len(t, o.lines(), maxDefects-3)
		wait(time.Minute)
		count := o.lines()
		require.Len(t, count, 1)
		require.EqualValues(t, 1003-maxDefects, count[0]["times"])
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
		wait(settleTime)
		require.Len(t, o.lines(), 1)
	})
}
