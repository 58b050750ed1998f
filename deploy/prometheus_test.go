package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// prometheus is a running Prometheus.
type prometheus struct{ url string }

// startPrometheus runs a Prometheus that scrapes the servers five times a second and evaluates the alert rules, until
// the test ends.
func startPrometheus(t *testing.T, servers []server) prometheus {
	t.Helper()
	path := testenv.Program(t, "prometheus", "prometheus")
	rules, err := filepath.Abs("prometheus/alerts.yml")
	require.NoError(t, err)
	var targets []string
	for _, s := range servers {
		targets = append(targets, strings.TrimPrefix(s.admin, "http://"))
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: lastseen, static_configs: [{targets: [%s]}]}]
`, rules, strings.Join(targets, ", ")), 0o600))
	for range 5 { // another process can take the port before Prometheus does
		if p, ok := tryPrometheus(t, path, dir, config); ok {
			return p
		}
	}
	t.Fatal("Prometheus does not start")
	return prometheus{}
}

func tryPrometheus(t *testing.T, path, dir, config string) (prometheus, bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	command := testenv.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--log.level=warn")
	log := new(strings.Builder)
	command.Stderr = log
	require.NoError(t, command.Start())
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // its log says why
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	for {
		select {
		case <-ended:
			t.Logf("Prometheus ended: %s", log)
			return prometheus{}, false
		case <-time.After(50 * time.Millisecond):
		}
		response, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return prometheus{"http://" + addr}, true
		}
	}
}
