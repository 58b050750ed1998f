package deploy_test

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Paths in the deployment.
const (
	pod       = "spec/template/spec/"
	container = pod + "containers/0/"
)

// fields are the names of all fields in kubernetes.yaml, and of those that the kustomization adds.
const fields = `
	apiVersion kind metadata name labels app.kubernetes.io/name spec type selector matchLabels
	replicas strategy rollingUpdate maxUnavailable maxSurge template
	automountServiceAccountToken terminationGracePeriodSeconds
	securityContext runAsNonRoot runAsUser runAsGroup seccompProfile
	allowPrivilegeEscalation readOnlyRootFilesystem capabilities drop
	topologySpreadConstraints maxSkew topologyKey whenUnsatisfiable labelSelector
	containers image env value valueFrom secretKeyRef key ports containerPort port targetPort
	volumes secret secretName items path volumeMounts mountPath readOnly
	startupProbe livenessProbe readinessProbe httpGet periodSeconds timeoutSeconds failureThreshold
	lifecycle preStop sleep seconds resources requests limits cpu memory

	components images newTag patches patch target
	annotations prometheus.io/scrape prometheus.io/port prometheus.io/path
	podSelector policyTypes ingress from namespaceSelector kubernetes.io/metadata.name protocol
	scaleTargetRef minReplicas maxReplicas metrics resource averageValue
	behavior scaleDown stabilizationWindowSeconds policies` //nolint:misspell // the API's name

type object = map[string]any

// kubernetes reads kubernetes.yaml. An unknown field is an error, because it can be misspelled.
func kubernetes(t *testing.T) (deployment, service, budget object) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, "kubernetes.yaml")))
	for _, o := range []*object{&deployment, &service, &budget} {
		require.NoError(t, decoder.Decode(o))
		requireKnown(t, *o)
	}
	require.ErrorIs(t, decoder.Decode(new(any)), io.EOF)
	return deployment, service, budget
}

func requireKnown(t *testing.T, value any) {
	t.Helper()
	switch v := value.(type) {
	case object:
		for name, inner := range v {
			require.Contains(t, strings.Fields(fields), name)
			requireKnown(t, inner)
		}
	case []any:
		for _, inner := range v {
			requireKnown(t, inner)
		}
	}
}

// at returns the value at a path of field names and indexes.
func at(t *testing.T, o object, path string) any {
	t.Helper()
	var value any = o
	for name := range strings.SplitSeq(path, "/") {
		switch v := value.(type) {
		case []any:
			i, err := strconv.Atoi(name)
			require.NoError(t, err, path)
			require.Less(t, i, len(v), path)
			value = v[i]
		default:
			require.Contains(t, v, name, path)
			value = v.(object)[name]
		}
	}
	return value
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return content
}

// find returns what the first group of a pattern matches in a file.
func find(t *testing.T, name, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindSubmatch(read(t, name))
	require.NotNil(t, match, "%s: nothing matches %s", name, pattern)
	return string(match[1])
}
