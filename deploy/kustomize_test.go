package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/internal/testenv"
)

func manifest(t *testing.T, name string) object {
	t.Helper()
	var o object
	require.NoError(t, yaml.Unmarshal(read(t, name), &o))
	requireKnown(t, o)
	return o
}

// TestComponentsAgreeWithTheManifest checks that what the components add belongs to the objects in kubernetes.yaml.
func TestComponentsAgreeWithTheManifest(t *testing.T) {
	deployment, _, _ := kubernetes(t)
	name, labels := at(t, deployment, "metadata/name"), at(t, deployment, "spec/template/metadata/labels")

	patch := manifest(t, "kubernetes/monitoring/deployment.yaml")
	require.Equal(t, name, at(t, patch, "metadata/name"))
	require.Equal(t, at(t, deployment, container+"name"), at(t, patch, container+"name"), "kustomize merges by name")
	port := at(t, patch, container+"ports/0/containerPort")
	require.Equal(t, "LASTSEEN_ADMIN_LISTEN", at(t, patch, container+"env/0/name"))
	require.Equal(t, fmt.Sprint(":", port), at(t, patch, container+"env/0/value"))
	annotations := at(t, patch, "spec/template/metadata/annotations").(object)
	require.Equal(t, fmt.Sprint(port), annotations["prometheus.io/port"])
	require.Equal(t, "/metrics", annotations["prometheus.io/path"])

	policy := manifest(t, "kubernetes/network-policy/networkpolicy.yaml")
	require.Equal(t, labels, at(t, policy, "spec/podSelector/matchLabels"))
	require.Equal(t, at(t, deployment, container+"ports/0/containerPort"), at(t, policy, "spec/ingress/0/ports/0/port"))
	require.NotContains(t, at(t, policy, "spec/ingress/0"), "from", "clients and probes come from anywhere")
	require.Equal(t, port, at(t, policy, "spec/ingress/1/ports/0/port"))
	require.NotEmpty(t, at(t, policy, "spec/ingress/1/from/0/namespaceSelector/matchLabels"))
	require.Len(t, at(t, policy, "spec/ingress"), 2)

	scaler := manifest(t, "kubernetes/autoscaling/autoscaler.yaml")
	require.Equal(t, name, at(t, scaler, "spec/scaleTargetRef/name"))
	require.Equal(t, at(t, deployment, "spec/replicas"), at(t, scaler, "spec/minReplicas"))
	require.Greater(t, at(t, scaler, "spec/maxReplicas"), at(t, scaler, "spec/minReplicas"))
}

// TestKustomizationNamesItsFiles checks without kubectl that each name is a file or a folder.
func TestKustomizationNamesItsFiles(t *testing.T) {
	files, err := filepath.Glob("kubernetes/*/kustomization.yaml")
	require.NoError(t, err)
	require.Len(t, manifest(t, "kustomization.yaml")["components"], len(files), "every component is used")
	for _, file := range append(files, "kustomization.yaml") {
		k := manifest(t, file)
		for _, list := range []string{"resources", "components"} {
			names, _ := k[list].([]any)
			for _, name := range names {
				require.FileExists(t, kustomizationIn(filepath.Join(filepath.Dir(file), name.(string))))
			}
		}
		patches, _ := k["patches"].([]any)
		for _, p := range patches {
			if path, found := p.(object)["path"]; found {
				require.FileExists(t, filepath.Join(filepath.Dir(file), path.(string)))
			}
		}
	}
	image := at(t, manifest(t, "kustomization.yaml"), "images/0/name")
	deployment, _, _ := kubernetes(t)
	require.Contains(t, at(t, deployment, container+"image"), fmt.Sprint(image, ":"))
}

// kustomizationIn returns the file that a resource or a component is.
func kustomizationIn(path string) string {
	if filepath.Ext(path) == ".yaml" {
		return path
	}
	return filepath.Join(path, "kustomization.yaml")
}

// TestKustomizeRenders renders the kustomization where kubectl has a kustomize with components. That of Debian 12 does
// not, so no machine is required to have one.
func TestKustomizeRenders(t *testing.T) {
	kubectl := testenv.Program(t, "kubectl", "kubectl")
	version, err := testenv.Command(kubectl, "version", "--client").Output()
	if err != nil || !strings.Contains(string(version), "Kustomize Version: v5") {
		t.Skip("kubectl is too old for components: install version 1.27 or newer to render the kustomization")
	}
	objects := map[string]object{}
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(run(t, ".", kubectl, "kustomize", "."))))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		requireKnown(t, o)
		objects[at(t, o, "kind").(string)] = o
	}
	require.Len(t, objects, 5)
	deployment := objects["Deployment"]
	require.NotContains(t, at(t, deployment, "spec"), "replicas", "the autoscaler sets it")
	require.Len(t, at(t, deployment, container+"env"), 3)
	require.Len(t, at(t, deployment, container+"ports"), 2)
	require.Contains(t, at(t, deployment, "spec/template/metadata/annotations"), "prometheus.io/port")
}
