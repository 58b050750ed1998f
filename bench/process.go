package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute // a server may have a large file to load
	stopTimeout  = 15 * time.Second
)

// server is a process that this run started, and the Redis that it uses.
type server struct {
	name  string
	cmd   *exec.Cmd
	port  string        // on loopback
	url   string        // with that port
	admin string        // where its metrics are; "" if nothing reads them
	stop  func()        // ends the process and waits for it
	done  chan struct{} // closed when it has ended
	store *server       // nil without Redis
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// alive returns an error when the process has ended.
func (s *server) alive() error {
	select {
	case <-s.done:
		return fmt.Errorf("%s has ended: %v", s.name, s.cmd.ProcessState)
	default:
		return nil
	}
}

// start starts a server with a name and a port, and waits until it listens. Its output goes to a file.
func (f *fixture) start(s server, command string, args ...string) (*server, error) {
	output, err := os.Create(f.path(s.name + ".log"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	ctx, cancel := context.WithCancel(f.ctx)
	cmd := childCommand(ctx, command, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = f.dir, output, output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	s.cmd, s.url, s.done = cmd, "http://127.0.0.1:"+s.port, make(chan struct{})
	s.stop = func() {
		cancel()
		<-s.done
	}
	f.started = append(f.started, &s)
	go func() {
		defer close(s.done)
		_ = cmd.Wait() // its state says how it ended
	}()
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline) && s.alive() == nil; {
		if connection, err := net.Dial("tcp", "127.0.0.1:"+s.port); err == nil {
			return &s, connection.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	printed, _ := os.ReadFile(output.Name()) // it may be missing
	return nil, fmt.Errorf("%s does not listen: %s", s.name, printed[max(0, len(printed)-500):])
}

// childCommand returns a command that the kernel kills if this process dies.
func childCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// runTool runs a command to its end and returns its output, and a measurement with its CPU time and command line.
func runTool(ctx context.Context, timeout time.Duration, name string, args ...string) ([]byte, measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := childCommand(ctx, name, args...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return nil, measurement{}, fmt.Errorf("%s: %w: %.300s", name, err, output)
	}
	load := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return output, measurement{load: load, command: commandLine(cmd.Args)}, nil
}

// freePort returns a loopback port on which nothing listens at present.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // valid
	return port, listener.Close()
}

// commandLine returns a command as one would type it, without the folders and ports of this run.
func commandLine(args []string) string {
	quoted := []string{filepath.Base(args[0])}
	for _, arg := range args[1:] {
		if arg == "" || strings.ContainsAny(arg, " '\"") {
			arg = "'" + arg + "'"
		}
		quoted = append(quoted, arg)
	}
	line := strings.Join(quoted, " ")
	line = regexp.MustCompile(`/\S*/lastseen-bench-[0-9]+/`).ReplaceAllString(line, "")
	line = regexp.MustCompile(`/\S*/lastseen-bench-[0-9]+`).ReplaceAllString(line, "DIR")
	return regexp.MustCompile(`(-p |--port |127\.0\.0\.1:)[0-9]+`).ReplaceAllString(line, "${1}PORT")
}
