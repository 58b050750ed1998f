package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute // a server may have a large file to load
	stopTimeout  = 15 * time.Second
)

// process is a server that was started here.
type process struct {
	name string
	cmd  *exec.Cmd
	url  string        // of its HTTP interface, or host:port
	done chan struct{} // closed when it has ended
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// alive returns an error when the process has ended.
func (p *process) alive() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended: %v", p.name, p.cmd.ProcessState)
	default:
		return nil
	}
}

// stop asks the process to end, and waits.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// processes are all that were started here, and nothing else.
type processes struct {
	dir string

	mu  sync.Mutex
	all []*process
}

// start starts a server. What it prints goes into a file; out, if there is one, gets its standard output.
// It dies with this process, however that ends.
func (p *processes) start(name string, out io.Writer, env []string, command string, args ...string) (*process, error) {
	logFile, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd := exec.Command(command, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if out != nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(started.done)
		_ = cmd.Wait() // its state says how it ended
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, started)
	return started, nil
}

// startAnnounced starts a server that prints the address at which it listens.
func (p *processes) startAnnounced(ctx context.Context, name string, env []string, command string, args ...string) (*process, error) {
	reader, writer := io.Pipe()
	started, err := p.start(name, writer, env, command, args...)
	if err != nil {
		return nil, err
	}
	found := make(chan string, 1)
	go func() {
		address := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`)
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			if url := address.FindString(lines.Text()); url != "" && cap(found) > len(found) {
				found <- url
			}
		}
	}()
	select {
	case started.url = <-found:
		return started, nil
	case <-started.done:
		return nil, fmt.Errorf("%s did not start: %s", name, p.lastWords(name))
	case <-time.After(startTimeout):
		return nil, fmt.Errorf("%s did not say where it listens", name)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startListening starts a server that is told where to listen.
func (p *processes) startListening(ctx context.Context, name, address, command string, args ...string) (*process, error) {
	started, err := p.start(name, nil, nil, command, args...)
	if err != nil {
		return nil, err
	}
	started.url = address
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) && ctx.Err() == nil && started.alive() == nil {
		if connection, err := net.Dial("tcp", address); err == nil {
			return started, connection.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s does not listen: %s", name, p.lastWords(name))
}

// lastWords returns the end of what a server has printed.
func (p *processes) lastWords(name string) string {
	content, _ := os.ReadFile(filepath.Join(p.dir, name+".log")) // it may have printed nothing
	return strings.TrimSpace(string(content[max(0, len(content)-500):]))
}

// stopAll ends all that were started, the last one first.
func (p *processes) stopAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.all) - 1; i >= 0; i-- {
		p.all[i].stop()
	}
	p.all = nil
}

// freeAddress returns a loopback address at which nothing listens just now.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
