package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testAdmin is a running admin server, whose answers a test sets.
type testAdmin struct {
	t      *testing.T
	url    string
	ready  atomic.Pointer[error]
	backup atomic.Pointer[backupFunc]
	mu     sync.Mutex
	log    bytes.Buffer // guarded by mu
}

type backupFunc func(context.Context, io.Writer) error

// Write adds to the log.
func (a *testAdmin) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.Write(line)
}

// awaitLog waits for a text in the log, which has it after the response.
func (a *testAdmin) awaitLog(text string) {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return strings.Contains(a.log.String(), text)
	}, time.Minute, time.Millisecond)
}

func (a *testAdmin) setBackup(f backupFunc) { a.backup.Store(&f) }

func newTestAdmin(t *testing.T) *testAdmin {
	t.Helper()
	a := &testAdmin{t: t}
	var ready error
	a.ready.Store(&ready)
	a.setBackup(func(context.Context, io.Writer) error { return nil })
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "answer"}))
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(Config{
		Gatherer: registry, Ready: func(context.Context) error { return *a.ready.Load() },
		Backup:     func(ctx context.Context, w io.Writer) error { return (*a.backup.Load())(ctx, w) },
		AllowsHost: func(host string) bool { return !strings.HasPrefix(host, "evil") },
		Logger:     slog.New(slog.NewTextHandler(a, nil)),
	})
	server.Start()
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// send sends a request; headers are "Name: value". Host is the name of the server.
func (a *testAdmin) send(method, path, body string, headers ...string) (status int, text string) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	request.Host = request.Header.Get("Host")
	response, err := http.DefaultClient.Do(request)
	require.NoError(a.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(a.t, err)
	return response.StatusCode, string(content)
}

func TestEndpoints(t *testing.T) {
	a := newTestAdmin(t)
	for path, want := range map[string]string{
		"/": "/metrics", "/healthz": "ok\n", "/readyz": "ready\n", "/metrics": "\nanswer 0\n",
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile: total",
	} {
		status, text := a.send(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, text, want, path)
	}
	hangs := errors.New("the store hangs")
	a.ready.Store(&hangs)
	status, text := a.send(http.MethodGet, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "the store hangs\n", text)
	status, _ = a.send(http.MethodGet, "/debug/pprof/cmdline", "")
	require.Equal(t, http.StatusNotFound, status, "it can have the password of the store")
}

// goneWriter is a response to a client that has closed the connection.
type goneWriter struct{ http.ResponseWriter }

func (goneWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestMetricsOfClientThatLeft: one line in the log, as for curl … | head, and not one for each metric.
func TestMetricsOfClientThatLeft(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	for _, name := range []string{"a", "b", "c"} {
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name}))
	}
	c := Config{
		Gatherer: registry, AllowsHost: func(string) bool { return true },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	for n := range 2 {
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		newHandler(c).ServeHTTP(goneWriter{httptest.NewRecorder()}, request)
		require.Equal(t, n+1, strings.Count(log.String(), "broken pipe"), log.String())
	}
}

// TestProfileTime: a profile cannot take longer than the server allows.
func TestProfileTime(t *testing.T) {
	a := newTestAdmin(t)
	for _, seconds := range []string{"61", "0", "-1", "NaN", "1e9", "x"} {
		for _, path := range []string{"profile", "trace", "heap"} {
			status, text := a.send(http.MethodGet, "/debug/pprof/"+path+"?seconds="+seconds, "")
			require.Equal(t, http.StatusBadRequest, status, seconds)
			require.Contains(t, text, "at most 60")
		}
	}
	status, _ := a.send(http.MethodGet, "/debug/pprof/trace?seconds=0.01", "")
	require.Equal(t, http.StatusOK, status)
	require.Greater(t, writeTimeout, maxProfile)
}

