// Package deploy_test checks without containers that the files which run lastseen agree with each other. The script
// test checks the rest.
package deploy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stopSeconds is the maximum time that lastseen takes to end, including 30 seconds in which WebSockets move to other
// servers, and the last flush.
const stopSeconds = 38

func TestKubernetesObjectsFindEachOther(t *testing.T) {
	deployment, service, budget := kubernetes(t)
	for want, o := range map[string]object{
		"apps/v1 Deployment": deployment, "v1 Service": service, "policy/v1 PodDisruptionBudget": budget,
	} {
		require.Equal(t, want, fmt.Sprint(at(t, o, "apiVersion"), " ", at(t, o, "kind")))
	}
	ours := at(t, deployment, "spec/template/metadata/labels")
	require.NotEmpty(t, ours)
	require.Equal(t, ours, at(t, deployment, "spec/selector/matchLabels"))
	require.Equal(t, ours, at(t, deployment, pod+"topologySpreadConstraints/0/labelSelector/matchLabels"))
	require.Equal(t, ours, at(t, service, "spec/selector"))
	require.Equal(t, ours, at(t, budget, "spec/selector/matchLabels"))
	require.Equal(t, at(t, deployment, container+"ports/0/name"), at(t, service, "spec/ports/0/targetPort"))
	require.Equal(t, "ClusterIP", at(t, service, "spec/type"))
	require.Less(t, at(t, budget, "spec/maxUnavailable"), at(t, deployment, "spec/replicas"))
	require.Equal(t, "LASTSEEN_STORE", at(t, deployment, container+"env/0/name"))
	secret := at(t, deployment, container+"env/0/valueFrom/secretKeyRef/name")
	require.Equal(t, at(t, deployment, "metadata/name"), secret)
}

// TestKubernetesRequiresKeys checks that the file with the keys comes from the secret, and that authentication is on.
func TestKubernetesRequiresKeys(t *testing.T) {
	d, _, _ := kubernetes(t)
	item := at(t, d, pod+"volumes/0/secret/items/0/path")
	require.Equal(t, at(t, d, pod+"volumes/0/name"), at(t, d, container+"volumeMounts/0/name"))
	require.Equal(t, true, at(t, d, container+"volumeMounts/0/readOnly"))
	require.Equal(t, at(t, d, "metadata/name"), at(t, d, pod+"volumes/0/secret/secretName"))
	require.Equal(t, at(t, d, pod+"volumes/0/secret/items/0/key"), item)
	require.Equal(t, "LASTSEEN_CONFIG", at(t, d, container+"env/1/name"))
	file := fmt.Sprint(at(t, d, container+"volumeMounts/0/mountPath"), "/", item)
	require.Equal(t, file, at(t, d, container+"env/1/value"))
	for _, file := range []string{"kubernetes.yaml", "../Dockerfile"} {
		require.NotRegexp(t, `(?m)^[^#]*LASTSEEN_AUTH`, string(read(t, file)))
	}
}

func TestKubernetesProbes(t *testing.T) {
	d, _, _ := kubernetes(t)
	for probe, path := range map[string]string{
		"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz",
	} {
		require.Equal(t, path, at(t, d, container+probe+"/httpGet/path"))
		require.Equal(t, at(t, d, container+"ports/0/name"), at(t, d, container+probe+"/httpGet/port"))
	}
	sleep := at(t, d, container+"lifecycle/preStop/sleep/seconds").(int)
	require.Greater(t, at(t, d, pod+"terminationGracePeriodSeconds"), sleep+stopSeconds)
}

func TestComposeLetsServersEnd(t *testing.T) {
	grace, err := time.ParseDuration(composeFile(t).Services["lastseen"].StopGracePeriod)
	require.NoError(t, err)
	require.Greater(t, grace, stopSeconds*time.Second)
}

func TestKubernetesGivesNoRights(t *testing.T) {
	d, _, _ := kubernetes(t)
	for path, want := range map[string]any{
		pod + "securityContext/runAsNonRoot":                   true,
		pod + "securityContext/seccompProfile/type":            "RuntimeDefault",
		pod + "automountServiceAccountToken":                   false,
		container + "securityContext/readOnlyRootFilesystem":   true,
		container + "securityContext/allowPrivilegeEscalation": false,
		container + "securityContext/capabilities/drop":        []any{"ALL"},
	} {
		require.Equal(t, want, at(t, d, path), path)
	}
	require.NotEmpty(t, at(t, d, container+"resources/limits/memory"))
	require.NotEmpty(t, at(t, d, container+"resources/requests/cpu"))
}

func TestAllFilesAgreeOnPortAndUser(t *testing.T) {
	d, _, _ := kubernetes(t)
	port := find(t, "../Dockerfile", `(?m)^EXPOSE (\d+)$`)
	require.Equal(t, port, fmt.Sprint(at(t, d, container+"ports/0/containerPort")))
	require.Equal(t, port, find(t, "../Dockerfile", `LASTSEEN_LISTEN=:(\d+)`))
	require.Equal(t, port, find(t, "nginx.conf", `set \$servers lastseen:(\d+);`))
	security := pod + "securityContext/"
	require.Equal(t, find(t, "../Dockerfile", `(?m)^USER (\S+)$`),
		fmt.Sprint(at(t, d, security+"runAsUser"), ":", at(t, d, security+"runAsGroup")))
}

// TestNginxBounds checks that nginx limits what it stores for a caller and accepts the body sizes that lastseen
// accepts. The script test sends real requests.
func TestNginxBounds(t *testing.T) {
	require.Equal(t, "64m", find(t, "../compose.yaml", `tmpfs: \["/tmp:size=(\w+)"\]`))
	require.Equal(t, "1m", find(t, "nginx.conf", `(?m)^        client_max_body_size (\w+);`))
	require.Equal(t, "16k", find(t, "nginx.conf", `\(ping\|leave\)\$ \{\s+client_max_body_size (\w+);`))
	require.Equal(t, "0", find(t, "nginx.conf",
		`\(pings\|leaves\)\$ \{\s+client_max_body_size (\w+);\s+proxy_request_buffering off;`))
	require.Equal(t, "0", find(t, "nginx.conf", `proxy_max_temp_file_size (\w+);`))
	require.Equal(t, "address", find(t, "nginx.conf", `limit_conn (\w+) \d+;`))
}
