package deploy_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// server is a running lastseen.
type server struct {
	api, admin string // URLs
}

// buildServer returns the binary.
func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "lastseen")
	run(t, "..", "go", "build", "-o", binary, "./cmd/lastseen")
	return binary
}

// serverConfig is the configuration of the servers: what only configured namespaces export, and retention.
const serverConfig = `
namespaces:
  chat: {retention: 1h}
`

// startServer runs the binary on free ports with some more arguments, until the test ends.
func startServer(t *testing.T, binary string, args ...string) server {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "lastseen.yaml")
	require.NoError(t, os.WriteFile(config, []byte(serverConfig), 0o600))
	args = append([]string{"--config", config, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
	command := testenv.Command(binary, args...)
	command.Dir = dir
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "LASTSEEN_") {
			command.Env = append(command.Env, variable)
		}
	}
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	log := new(strings.Builder)
	command.Stderr = log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // reports the kill
	})
	s := readBanner(out)
	if s.api == "" || s.admin == "" {
		_ = command.Process.Kill()
		_ = command.Wait()
		t.Fatalf("lastseen did not start: %s", log)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return s
}

// readBanner returns the addresses that a server prints when it is ready.
func readBanner(out io.Reader) (s server) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if api, ok := strings.CutPrefix(lines.Text(), "  API   "); ok {
			s.api = api
		}
		if admin, ok := strings.CutPrefix(lines.Text(), "  admin "); ok {
			s.admin = admin
		}
		if strings.HasPrefix(lines.Text(), "  for   ") { // the last line that is always there
			return s
		}
	}
	return s
}

// request sends a request and returns the status and the body.
func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if strings.HasPrefix(body, "{") && strings.Contains(body, "\n") {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

// use sends requests of every kind, successful ones and errors of the client.
func (s server) use(t *testing.T) {
	t.Helper()
	for _, r := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/chat/users/alice/ping", "", 200},
		{"POST", "/chat/users/alice/ping", `{"at":"2020-01-01T00:00:00Z"}`, 200},
		{"POST", "/chat/users/bob/ping", "", 200},
		{"POST", "/chat/users/bob/leave", "", 200},
		{"POST", "/other/users/alice/ping", "", 200},
		{"POST", "/chat/pings", "{\"user\":\"carol\"}\n{\"user\":\"dave\"}\n", 200},
		{"GET", "/chat/users/alice", "", 200},
		{"GET", "/chat/users", "", 200},
		{"GET", "/chat/counts", "", 200},
		{"POST", "/chat/lookup", `{"users":["alice","bob"]}`, 200},
		{"GET", "/chat/changes?user=alice", "", 200},
		{"POST", "/chat/changes", `{"users":["alice","bob"],"wait":"1ms"}`, 200},
		{"GET", "/chat/users/alice?unknown=1", "", 400},
		{"POST", "/chat/users/alice/ping", "{", 400},
	} {
		status, body := request(t, r.method, s.api+r.path, r.body)
		require.Equal(t, r.status, status, "%s %s: %s", r.method, r.path, body)
	}
}

// exported is what a server exports: by name of a series, the values of each of its labels.
type exported map[string]map[string]map[string]bool

func (e exported) add(series, label, value string) {
	if e[series] == nil {
		e[series] = map[string]map[string]bool{}
	}
	if label == "" {
		return
	}
	if e[series][label] == nil {
		e[series][label] = map[string]bool{}
	}
	e[series][label][value] = true
}

// families are the metrics, by name, and their types.
type families map[string]string

// scrape adds what the server exports now.
func (s server) scrape(t *testing.T, series exported, types families) {
	t.Helper()
	status, text := request(t, http.MethodGet, s.admin+"/metrics", "")
	require.Equal(t, http.StatusOK, status)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	for name, family := range parsed {
		types[name] = strings.ToLower(family.GetType().String())
		names := []string{name}
		if types[name] == "histogram" {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
			series.add(names[0], "le", "+Inf")
		}
		for _, metric := range family.GetMetric() {
			for _, n := range names {
				series.add(n, "", "")
				for _, label := range metric.GetLabel() {
					series.add(n, label.GetName(), label.GetValue())
				}
			}
		}
	}
}
