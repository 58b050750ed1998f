//go:build faults

package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestMain has the program under test built with the tag faults, so that its clock can be set: see [steppedClock].
func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }

// awaitFor is how long anything may take before a test fails. It does not measure; it ends a test that hangs.
const awaitFor = 2 * time.Minute

// await waits until a condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitFor); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still waiting for: %s", awaitFor, what)
		}
	}
}

// server is a lastseen that a test can kill and start again.
type server struct {
	url   string // the same after a restart
	admin string // where its metrics are
	log   *testenv.Log
	dir   string // its working directory

	prefix []string // a command that starts it, such as ip netns exec NAME
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
}

// startServer starts a lastseen with a store and more arguments, until the test ends.
func startServer(t testing.TB, store string, args ...string) *server {
	t.Helper()
	s := newServer(t, "127.0.0.1", store, args...)
	s.start(t)
	return s
}

// newServer returns a lastseen that is not started yet, for tests that change how it starts. Rate limits are off: all
// clients of a test have one address.
func newServer(t testing.TB, host, store string, args ...string) *server {
	t.Helper()
	listen, admin := redistest.FreeAddr(t, host), redistest.FreeAddr(t, host)
	return &server{
		url: "http://" + listen, admin: "http://" + admin, log: &testenv.Log{}, dir: t.TempDir(),
		args: append([]string{
			"--listen", listen, "--admin-listen", admin, "--store", store, "--rate-limit", "off",
		}, args...),
	}
}

// start starts the server, for the first time or again, and waits until it responds.
func (s *server) start(t testing.TB) {
	t.Helper()
	line := slices.Concat(s.prefix, []string{testserver.Binary(t)}, s.args)
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
		if log := s.log.String(); t.Failed() {
			t.Logf("the end of the log of %s:\n%s", s.url, log[max(0, len(log)-4000):])
		}
	})
	await(t, "the server to respond", func() bool {
		require.True(t, s.running(), "lastseen exited: %s", s.log)
		return s.healthy()
	})
}

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
	r, err := send(http.MethodGet, s.url+"/healthz", nil)
	return err == nil && r.status == http.StatusOK
}

// kill ends the process as kill -9 does, and returns when it has ended.
func (s *server) kill(t testing.TB) { s.end(t, syscall.SIGKILL) }

// terminate asks the process to end, and returns when it has.
func (s *server) terminate(t testing.TB) { s.end(t, syscall.SIGTERM) }

func (s *server) end(t testing.TB, signal syscall.Signal) {
	t.Helper()
	s.signal(t, signal)
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
}

// failure names what went wrong: "" if nothing did.
func (r response) failure() string {
	switch r.status {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return ""
	case 0:
		return "unreachable"
	default:
		return fmt.Sprintf("%d %s", r.status, r.code)
	}
}

// send sends a request on its own connection. See [sendWith].
func send(method, url string, body any) (response, error) {
	client := &http.Client{Timeout: awaitFor, Transport: &http.Transport{DisableKeepAlives: true}}
	return sendWith(client, method, url, body)
}

// sendWith sends a request, with a body of JSON if it is not nil, and reads the whole response.
func sendWith(client *http.Client, method, url string, body any) (response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return response{}, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, url, content)
	if err != nil {
		return response{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	r, err := client.Do(request)
	if err != nil {
		return response{}, err
	}
	got, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return response{}, err
	}
	return response{r.StatusCode, errorCode(got), r.Header, got}, nil
}

// errorCode returns the code of an error response; empty if it is not one.
func errorCode(body []byte) string {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(body, &problem) // what is not JSON has no code
	return problem.Code
}

// request sends a request without a body.
func (s *server) request(t testing.TB, method, path string) response {
	t.Helper()
	r, err := send(method, s.url+path, nil)
	require.NoError(t, err)
	return r
}

// served sends a request until it is served: one that is overloaded, or has lost its store, refuses some.
func (s *server) served(t testing.TB, method, path string, body any) (r response) {
	t.Helper()
	await(t, method+" "+path+" to be served", func() (ok bool) {
		var err error
		r, err = send(method, s.url+path, body)
		require.NoError(t, err)
		return r.status != http.StatusServiceUnavailable
	})
	return r
}

// decode returns the body of a response that succeeded.
func decode[T any](t testing.TB, r response) (found T) {
	t.Helper()
	require.Empty(t, r.failure(), "%s", r.body)
	require.NoError(t, json.Unmarshal(r.body, &found), "%s", r.body)
	return found
}

// userPath is the path of a user of the namespace chat.
func userPath(user string) string { return "/v1/namespaces/chat/users/" + url.PathEscape(user) }

// ready reports whether /readyz returns 200.
func (s *server) ready(t testing.TB) bool {
	t.Helper()
	return s.request(t, http.MethodGet, "/readyz").status == http.StatusOK
}

func (s *server) awaitReady(t testing.TB, ready bool) {
	t.Helper()
	await(t, fmt.Sprintf("/readyz of %s to be %t", s.url, ready), func() bool { return s.ready(t) == ready })
}

// metric returns the sum of the series of a metric, such as up or up{job="a"}, that have its labels, and 0 if there are
// none. Of a histogram, it sums the counts.
func (s *server) metric(t testing.TB, name string) (sum float64) {
	t.Helper()
	r, err := send(http.MethodGet, s.admin+"/metrics", nil)
	require.NoError(t, err)
	name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
	for line := range strings.Lines(string(r.body)) {
		end := strings.LastIndexByte(line, ' ')
		series, has, _ := strings.Cut(line[:max(end, 0)], "{")
		if (series == name || series == name+"_count") && strings.Contains(has, labels) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[end:]), 64)
			require.NoError(t, err, line)
			sum += value
		}
	}
	return sum
}

// awaitMetric waits until a metric has a value.
func (s *server) awaitMetric(t testing.TB, name string, value float64) {
	t.Helper()
	await(t, fmt.Sprintf("%s to be %v", name, value), func() bool { return cmp.Compare(s.metric(t, name), value) == 0 })
}

// mostMemory is far above the 70 MB that lastseen takes under load.
const mostMemory = 256 << 20

// requireLittleMemory checks that the resident memory of the process is bounded.
func (s *server) requireLittleMemory(t testing.TB) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kilobytes int
	_, err = fmt.Sscan(rest, &kilobytes)
	require.NoError(t, err)
	require.Less(t, kilobytes<<10, mostMemory)
}
