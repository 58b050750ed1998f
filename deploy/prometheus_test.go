package deploy_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

type prometheus struct{ url string }

// startPrometheus runs a Prometheus that scrapes the servers five times a second and evaluates the alert rules, until
// the test ends.
func startPrometheus(t *testing.T, servers []*testserver.Server) prometheus {
	t.Helper()
	path := testenv.Program(t, "prometheus", "prometheus")
	rules, err := filepath.Abs("prometheus/alerts.yml")
	require.NoError(t, err)
	var targets []string
	for _, s := range servers {
		targets = append(targets, strings.TrimPrefix(s.Admin, "http://"))
	}
	config := testserver.WriteFile(t, "prometheus.yml", fmt.Appendf(nil, `
global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: lastseen, static_configs: [{targets: [%s]}]}]
`, rules, strings.Join(targets, ", ")))
	for range 5 { // another process can take the port before Prometheus does
		if p, ok := tryPrometheus(t, path, config); ok {
			return p
		}
	}
	t.Fatal("Prometheus does not start")
	return prometheus{}
}

func tryPrometheus(t *testing.T, path, config string) (prometheus, bool) {
	t.Helper()
	addr := redistest.FreeAddr(t, "127.0.0.1")
	command := testenv.Command(path, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(),
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
		if err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK {
			return prometheus{"http://" + addr}, true
		}
	}
}
