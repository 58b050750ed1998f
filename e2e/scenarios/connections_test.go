package scenarios

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestBodiesAreBounded sends many requests without their last byte, each on its own connection: the process takes no
// more memory than the setting allows, plus a little for each connection.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "it takes memory")
	const size = 1 << 20
	bodies := testenv.Choose(700, 150)
	s := testserver.Start(t, "--body-memory", "32MiB")
	s.Post(t, alice+"/ping", "")
	before := memoryOf(t, s)
	part := []byte(strings.Repeat(" ", size-1))
	status := map[int]int{}
	for range bodies {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
			size)
		require.NoError(t, err)
		_, err = conn.Write(part)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			status[response.StatusCode]++
		}
	}
	taken := memoryOf(t, s) - before
	t.Logf("%d MiB for %d bodies; refused: %v", taken>>20, bodies, status)
	require.Less(t, taken, 2*32<<20+bodies*64<<10)
	s.Post(t, alice+"/ping", `{"at":100123}`)
}

// TestIdleConnections opens thousands of connections and leaves them idle. Each costs little memory, other clients are
// served, and the connections are closed when their clients disconnect.
func TestIdleConnections(t *testing.T) {
	idle, most := 10_000, 64<<10 // connections, and bytes for each; three times what it takes
	if testenv.Race {            // the detector allows 8,128 goroutines, and takes memory
		idle, most = 2_000, most*10
	}
	if !testenv.Full() {
		idle = 1_000
	}
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)) // package os has raised it as far as it goes
	if need := uint64(idle + 200); limit.Cur < need {
		t.Skipf("a process may open %d files here; the test needs %d", limit.Cur, need)
	}
	s := testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	files, memory := filesOf(t, s), memoryOf(t, s)
	conns := connectIdly(t, s, idle)
	require.GreaterOrEqual(t, filesOf(t, s), files+idle, "all are open")
	taken := memoryOf(t, s) - memory
	t.Logf("%d bytes for each of %d connections", taken/idle, idle)
	require.Less(t, taken, idle*most)
	for user := range 100 {
		s.Post(t, fmt.Sprintf("/v1/namespaces/chat/users/%d/ping", user), "")
	}
	require.EqualValues(t, 101, s.Get(t, "/v1/namespaces/chat/counts")["green"])
	require.NoError(t, ask(conns[0]), "the first one may go on")
	require.NoError(t, ask(conns[idle-1]))
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	require.Eventually(t, func() bool { return filesOf(t, s) <= files }, scenarioWait, 100*time.Millisecond,
		"the connections should be closed")
}

// connectIdly opens connections, asks one thing on each, and leaves them open.
func connectIdly(t *testing.T, s *testserver.Server, idle int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, idle)
	var clients sync.WaitGroup
	const workers = 8
	for worker := range workers {
		clients.Go(func() {
			for i := worker; i < idle; i += workers {
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
				if !assert.NoError(t, err) || !assert.NoError(t, ask(conn)) {
					return
				}
				conns[i] = conn
			}
		})
	}
	clients.Wait()
	t.Cleanup(func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	})
	require.False(t, t.Failed(), "not all connections could be opened")
	return conns
}

// ask sends a request and reads its answer.
func ask(conn net.Conn) error {
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// filesOf returns how many files and connections the process has open.
func filesOf(t *testing.T, s *testserver.Server) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Cmd.Process.Pid))
	if os.IsNotExist(err) {
		t.Skip("counting open files needs /proc")
	}
	require.NoError(t, err)
	return len(entries)
}

func memoryOf(t *testing.T, s *testserver.Server) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Cmd.Process.Pid))
	require.NoError(t, err)
	var kib int
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib << 10
}
