package guides

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestReadme runs the README's curl lines as written, one after another, and compares what they
// print with the README, except times and random values.
func TestReadme(t *testing.T) {
	t.Parallel()
	runConsole(t, "../../README.md", 2)
}

// TestTour runs the curl lines of the guide in the same way.
func TestTour(t *testing.T) {
	t.Parallel()
	runConsole(t, tour, 8)
}

// TestDevicesGuide runs the curl lines of the guide in the same way.
func TestDevicesGuide(t *testing.T) {
	t.Parallel()
	runConsole(t, "../../docs/devices.md", 4)
}

// TestAvailabilityGuide runs the curl lines of the guide in the same way, with the embedded store alone: on Redis, the
// first user who becomes invisible has to wait for half a minute.
func TestAvailabilityGuide(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "../../docs/availability.md", 8)
	runSteps(t, steps, []string{"--store", filepath.Join(t.TempDir(), "data.db")})
}

// TestContactsGuide runs the curl lines of docs/visibility.md in the same way, with its configuration and that of
// docs/contacts.md. They have tokens and a key in variables.
func TestContactsGuide(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "../../docs/visibility.md", 7)
	blocks := append(testguide.Blocks(t, "visibility.md", "yaml"), testguide.Blocks(t, "contacts.md", "yaml")...)
	require.Len(t, blocks, 2)
	content := strings.Replace(blocks[0]+"\n"+blocks[1], "jwt-secret-file: jwt-secret\n",
		"jwt-secret-file: "+testserver.WriteFile(t, "jwt-secret", []byte(testserver.Secret))+"\n", 1)
	content = regexp.MustCompile("sha256:[0-9a-f]{64}").ReplaceAllString(content, testserver.HashOf("ls_backend"))
	environ := []string{"backend=ls_backend"}
	for _, user := range []string{"alice", "bob"} {
		environ = append(environ, user+"="+testserver.UserToken(t,
			map[string]any{"iss": "https://app.example.com", "sub": user, "namespaces": "chat"}))
	}
	testserver.EachStore(t, func(t *testing.T, args []string) {
		runSteps(t, steps, append(args, "--config", testserver.WriteConfig(t, content)), environ...)
	})
}

// TestCallsGuide runs the curl lines of the guide in the same way.
func TestCallsGuide(t *testing.T) {
	t.Parallel()
	runConsole(t, "../../docs/calls.md", 5)
}

// runConsole runs the commands of a text, which are more than some, with each store.
func runConsole(t *testing.T, name string, some int) {
	t.Helper()
	steps := stepsOf(t, name, some)
	testserver.EachStore(t, func(t *testing.T, args []string) { runSteps(t, steps, args) })
}

// stepsOf returns the commands of a text, which are more than some.
func stepsOf(t *testing.T, name string, some int) []step {
	t.Helper()
	testenv.Program(t, "bash", "bash")
	testenv.Program(t, "curl", "curl")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	steps := consoleSteps(string(text))
	require.Greater(t, len(steps), some, "the examples were not found")
	return steps
}

// runSteps runs commands against a server with some arguments, and compares what they print. They can use some more
// variables, and $call, the call in what was printed last.
func runSteps(t *testing.T, steps []step, args []string, variables ...string) {
	t.Helper()
	environ := append(curlEnviron(t, testserver.Start(t, args...)), variables...)
	for _, step := range steps {
		cmd := testenv.Command("bash", "-c", step.command)
		cmd.Env = environ
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", step.command, out)
		require.Equal(t, masked(step.output), masked(string(out)), step.command)
		if call := regexp.MustCompile(callIDPattern).FindStringSubmatch(string(out)); call != nil {
			environ = append(environ, "call="+call[1])
		}
	}
}

// curlEnviron returns the environment in which the README's lines, which name the default port, reach a service: curl's
// own configuration leads them there.
func curlEnviron(t *testing.T, s *testserver.Server) []string {
	t.Helper()
	home := t.TempDir()
	config := fmt.Sprintf("silent\nshow-error\nconnect-to = 127.0.0.1:8080:%s\n", strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte(config), 0o600))
	return append(os.Environ(), "CURL_HOME="+home, "HOME="+home)
}

// tour is the guide with the longest transcripts.
const tour = "../../docs/tour.md"

// startTourLine starts the only line of the tour with a prefix, until the test ends, and returns its output.
func startTourLine(t *testing.T, s *testserver.Server, prefix string) io.Reader {
	t.Helper()
	testenv.Program(t, "bash", "bash")
	testenv.Program(t, "curl", "curl")
	guide, err := os.ReadFile(tour)
	require.NoError(t, err)
	_, line, found := strings.Cut(string(guide), "\n"+prefix)
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	cmd := testenv.Command("bash", "-c", "exec "+strings.TrimSpace(prefix)+" "+line)
	cmd.Env = curlEnviron(t, s)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return out
}

type step struct{ command, output string }

// consoleSteps returns the commands in a text's console blocks, each with what follows it.
func consoleSteps(text string) []step {
	var steps []step
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: command})
			} else {
				steps[len(steps)-1].output += line
			}
		}
	}
	return steps
}

const callIDPattern = `"id":"([A-Z2-7]{26})"`

// masked hides what differs from run to run.
func masked(text string) string {
	for pattern, mask := range map[string]string{
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`:            "TIME",
		`"ping_after_ms":2[4-9]\d{3}|"ping_after_ms":30000`: `"ping_after_ms":N`,
		`"next_cursor":"[\w-]+"`:                            `"next_cursor":"CURSOR"`,
		`"cursor":"[\w-]+"`:                                 `"cursor":"CURSOR"`,
		`"poll_after_ms":4\d{3}|"poll_after_ms":5000`:       `"poll_after_ms":N`,
		`"request_id":"\w+"`:                                `"request_id":"ID"`,
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, mask)
	}
	return regexp.MustCompile(callIDPattern).ReplaceAllString(text, `"id":"ID"`)
}

// TestTourFollows runs the tour's command that follows changes, as written.
func TestTourFollows(t *testing.T) {
	t.Parallel()
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		out := startTourLine(t, s, "    curl -N ")
		events := testserver.ReadEvents(out)
		events.Until(t, `"user":"bob","status":"grey"`)
		s.Post(t, alice+"/ping", "")
		events.Until(t, `"user":"alice","status":"green"`)
		s.Post(t, strings.ReplaceAll(alice, "alice", "bob")+"/ping", "")
		events.Until(t, `"user":"bob","status":"green"`)
	})
}
