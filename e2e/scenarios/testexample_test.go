package scenarios

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

type example struct {
	page, server string // URLs
	cmd          *exec.Cmd
	dir          string // of its temporary files
}

// startExample starts an example with the lastseen that the tests run, until the test ends. Its server has other
// settings where flags say so. The test also needs a browser, and runs in parallel with others.
func startExample(t *testing.T, folder string, flags ...string) *example {
	t.Helper()
	t.Parallel()
	testbrowser.Require(t)
	program := testserver.Build(t, folder)
	lastseen := testserver.Binary(t)
	if len(flags) > 0 {
		lastseen = filepath.Join(t.TempDir(), "lastseen")
		script := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\" %s\n", testserver.Binary(t), strings.Join(flags, " "))
		require.NoError(t, os.WriteFile(lastseen, []byte(script), 0o700))
	}
	e := &example{dir: t.TempDir()}
	e.cmd = testenv.CommandUntil(syscall.SIGTERM, program, "--listen", "127.0.0.1:0", "--lastseen", lastseen)
	e.cmd.Env = append(os.Environ(), "TMPDIR="+e.dir)
	log := &testenv.Log{}
	e.cmd.Stderr = log
	stdout, err := e.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, e.cmd.Start())
	t.Cleanup(func() {
		if e.cmd.ProcessState == nil {
			_ = e.cmd.Process.Signal(syscall.SIGTERM) // so that it ends its server
			_ = e.cmd.Wait()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, log)
	urls := regexp.MustCompile(`http://[\d.:]+`).FindAllString(line, -1)
	require.Len(t, urls, 2, line)
	e.page, e.server = urls[0], urls[1]
	return e
}

// complaints returns the problems of a page, except requests to the lastseen server.
func (e *example) complaints(b *testbrowser.Browser) (all []string) {
	for _, problem := range b.Seen() {
		if !regexp.MustCompile("^request to (ws|http)" + e.server[len("http"):] + "/").MatchString(problem) {
			all = append(all, problem)
		}
	}
	return all
}

// interrupt stops the example as Ctrl-C does, and checks that neither its server nor a file is left.
func (e *example) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, e.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, e.cmd.Wait(), "the exit code is 0")
	_, err := http.Get(e.server + "/healthz") //nolint:bodyclose // there is none
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	left, err := os.ReadDir(e.dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// startService starts an example that is a service without a page. It returns the URL that its log has after a text,
// and the log.
func startService(t *testing.T, folder, before string, flags ...string) (url string, log *testenv.Log) {
	t.Helper()
	service := testenv.Command(testserver.Build(t, folder), append([]string{"-listen", "127.0.0.1:0"}, flags...)...)
	log = &testenv.Log{}
	service.Stderr = log
	require.NoError(t, service.Start())
	t.Cleanup(func() {
		_ = service.Process.Kill()
		_ = service.Wait()
	})
	require.Eventually(t, func() bool {
		_, rest, _ := strings.Cut(log.String(), before)
		address, _, complete := strings.Cut(rest, "\n")
		url = address
		return complete
	}, scenarioWait, 10*time.Millisecond)
	return url, log
}
