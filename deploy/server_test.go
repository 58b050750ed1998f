package deploy_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }

// startServer starts lastseen with what only configured namespaces export, retention, and some more arguments.
func startServer(t *testing.T, args ...string) *testserver.Server {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !bytes.Contains(body, []byte("presence.reset")) {
			w.WriteHeader(http.StatusBadRequest) // what is dropped is counted
		}
	}))
	t.Cleanup(receiver.Close)
	secret := testserver.WriteFile(t, "secret", []byte("whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32))))
	config := testserver.WriteConfig(t, fmt.Sprintf("namespaces: {chat: {retention: 1h}}\n"+
		"webhooks: {app: {url: %q, secrets-file: %q, namespaces: [chat]}}\n", receiver.URL, secret))
	return testserver.Start(t, append([]string{"--config", config, "--admin-listen", "127.0.0.1:0"}, args...)...)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

// use sends requests of every kind, successful ones and errors of the client.
func use(t *testing.T, s *testserver.Server) {
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
		{"POST", "/chat/pings", `{"pings":[{"user":"carol"},{"user":"dave"}]}`, 200},
		{"GET", "/chat/users/alice", "", 200},
		{"GET", "/chat/users", "", 200},
		{"GET", "/chat/counts", "", 200},
		{"POST", "/chat/lookup", `{"users":["alice","bob"]}`, 200},
		{"GET", "/chat/changes?user=alice", "", 200},
		{"POST", "/chat/changes", `{"users":["alice","bob"],"wait":"1ms"}`, 200},
		{"GET", "/chat/users/alice?unknown=1", "", 400},
		{"POST", "/chat/users/alice/ping", "{", 400},
	} {
		status, answer := s.Call(t, r.method, "/v1/namespaces"+r.path, r.body)
		require.Equal(t, r.status, status, "%s %s: %v", r.method, r.path, answer)
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
func scrape(t *testing.T, s *testserver.Server, series exported, types families) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(s.Metrics(t)))
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
