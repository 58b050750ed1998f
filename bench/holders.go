package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// perProcess is the largest number of connections of one process of clients.
const perProcess = 15_000

// audience is clients that hold connections, in their own processes.
type audience struct {
	protocol string
	urls     []string
	args     []string
	users    int // that it has
	parts    []*part
}

// part is one process of clients.
type part struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen held
	done chan struct{}
}

// newAudience returns clients of servers. Grow connects them.
func newAudience(protocol string, urls []string, args ...string) *audience {
	a := &audience{protocol: protocol, args: args}
	for _, url := range urls {
		path := connectPath
		if protocol == centrifugeProtocol {
			path = centrifugePath
		}
		a.urls = append(a.urls, "ws"+strings.TrimPrefix(url, "http")+path)
	}
	return a
}

// grow connects more clients until there are n, and waits for their welcomes.
func (a *audience) grow(ctx context.Context, n int) error {
	for a.users < n {
		p, more := &part{done: make(chan struct{})}, min(perProcess, n-a.users)
		if err := p.start(ctx, append([]string{
			"hold", "-urls", strings.Join(a.urls, ","), "-first", fmt.Sprint(a.users), "-n", fmt.Sprint(more),
			"-protocol", a.protocol,
		}, a.args...)); err != nil {
			return err
		}
		a.parts, a.users = append(a.parts, p), a.users+more
		if err := a.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until all are welcome.
func (a *audience) await(ctx context.Context) error {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		seen := a.sum()
		if seen.Open == a.users {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d connections are open; the others: %v", seen.Open, a.users, seen.Ended)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// start starts a process of this program.
func (p *part) start(ctx context.Context, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = childCommand(ctx, self, args...)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTimeout
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var seen held
			if json.Unmarshal(lines.Bytes(), &seen) == nil { // the last line may be cut
				p.mu.Lock()
				p.seen = seen
				p.mu.Unlock()
			}
		}
		_ = p.cmd.Wait() // ended by stop, or await finds too few connections
	}()
	return nil
}

// sum returns what all clients have seen.
func (a *audience) sum() held {
	all := held{Ended: map[string]int{}, Refused: map[string]int{}}
	for _, p := range a.parts {
		p.mu.Lock()
		seen := p.seen
		p.mu.Unlock()
		all.Open += seen.Open
		all.Welcomed += seen.Welcomed
		for how, n := range seen.Ended {
			all.Ended[how] += n
		}
		for when, n := range seen.Refused {
			all.Refused[when] += n
		}
	}
	return all
}

// cpu returns the CPU time of all clients.
func (a *audience) cpu() (sum time.Duration, err error) {
	for _, p := range a.parts {
		used, err := cpuTime(p.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// stop ends all clients.
func (a *audience) stop() {
	for _, p := range a.parts {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-p.done
	}
}