// TestGuard: what a browser sends for a page is refused.
func TestGuard(t *testing.T) {
	a := newTestAdmin(t)
	for _, headers := range [][]string{
		{"Host: evil.example.com"},
		{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"},
		{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"},
		{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"},
	} {
		for _, path := range []string{"/metrics", "/debug/pprof/heap", "/readyz", "/none"} {
			status, _ := a.send(http.MethodGet, path, "", headers...)
			require.Equal(t, http.StatusForbidden, status, "%s %s", path, headers)
		}
		status, _ := a.send(http.MethodPost, "/backup", "", headers...)
		require.Equal(t, http.StatusForbidden, status, headers)
	}
	for _, headers := range [][]string{
		{"Origin: https://evil.example.com"},
		{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
	} {
		status, _ := a.send(http.MethodPost, "/backup", "", headers...)
		require.Equal(t, http.StatusForbidden, status, headers)
	}
	for _, headers := range [][]string{
		{},
		{"Sec-Fetch-Site: same-origin"},
		{"Sec-Fetch-Site: none"},
		{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
	} {
		status, _ := a.send(http.MethodGet, "/metrics", "", headers...)
		require.Equal(t, http.StatusOK, status, headers)
	}
	status, _ := a.send(http.MethodGet, "/metrics", "body")
	require.Equal(t, http.StatusBadRequest, status)
}

// TestRequestsInProgress: more of them than the limit are refused, and later ones served again.
func TestRequestsInProgress(t *testing.T) {
	release, served := make(chan struct{}), make(chan struct{}, maxRequests)
	handler := guard(func(string) bool { return true }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served <- struct{}{}
		<-release
	}))
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		return w.Code
	}
	ended := make(chan int, maxRequests)
	for range maxRequests {
		go func() { ended <- ask() }()
		<-served
	}
	require.Equal(t, http.StatusServiceUnavailable, ask())
	close(release)
	for range maxRequests {
		require.Equal(t, http.StatusOK, <-ended)
	}
	require.Equal(t, http.StatusOK, ask())
}

func TestBackup(t *testing.T) {
	a := newTestAdmin(t)
	a.setBackup(func(_ context.Context, w io.Writer) error {
		_, err := w.Write([]byte("data"))
		return err
	})
	for range 2 {
		status, text := a.send(http.MethodPost, "/backup", "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "data", text)
	}
	status, _ := a.send(http.MethodGet, "/backup", "")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	a.awaitLog(`msg="backup sent" bytes=4`)
}

func TestBackupErrors(t *testing.T) {
	a := newTestAdmin(t)
	for want, err := range map[int]error{
		http.StatusServiceUnavailable: store.ErrUnavailable, http.StatusInternalServerError: errors.New("broken"),
	} {
		a.setBackup(func(context.Context, io.Writer) error { return err })
		status, text := a.send(http.MethodPost, "/backup", "")
		require.Equal(t, want, status)
		require.Contains(t, text, err.Error())
	}
	w := httptest.NewRecorder()
	(&backups{}).ServeHTTP(w, nil)
	require.Equal(t, http.StatusNotImplemented, w.Code)
	require.Contains(t, w.Body.String(), "Redis")
}

// TestBackupCutOff: a client must not take a part for the whole.
func TestBackupCutOff(t *testing.T) {
	a := newTestAdmin(t)
	a.setBackup(func(_ context.Context, w io.Writer) error {
		_, err := w.Write([]byte("part"))
		return errors.Join(err, errors.New("broken"))
	})
	response, err := http.Post(a.url+"/backup", "", nil)
	if err == nil {
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
	}
	require.Error(t, err)
	a.awaitLog("broken")
}

// TestBackupsOneAtATime also checks that one which a client left is over.
func TestBackupsOneAtATime(t *testing.T) {
	a := newTestAdmin(t)
	begun, ended := make(chan struct{}), make(chan struct{})
	a.setBackup(func(ctx context.Context, _ io.Writer) error {
		close(begun)
		defer close(ended)
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/backup", http.NoBody)
	require.NoError(t, err)
	left := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		left <- err
	}()
	<-begun
	status, text := a.send(http.MethodPost, "/backup", "")
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, text, "in progress")
	leave()
	require.Error(t, <-left)
	<-ended
	a.setBackup(func(context.Context, io.Writer) error { return nil })
	require.Eventually(t, func() bool {
		status, _ := a.send(http.MethodPost, "/backup", "")
		return status == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// TestBackupOfSlowClient ends when the client takes nothing.
func TestBackupOfSlowClient(t *testing.T) {
	failed := make(chan error, 1)
	b := &backups{logger: slog.New(slog.DiscardHandler), chunkTimeout: time.Millisecond}
	b.write = func(_ context.Context, w io.Writer) error {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				failed <- err
				return err
			}
		}
	}
	server := httptest.NewServer(b)
	defer server.Close()
	response, err := http.Post(server.URL, "", nil)
	if err == nil {
		defer response.Body.Close() // nothing was read
	}
	require.Error(t, <-failed)
}
