package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// terminal is a program on a terminal.
type terminal struct {
	*exec.Cmd
	keys io.Writer
	out  testenv.Log
	read chan struct{} // closed when the program has ended
}

func startOnTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { controller.Close() })
	fd := int(controller.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 60}))
	device, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer device.Close()
	p := &terminal{Cmd: testenv.Command(testserver.Binary(t), args...), keys: controller, read: make(chan struct{})}
	p.Stdin, p.Stdout, p.Stderr = device, device, device
	p.Env = append(os.Environ(), "TERM=xterm-256color")
	require.NoError(t, p.Start())
	go func() {
		defer close(p.read)
		_, _ = io.Copy(&p.out, controller) // until the program ends
	}()
	return p
}

// TestWatchOnTerminal: the table is there, and each way to end leaves the terminal as it was.
func TestWatchOnTerminal(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Post(t, "/v1/namespaces/chat/users/alice/ping", "")
	key := func(text string) func(*terminal) error {
		return func(p *terminal) error { _, err := io.WriteString(p.keys, text); return err }
	}
	for name, end := range map[string]func(*terminal) error{
		"q": key("q"), "Ctrl-C": key("\x03"),
		"SIGTERM": func(p *terminal) error { return p.Process.Signal(syscall.SIGTERM) },
	} {
		p := startOnTerminal(t, "watch", "chat", "--server", s.URL)
		require.Eventually(t, func() bool {
			return strings.Contains(p.out.String(), "alice") && strings.Contains(p.out.String(), "● green")
		}, time.Minute, 10*time.Millisecond, "%s", &p.out)
		require.NoError(t, end(p))
		require.NoError(t, p.Wait(), "%s: %s", name, &p.out)
		<-p.read
		require.Contains(t, p.out.String(), "\x1b[?1049l", "%s: the other screen is left", name)
	}
	closed := testserver.Start(t, "--config", testserver.WriteConfig(t,
		"keys: {a: {hash: "+testserver.HashOf("ls_a")+", scopes: [read], namespaces: [chat]}}"))
	p := startOnTerminal(t, "watch", "chat", "--server", closed.URL)
	require.Error(t, p.Wait())
	<-p.read
	require.Equal(t, 1, p.ProcessState.ExitCode())
	_, last, _ := strings.Cut(p.out.String(), "\x1b[?1049l")
	require.Contains(t, last, "lastseen: unauthenticated: ")
}
