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
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute // a server may have a large file to load
	stopTimeout  = 15 * time.Second
)

// process is a server that this run started.
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

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// processes are the servers that this run started.
type processes struct {
	dir string // for their output
	all []*process
}

// start starts a server whose output goes to a file, or its standard output to out. The kernel kills it if this process
// dies.
func (p *processes) start(name string, out io.Writer, command string, args ...string) (*process, error) {
	logFile, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd := exec.Command(command, args...)
	cmd.Dir = p.dir
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
	p.all = append(p.all, started)
	return started, nil
}

// startAnnounced starts a server that prints the address on which it listens.
func (p *processes) startAnnounced(ctx context.Context, name, command string, args ...string) (*process, error) {
	reader, writer := io.Pipe()
	started, err := p.start(name, writer, command, args...)
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
		return nil, fmt.Errorf("%s did not start: %s", name, p.logTail(name))
	case <-time.After(startTimeout):
		return nil, fmt.Errorf("%s did not print its address", name)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startListening starts a server that listens on a given loopback port.
func (p *processes) startListening(ctx context.Context, name, port, command string, args ...string) (*process, error) {
	started, err := p.start(name, nil, command, args...)
	if err != nil {
		return nil, err
	}
	started.url = "127.0.0.1:" + port
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) && ctx.Err() == nil && started.alive() == nil {
		if connection, err := net.Dial("tcp", started.url); err == nil {
			return started, connection.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s does not listen: %s", name, p.logTail(name))
}

// logTail returns the end of a server's output.
func (p *processes) logTail(name string) string {
	content, _ := os.ReadFile(filepath.Join(p.dir, name+".log")) // it may be missing
	return strings.TrimSpace(string(content[max(0, len(content)-500):]))
}

// stopAll stops all processes, the last one first.
func (p *processes) stopAll() {
	for i := len(p.all) - 1; i >= 0; i-- {
		p.all[i].stop()
	}
	p.all = nil
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
	quoted := make([]string, len(args))
	for i, arg := range args {
		arg = regexp.MustCompile(`/\S*/lastseen-bench-[0-9]+$`).ReplaceAllString(arg, "DIR")
		arg = regexp.MustCompile(`/\S*/lastseen-bench-[0-9]+/`).ReplaceAllString(arg, "")
		arg = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).ReplaceAllString(arg, "127.0.0.1:PORT")
		if i > 0 && (args[i-1] == "-p" || args[i-1] == "--port") {
			arg = "PORT"
		}
		if arg == "" || strings.ContainsAny(arg, " '\"") {
			arg = "'" + arg + "'"
		}
		quoted[i] = arg
	}
	return strings.Join(quoted, " ")
}
