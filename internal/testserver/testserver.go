// Package testserver builds lastseen, starts it, and sends requests to it, as its users do. It is for tests only.
//
// A package that uses it has a TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }
package testserver

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// Server is a running lastseen.
type Server struct {
	URL   string       // of the API
	Docs  string       // URL of Swagger UI, according to the banner
	Admin string       // URL for operators; "" if it is off
	Log   *testenv.Log // of the process
	Cmd   *exec.Cmd
}

// Start runs the binary on a free port with some more arguments, until the test ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{
		Cmd: testenv.Command(Binary(t), append([]string{"--listen", "127.0.0.1:0"}, args...)...),
		Log: &testenv.Log{},
	}
	s.Cmd.Dir = t.TempDir()
	s.Cmd.Stderr = s.Log
	out, err := s.Cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.Cmd.Start())
	t.Cleanup(func() {
		s.Kill()
		s.checkRaces(t)
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if api, ok := strings.CutPrefix(lines.Text(), "  API   "); ok {
			s.URL = strings.TrimSuffix(api, "/v1/namespaces")
		}
		if docs, ok := strings.CutPrefix(lines.Text(), "  docs  "); ok {
			s.Docs = docs
		}
		if admin, ok := strings.CutPrefix(lines.Text(), "  admin "); ok {
			s.Admin = admin
		}
		if strings.HasPrefix(lines.Text(), "  for   ") {
			go io.Copy(io.Discard, out)
			return s
		}
	}
	t.Fatalf("lastseen did not start: %s", s.Log)
	return nil
}

// checkRaces fails the test if the server has met a data race.
func (s *Server) checkRaces(t testing.TB) {
	t.Helper()
	if strings.Contains(s.Log.String(), "DATA RACE") {
		t.Errorf("the server has a data race: %s", s.Log)
	}
}

// Kill ends the process as kill -9 does.
func (s *Server) Kill() {
	if s.Cmd.ProcessState == nil {
		_ = s.Cmd.Process.Kill()
		_ = s.Cmd.Wait()
	}
}

// Terminate asks the process to end and returns its exit code.
func (s *Server) Terminate(t testing.TB) int {
	t.Helper()
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	ended := make(chan struct{})
	go func() {
		_ = s.Cmd.Wait() // the exit code is checked
		close(ended)
	}()
	select {
	case <-ended:
		return s.Cmd.ProcessState.ExitCode()
	case <-time.After(10 * time.Second): // the promise of a bounded end, not a measurement
		t.Fatalf("lastseen still runs 10 seconds after SIGTERM: %s", s.Log)
		return -1
	}
}

// EachStore runs a test with the arguments for each store; state lives as long as the test.
func EachStore(t *testing.T, test func(t *testing.T, args []string)) {
	t.Run("file", func(t *testing.T) {
		test(t, []string{"--store", filepath.Join(t.TempDir(), "data.db")})
	})
	t.Run("redis", func(t *testing.T) {
		test(t, []string{"--store", redistest.Start(t), "--redis-timeout", "30s", "--redis-dial-timeout", "30s"})
	})
}
