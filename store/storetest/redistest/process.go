package redistest

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Process is a redis-server of this machine that a test can stop, freeze and start again.
type Process struct {
	Addr string // the same after a restart
	path string
	dir  string
	cmd  *exec.Cmd
}

// StartProcess returns a new redis-server from PATH. Without one the test is skipped, or fails if
// LASTSEEN_TEST_REQUIRE says so.
func StartProcess(t testing.TB) *Process {
	t.Helper()
	p, err := startProcess(t)
	switch {
	case err == nil:
		awaitReady(t, p.Addr)
	case required("redis"):
		t.Fatalf("LASTSEEN_TEST_REQUIRE asks for redis: %v", err)
	default:
		t.Skip("no redis-server on PATH to stop and start: install it to run this test")
	}
	return p
}

func startAnyProcess(t testing.TB) (string, error) {
	p, err := startProcess(t)
	if err != nil {
		return "", err
	}
	return p.Addr, nil
}

func startProcess(t testing.TB) (*Process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	p := &Process{path: path, dir: t.TempDir(), Addr: freeAddr(t)}
	t.Cleanup(func() { p.Stop(t) })
	return p, p.start()
}

// freeAddr returns a loopback address at which nothing listens just now.
func freeAddr(t testing.TB) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (p *Process) start() error {
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(p.path, "--bind", host, "--port", port, "--dir", p.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--loglevel", "warning")
	p.cmd.Stderr = os.Stderr
	return p.cmd.Start()
}

// URL returns the address as a store URL.
func (p *Process) URL() string { return "redis://" + p.Addr }

// Start starts the server again, with the data it had, and waits until it answers.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, p.Addr)
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

// Freeze stops the server from doing anything, with its connections open, until it is thawed.
func (p *Process) Freeze(t testing.TB) { p.signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (p *Process) Thaw(t testing.TB) { p.signal(t, syscall.SIGCONT) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
