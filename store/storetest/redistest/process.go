package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/internal/testenv"
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
// skipped, or fails: see [testenv.Missing].
func StartProcess(t testing.TB, settings ...string) *Process {
	t.Helper()
	p := newProcess(t, settings...)
	p.Start(t)
	return p
}

// StartReplica starts a replica of a server.
func StartReplica(t testing.TB, primary *Process, settings ...string) *Process {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr)
	check(t, err)
	return StartProcess(t, append([]string{"--replicaof", host, port}, settings...)...)
}

// newProcess returns a redis-server that is not started yet, or skips the test.
func newProcess(t testing.TB, settings ...string) *Process {
	t.Helper()
	p, err := findProcess(t, settings...)
	if err != nil {
		testenv.Missing(t, "redis", err)
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
	dir, err := os.MkdirTemp("", "lastseen-redis-") //nolint:usetesting // whose removal fails while a child writes
	if err != nil {
		return nil, err
	}
	p := &Process{path: path, dir: dir, Addr: freeAddr(t)}
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return nil, err
	}
	p.args = append([]string{
		"--bind", host, "--port", port, "--dir", p.dir,
		"--logfile", p.logFile(), "--save", "", "--appendonly", "yes", "--appendfsync", "no", "--loglevel", "warning",
	}, settings...)
	t.Cleanup(func() {
		p.Stop(t)
		if log, _ := os.ReadFile(p.logFile()); t.Failed() && len(log) > 0 {
			t.Logf("Redis at %s logged:\n%s", p.Addr, log)
		}
		_ = os.RemoveAll(dir) // a child that writes a snapshot can be there for a moment longer
	})
	return p, nil
}

func (p *Process) logFile() string { return filepath.Join(p.dir, "redis.log") }

// busOffset is the distance of a Cluster node's port for other nodes from its port for clients.
const busOffset = 10000

// The ports for clients. Those for other nodes are busOffset above, and all are below the range from which systems
// assign ports to connections: so no connection takes one before the server does, or while the server is stopped.
const firstPort, ports = 10_000, busOffset

// freeAddr returns a loopback address for a Redis, or for a Sentinel.
func freeAddr(t testing.TB) string { return FreeAddr(t, "127.0.0.1") }

// FreeAddr returns an address whose port is free on this machine, as is the port busOffset above it. No other test gets
// it, also in another process, until this one ends: a server can stop and start again there.
func FreeAddr(t testing.TB, host string) string {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		lock, err := lockPort(port)
		if err != nil {
			continue
		}
		if isFree(port) && isFree(port+busOffset) {
			t.Cleanup(func() { lock.Close() })
			return net.JoinHostPort(host, strconv.Itoa(port))
		}
		lock.Close()
	}
	t.Fatal("no free port")
	return ""
}

// lockPort locks a port against other tests on this machine until the file is closed. A server does not listen yet when
// its port is chosen, or not any longer while it is stopped.
func lockPort(port int) (*os.File, error) {
	dir := filepath.Join(os.TempDir(), "lastseen-test-ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && listener.Close() == nil
}

func (p *Process) start() error {
	p.cmd = testenv.Command(p.path, p.args...)
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
