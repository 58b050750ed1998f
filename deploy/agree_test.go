// Package deploy_test checks what needs no container: that the files which run lastseen agree with each
// other. The script named test does the rest.
package deploy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// drainSeconds is how long lastseen may take to end, the last flush included.
const drainSeconds = 10

func TestKubernetesObjectsFindEachOther(t *testing.T) {
	d, s, b := kubernetes(t)
	require.Equal(t, []string{"apps/v1 Deployment", "v1 Service", "policy/v1 PodDisruptionBudget"}, []string{
		d.APIVersion + " " + d.Kind, s.APIVersion + " " + s.Kind, b.APIVersion + " " + b.Kind,
	})
	ours := d.Spec.Template.Metadata.Labels
	require.NotEmpty(t, ours)
	for _, selected := range []labels{
		d.Spec.Selector.MatchLabels, s.Spec.Selector, b.Spec.Selector.MatchLabels,
		d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		require.Equal(t, ours, selected)
	}
	c := d.Spec.Template.Spec.Containers[0]
	require.Equal(t, c.Ports[0].Name, s.Spec.Ports[0].TargetPort)
	require.Equal(t, "ClusterIP", s.Spec.Type)
	require.Less(t, b.Spec.MaxUnavailable, d.Spec.Replicas)
	require.Equal(t, "LASTSEEN_STORE", c.Env[0].Name)
	require.Equal(t, d.Metadata.Name, c.Env[0].ValueFrom.SecretKeyRef.Name)
}

// TestKubernetesAsksForKeys: the file with the keys comes from the secret, and nothing lets everyone in.
func TestKubernetesAsksForKeys(t *testing.T) {
	d, _, _ := kubernetes(t)
	spec := d.Spec.Template.Spec
	mount, volume := spec.Containers[0].VolumeMounts[0], spec.Volumes[0]
	require.Equal(t, volume.Name, mount.Name)
	require.True(t, mount.ReadOnly)
	require.Equal(t, d.Metadata.Name, volume.Secret.SecretName)
	require.Equal(t, volume.Secret.Items[0].Key, volume.Secret.Items[0].Path)
	config := spec.Containers[0].Env[1]
	require.Equal(t, "LASTSEEN_CONFIG", config.Name)
	require.Equal(t, mount.MountPath+"/"+volume.Secret.Items[0].Path, config.Value)
	for _, file := range []string{"kubernetes.yaml", "../Dockerfile"} {
		require.NotRegexp(t, `(?m)^[^#]*LASTSEEN_AUTH`, string(read(t, file)))
	}
}

func TestKubernetesProbes(t *testing.T) {
	d, _, _ := kubernetes(t)
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]
	for path, p := range map[string][]probe{"/healthz": {c.StartupProbe, c.LivenessProbe}, "/readyz": {c.ReadinessProbe}} {
		for _, p := range p {
			require.Equal(t, path, p.HTTPGet.Path)
			require.Equal(t, c.Ports[0].Name, p.HTTPGet.Port)
		}
	}
	require.Greater(t, spec.TerminationGracePeriodSeconds, c.Lifecycle.PreStop.Sleep.Seconds+drainSeconds)
}

func TestKubernetesGivesNoRights(t *testing.T) {
	d, _, _ := kubernetes(t)
	spec := d.Spec.Template.Spec
	require.True(t, spec.SecurityContext.RunAsNonRoot)
	require.Equal(t, "RuntimeDefault", spec.SecurityContext.SeccompProfile.Type)
	require.False(t, *spec.AutomountServiceAccountToken)
	c := spec.Containers[0]
	require.True(t, c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Contains(t, c.Resources.Limits, "memory")
	require.Contains(t, c.Resources.Requests, "cpu")
}

func TestAllFilesAgreeOnPortAndUser(t *testing.T) {
	d, _, _ := kubernetes(t)
	spec := d.Spec.Template.Spec
	port := find(t, "../Dockerfile", `(?m)^EXPOSE (\d+)$`)
	require.Equal(t, port, fmt.Sprint(spec.Containers[0].Ports[0].ContainerPort))
	require.Equal(t, port, find(t, "../Dockerfile", `LASTSEEN_LISTEN=:(\d+)`))
	require.Equal(t, port, find(t, "nginx.conf", `set \$servers lastseen:(\d+);`))
	user := find(t, "../Dockerfile", `(?m)^USER (\S+)$`)
	require.Equal(t, user, fmt.Sprintf("%d:%d", spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup))
}

func TestComposeGivesNoRights(t *testing.T) {
	var file struct {
		Services map[string]struct {
			ReadOnly    bool     `yaml:"read_only"`
			CapDrop     []string `yaml:"cap_drop"`
			SecurityOpt []string `yaml:"security_opt"`
			Restart     string
			Ports       []string
			Environment map[string]string
		}
	}
	require.NoError(t, yaml.Unmarshal(read(t, "../compose.yaml"), &file))
	require.Len(t, file.Services, 3)
	for name, s := range file.Services {
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		require.Equal(t, "unless-stopped", s.Restart, name)
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:`, port, "anyone may do everything")
		}
	}
	require.Len(t, file.Services["nginx"].Ports, 1)
	servers := file.Services["lastseen"]
	require.Empty(t, servers.Ports, "nginx alone can reach them, and is trusted")
	require.Equal(t, "none", servers.Environment["LASTSEEN_AUTH"])
	require.NotEmpty(t, servers.Environment["LASTSEEN_TRUSTED_PROXIES"])
	require.Equal(t, "$http_host", find(t, "nginx.conf", `proxy_set_header Host (.*);`), "by which the servers refuse names of strangers")
	require.NotContains(t, servers.Environment, "LASTSEEN_ALLOWED_HOSTS")
	require.Equal(t, "$remote_addr", find(t, "nginx.conf", `proxy_set_header X-Forwarded-For (.*);`))
}

// TestNginxBounds: what nginx keeps of a caller has a size, and what it lets through is what lastseen takes. The script
// named test proves it with real requests.
func TestNginxBounds(t *testing.T) {
	require.Equal(t, "64m", find(t, "../compose.yaml", `tmpfs: \["/tmp:size=(\w+)"\]`))
	require.Equal(t, "1m", find(t, "nginx.conf", `(?m)^        client_max_body_size (\w+);`))
	require.Equal(t, "16k", find(t, "nginx.conf", `\(ping\|leave\)\$ \{\s+client_max_body_size (\w+);`))
	require.Equal(t, "0", find(t, "nginx.conf", `\(pings\|leaves\)\$ \{\s+client_max_body_size (\w+);\s+proxy_request_buffering off;`))
	require.Equal(t, "0", find(t, "nginx.conf", `proxy_max_temp_file_size (\w+);`))
	require.Equal(t, "address", find(t, "nginx.conf", `limit_conn (\w+) \d+;`))
}
