package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestMain builds the binary that the tests run as users do. Started again by a test, this program is an app.
func TestMain(m *testing.M) {
	if url := os.Getenv(flowAppVar); url != "" {
		os.Exit(runFlowApp(url))
	}
	os.Exit(buildAndRun(m))
}

const binaryVar = "LASTSEEN_TEST_BINARY"

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lastseen-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "lastseen")
	build := testenv.Command("go", "build", fmt.Sprintf("-race=%t", testenv.Race), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building lastseen: %v\n%s", err, out)
		return 1
	}
	for _, variable := range os.Environ() { // that a developer has set to run lastseen
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LASTSEEN_") && !strings.HasPrefix(name, "LASTSEEN_TEST_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv(binaryVar, binary)
	// Tests run several servers on one machine, beside others that may use the default address.
	os.Setenv("LASTSEEN_ADMIN_LISTEN", "off")
	testenv.WaitInParallel()
	defer withoutWindows.end()
	defer withWindows.end()
	return m.Run()
}

// service is a running lastseen.
type service struct {
	docs  string // where Swagger UI is, according to its banner
	url   string // of the server
	admin string // URL for operators; "" if it is off
	cmd   *exec.Cmd
	log   *lockedBuffer
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

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// start runs the binary on a free port with some more arguments, until the test ends.
func start(t testing.TB, args ...string) *service {
	t.Helper()
	s := &service{
		cmd: testenv.Command(os.Getenv(binaryVar), append([]string{"--listen", "127.0.0.1:0"}, args...)...),
		log: &lockedBuffer{},
	}
	s.cmd.Dir = t.TempDir()
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		s.kill()
		s.checkRaces(t)
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if api, ok := strings.CutPrefix(lines.Text(), "  API   "); ok {
			s.url = strings.TrimSuffix(api, "/v1/namespaces")
		}
		if docs, ok := strings.CutPrefix(lines.Text(), "  docs  "); ok {
			s.docs = docs
		}
		if admin, ok := strings.CutPrefix(lines.Text(), "  admin "); ok {
			s.admin = admin
		}
		if strings.HasPrefix(lines.Text(), "  for   ") {
			go io.Copy(io.Discard, out)
			return s
		}
	}
	t.Fatalf("lastseen did not start: %s", s.log)
	return nil
}

// checkRaces fails the test if the service has met a data race.
func (s *service) checkRaces(t testing.TB) {
	t.Helper()
	if strings.Contains(s.log.String(), "DATA RACE") {
		t.Errorf("the service has a data race: %s", s.log)
	}
}

// kill ends the process as kill -9 does.
func (s *service) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// terminate asks the process to end and returns its exit code.
func (s *service) terminate(t testing.TB) int {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan struct{})
	go func() {
		_ = s.cmd.Wait() // the exit code is checked
		close(ended)
	}()
	select {
	case <-ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(10 * time.Second): // the promise of a bounded end, not a measurement
		t.Fatalf("lastseen still runs 10 seconds after SIGTERM: %s", s.log)
		return -1
	}
}

// call sends a request and returns the status and the body as JSON.
func (s *service) call(t testing.TB, method, path, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var answer map[string]any
	if len(raw) > 0 {
		require.NoError(t, json.Unmarshal(raw, &answer), "%s", raw)
	}
	return response.StatusCode, answer
}

// get is call for a GET that has to succeed.
func (s *service) get(t testing.TB, path string) map[string]any {
	t.Helper()
	status, answer := s.call(t, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, "%v", answer)
	return answer
}

// post is call for a POST that has to succeed.
func (s *service) post(t testing.TB, path, body string) map[string]any {
	t.Helper()
	status, answer := s.call(t, http.MethodPost, path, body)
	require.Equal(t, http.StatusOK, status, "%v", answer)
	return answer
}

// eachStore runs a test with the arguments for each store; state lives as long as the test.
func eachStore(t *testing.T, test func(t *testing.T, args []string)) {
	t.Run("file", func(t *testing.T) {
		test(t, []string{"--store", filepath.Join(t.TempDir(), "data.db")})
	})
	t.Run("redis", func(t *testing.T) {
		test(t, []string{"--store", redistest.Start(t), "--redis-timeout", "30s", "--redis-dial-timeout", "30s"})
	})
}

// brokenWriter panics.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { panic("broken") }

// TestRunPanics: a defect must not end the process with code 0.
func TestRunPanics(t *testing.T) {
	require.PanicsWithValue(t, "broken", func() { run(t.Context(), []string{"version"}, brokenWriter{}, io.Discard) })
}

// execute runs one command line to its end, with a context that has ended: serve stops at once.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err)
	return code, out.String(), err.String()
}

// runInProcess runs a command line that ends by itself.
func runInProcess(args ...string) (code int, out, log string) {
	var stdout, stderr bytes.Buffer
	code = run(context.Background(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}
