package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Process is a redis-server on this machine that a test can stop, freeze and start again.
type Process struct {
	Addr string // the same after a restart
	path string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// StartProcess starts a redis-server from PATH with additional settings ("--name", "value", …). Without one the test is
// skipped, or fails if LASTSEEN_TEST_REQUIRE contains redis.
func StartProcess(t testing.TB, settings ...string) *Process {
	t.Helper()
	p := newProcess(t, settings...)
	p.Start(t)
	return p
}

// newProcess returns a redis-server that is not started yet, or skips the test.
func newProcess(t testing.TB, settings ...string) *Process {
	t.Helper()
	p, err := findProcess(t, settings...)
	switch {
	case err == nil:
	case required("redis"):
		t.Fatalf("LASTSEEN_TEST_REQUIRE asks for redis: %v", err)
	default:
		t.Skip("no redis-server on PATH to stop and start: install it to run this test")
	}
	return p
}

func startAnyProcess(t testing.TB) (string, error) {
	p, err := findProcess(t)
	if err != nil {
		return "", err
	}
	return p.Addr, p.start()
}

func findProcess(t testing.TB, settings ...string) (*Process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	p := &Process{path: path, dir: t.TempDir(), Addr: freeAddr(t)}
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return nil, err
	}
	p.args = append([]string{
		"--bind", host, "--port", port, "--dir", p.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--loglevel", "warning",
	}, settings...)
	t.Cleanup(func() { p.Stop(t) })
	return p, nil
}

// busOffset is the distance of a Cluster node's port for other nodes from its port for clients.
const busOffset = 10000

// freeAddr returns a loopback address whose port is free, as is the port busOffset above it.
func freeAddr(t testing.TB) string {
	for range 1000 {
		addr, err := tryAddr()
		if err == nil {
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// tryAddr picks a port below the range from which the system assigns ports to connections, so that no connection takes
// it before the server does, or while the server is stopped. The port for other nodes is below that range, too.
func tryAddr() (string, error) {
	port := 10_000 + rand.IntN(12_000)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer listener.Close()
	bus, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+busOffset)))
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), bus.Close()
}

func (p *Process) start() error {
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stderr = os.Stderr
	return p.cmd.Start()
}

// URL returns the address as a store URL.
func (p *Process) URL() string { return "redis://" + p.Addr }

// Client returns a client of the server, closed with the test.
func (p *Process) Client(t testing.TB) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	return client
}

// Start starts the server again, with the data it had, and waits until it responds.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.StartLoading(t)
	awaitReady(t, p.Addr)
}

// StartLoading starts the server again, with more settings, and does not wait until it has loaded its data.
func (p *Process) StartLoading(t testing.TB, settings ...string) {
	t.Helper()
	p.args = append(p.args, settings...)
	check(t, p.start())
}

// LoseFolder deletes the folder of the server's data, as if its disk were lost.
func (p *Process) LoseFolder(t testing.TB) {
	t.Helper()
	check(t, os.RemoveAll(p.dir))
}

// Stop ends the server as kill -9 does.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Errorf("stopping Redis: %v", err)
	}
	_ = p.cmd.Wait() // reports the kill
	p.cmd = nil
}

// Freeze suspends the server, with its connections open, until Thaw. It returns when the server has stopped, which is a
// moment after the signal.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || !status.Stopped():
			t.Fatalf("the server did not freeze: %v, %v", status, err)
		}
		return
	}
}

// Thaw resumes a frozen server.
func (p *Process) Thaw(t testing.TB) { p.signal(t, syscall.SIGCONT) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	check(t, p.cmd.Process.Signal(s))
}
