//go:build faults

package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// server is a lastseen that a test can kill and start again.
type server struct {
	url   string // the same after a restart
	admin string // where its metrics are
	log   *lockedBuffer
	dir   string // its working directory

	binary string
	prefix []string // a command that starts it, such as ip netns exec NAME
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
}

// lockedBuffer collects what a process logs while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startServer starts a lastseen with a store and more arguments, until the test ends.
func startServer(t testing.TB, store string, args ...string) *server {
	t.Helper()
	s := newServer(t, store, args...)
	s.start(t)
	return s
}

// newServer returns a lastseen that is not started yet, for tests that change how it starts. Rate limits are off: all
// clients of a test have one address.
func newServer(t testing.TB, store string, args ...string) *server {
	t.Helper()
	return newServerOn(t, "127.0.0.1", store, args...)
}

// newServerOn is newServer on another address than loopback, which a network namespace needs.
func newServerOn(t testing.TB, host, store string, args ...string) *server {
	t.Helper()
	listen := redistest.FreeAddr(t, host)
	admin := redistest.FreeAddr(t, host)
	return &server{
		url: "http://" + listen, admin: "http://" + admin, log: &lockedBuffer{}, dir: t.TempDir(),
		binary: os.Getenv(binaryVar),
		args: append([]string{
			"--listen", listen, "--admin-listen", admin, "--store", store, "--rate-limit", "off",
		}, args...),
	}
}

// start starts the server, for the first time or again, and waits until it responds.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.launch(t)
	await(t, "the server to respond", func() bool {
		require.True(t, s.running(), "lastseen exited: %s", s.log)
		return s.healthy()
	})
}

// launch is start without waiting.
func (s *server) launch(t testing.TB) {
	t.Helper()
	line := slices.Concat(s.prefix, []string{s.binary}, s.args)
	cmd := testenv.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Stderr = s.dir, s.log
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // reports the kill
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", s.url, tail(s.log.String(), 4000))
		}
	})
}

func tail(text string, length int) string { return text[max(0, len(text)-length):] }

// running reports whether the process has not ended.
func (s *server) running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func (s *server) healthy() bool {
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	response, err := client.Get(s.url + "/healthz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the process as kill -9 does, and returns when it has ended.
func (s *server) kill(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGKILL)
	<-s.ended
}

// terminate asks the process to end, and returns when it has.
func (s *server) terminate(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGTERM)
	<-s.ended
}

func (s *server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(signal), "%s", s.log)
}

// awaitLog waits until the log has a text.
func (s *server) awaitLog(t testing.TB, text string) {
	t.Helper()
	await(t, fmt.Sprintf("%q in the log", text), func() bool { return strings.Contains(s.log.String(), text) })
}

// response is what a client got.
type response struct {
	status int // of HTTP
	code   string
	header http.Header
	body   []byte
	took   time.Duration
}

// request sends a request without a body. Its limit is far beyond what the server promises.
func (s *server) request(t testing.TB, method, path string) response {
	t.Helper()
	client := &http.Client{Timeout: awaitFor}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(method, s.url+path, nil)
	require.NoError(t, err)
	r, err := send(client, request)
	require.NoError(t, err)
	return r
}

// send sends a request and reads the whole response. With an error, the response has only the time.
func send(client *http.Client, request *http.Request) (response, error) {
	begin := time.Now()
	r, err := client.Do(request)
	if err != nil {
		return response{took: time.Since(begin)}, err
	}
	body, err := io.ReadAll(r.Body)
	took := time.Since(begin)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return response{took: took}, err
	}
	return response{r.StatusCode, errorCode(body), r.Header, body, took}, nil
}

// errorCode returns the code of an error response; empty if it is not one.
func errorCode(body []byte) string {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(body, &problem) // what is not JSON has no code
	return problem.Code
}

// ready reports whether /readyz returns 200.
func (s *server) ready(t testing.TB) bool {
	t.Helper()
	return s.request(t, http.MethodGet, "/readyz").status == http.StatusOK
}

// memory returns the resident memory of the process in bytes.
func (s *server) memory(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kilobytes << 10
		}
	}
	t.Fatalf("no VmRSS in %s", status)
	return 0
}
