package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// composition is what compose.yaml starts.
type composition struct {
	Services map[string]struct {
		Image           string
		Profiles        []string
		ReadOnly        bool     `yaml:"read_only"`
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		Restart         string
		StopGracePeriod string `yaml:"stop_grace_period"`
		Ports           []string
		Volumes         []string
		Environment     map[string]string
	}
}

func composeFile(t *testing.T) (file composition) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(read(t, "../compose.yaml"), &file))
	return file
}

func TestComposeGivesNoRights(t *testing.T) {
	file := composeFile(t)
	require.Len(t, file.Services, 5)
	for name, s := range file.Services {
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		require.Equal(t, "unless-stopped", s.Restart, name)
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:`, port, "anyone has full access")
		}
	}
	require.Len(t, file.Services["nginx"].Ports, 1)
	servers := file.Services["lastseen"]
	require.Empty(t, servers.Ports, "only nginx and Prometheus can reach them")
	require.Equal(t, "none", servers.Environment["LASTSEEN_AUTH"])
	require.NotEmpty(t, servers.Environment["LASTSEEN_TRUSTED_PROXIES"])
	require.Equal(t, "$http_host", find(t, "nginx.conf", `proxy_set_header Host (.*);`), "the servers check it")
	require.NotContains(t, servers.Environment, "LASTSEEN_ALLOWED_HOSTS")
	require.Equal(t, "$remote_addr", find(t, "nginx.conf", `proxy_set_header X-Forwarded-For (.*);`))
}

// TestComposeMonitors checks that monitoring is started only when asked for, and that Prometheus scrapes the servers'
// admin port.
func TestComposeMonitors(t *testing.T) {
	file := composeFile(t)
	for name, s := range file.Services {
		monitors := name == "prometheus" || name == "grafana"
		require.Equal(t, monitors, len(s.Profiles) > 0, name)
		if monitors {
			require.Equal(t, []string{"monitoring"}, s.Profiles, name)
			require.Regexp(t, `:v?\d+\.\d+\.\d+$`, s.Image, name)
		}
	}
	port := file.Services["lastseen"].Environment["LASTSEEN_ADMIN_LISTEN"]
	require.Equal(t, port, ":"+find(t, "prometheus/prometheus.yml", `(?m)^ +port: (\d+)$`))
	require.Equal(t, "lastseen", find(t, "prometheus/prometheus.yml", `names: \[(\S+)\]`))
	require.Equal(t, "lastseen", find(t, "prometheus/prometheus.yml", `job_name: (\S+)`), "alert rules select it")
	require.Contains(t, file.Services["prometheus"].Volumes, "./deploy/prometheus:/etc/prometheus:ro")
}
