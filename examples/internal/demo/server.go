package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTime is how long the server can take to stop before it is killed.
const stopTime = 10 * time.Second

// server is a lastseen server: a child process with its data in a temporary folder.
type server struct {
	url   string
	dir   string
	cmd   *exec.Cmd
	log   bytes.Buffer // read it only after ended
	ended chan struct{}
}

// startServer starts a lastseen server that pages of some origins can use. It builds the program if there is none. The
// thresholds are short, so that every status shows within half a minute.
func startServer(ctx context.Context, program string, origins, settings []string) (s *server, err error) {
	dir, err := os.MkdirTemp("", "lastseen-example-*")
	if err != nil {
		return nil, err
	}
	s = &server{dir: dir, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if program == "" {
		if program, err = build(ctx, dir); err != nil {
			return nil, err
		}
	}
	s.cmd = exec.Command(program, append([]string{
		"serve", "--listen", "127.0.0.1:0", "--admin-listen", "off",
		"--store", filepath.Join(dir, "example.db"), "--green", "10s", "--yellow", "25s", "--ping-interval", "4s",
		"--disconnect-grace", "2s", "--cors-origins", strings.Join(origins, ","),
	}, settings...)...)
	s.cmd.Env = environment()
	s.cmd.Stderr = &s.log
	return s, s.start()
}

// build builds the lastseen program of this module.
func build(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "lastseen")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/lastseen/lastseen/cmd/lastseen")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building lastseen: %w\n%s", err, out)
	}
	return program, nil
}

// environment is that of this process without settings of lastseen, which would apply to the server.
func environment() (all []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "LASTSEEN_") {
			all = append(all, variable)
		}
	}
	return all
}

// start starts the process and waits until it accepts requests.
func (s *server) start() error {
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for s.url == "" && lines.Scan() {
		if api, found := strings.CutPrefix(strings.TrimSpace(lines.Text()), "API "); found {
			s.url = strings.TrimSuffix(strings.TrimSpace(api), "/v1/namespaces")
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out) // Wait must not be called before the last read
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	if s.url == "" {
		<-s.ended
		return fmt.Errorf("lastseen does not start:\n%s", &s.log)
	}
	return nil
}

// whileRunning returns a context that ends when the process does.
func (s *server) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	running, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-s.ended:
		case <-running.Done():
		}
	}()
	return running, cancel
}

// stop stops the process and deletes its data.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopTime):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	_ = os.RemoveAll(s.dir)
}

// origins returns the origins under which browsers on this machine open the page.
func origins(address net.Addr) []string {
	_, port, _ := net.SplitHostPort(address.String())
	all := []string{"http://127.0.0.1:" + port, "http://localhost:" + port}
	if own := "http://" + address.String(); own != all[0] {
		all = append(all, own)
	}
	return all
}
