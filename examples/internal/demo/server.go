package demo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The times of statuses are short, so that every status shows within half a minute.
const (
	Green        = 10 * time.Second
	Yellow       = 25 * time.Second
	PingInterval = 4 * time.Second
)

// stopTime is how long the server can take to stop before it is killed.
const stopTime = 10 * time.Second

// withServer starts a lastseen server, calls use with its URL, and stops the server. The context of use ends when the
// server does, which is an error.
func withServer(
	ctx context.Context, program, dir string, settings []string, use func(ctx context.Context, url string) error,
) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(running, program, append([]string{
		"serve", "--listen", "127.0.0.1:0", "--admin-listen", "off", "--store", filepath.Join(dir, "example.db"),
		"--green", Green.String(), "--yellow", Yellow.String(), "--ping-interval", PingInterval.String(),
		"--disconnect-grace", "2s",
	}, settings...)...)
	isSetting := func(variable string) bool { return strings.HasPrefix(variable, "LASTSEEN_") }
	cmd.Env = slices.DeleteFunc(os.Environ(), isSetting) // those of this process would apply to the server
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	var log bytes.Buffer // for after the end
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log says why it ended
		close(ended)
		stop()
		_ = in.Close()
	}()
	url := readURL(out)
	if url == "" {
		<-ended
		return fmt.Errorf("lastseen does not start:\n%s", &log)
	}
	err := use(running, url)
	crashed := ctx.Err() == nil && running.Err() != nil
	stop()
	<-ended
	if crashed {
		return fmt.Errorf("lastseen has ended:\n%s", &log)
	}
	return err
}

// readURL reads the URL of a server from what it prints when it is ready; "" if it ends before. It discards the rest.
func readURL(out io.Reader) (url string) {
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		if api, found := strings.CutPrefix(strings.TrimSpace(lines.Text()), "API "); found {
			url = strings.TrimSuffix(strings.TrimSpace(api), "/v1/namespaces")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return url
}
