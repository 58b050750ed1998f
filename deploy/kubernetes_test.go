package deploy_test

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// labels tell which pods are ours.
type labels map[string]string

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

type metadata struct {
	Name   string
	Labels labels
}

// head is what all objects begin with.
type head struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
}

// deployment has the fields that kubernetes.yaml uses, and no other: a slip in a name is an error.
type deployment struct {
	head `yaml:",inline"`
	Spec struct {
		Replicas int
		Selector selector
		Strategy struct {
			RollingUpdate map[string]int `yaml:"rollingUpdate"`
		}
		Template struct {
			Metadata metadata
			Spec     pod
		}
	}
}

type pod struct {
	AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		RunAsGroup     int                   `yaml:"runAsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		MaxSkew           int      `yaml:"maxSkew"`
		TopologyKey       string   `yaml:"topologyKey"`
		WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
		LabelSelector     selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []container
	Volumes    []struct {
		Name   string
		Secret struct {
			SecretName string `yaml:"secretName"`
			Items      []struct{ Key, Path string }
		}
	}
}

type container struct {
	Name, Image string
	Env         []struct {
		Name      string
		Value     string
		ValueFrom struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct {
			Sleep struct{ Seconds int }
		} `yaml:"preStop"`
	}
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

type service struct {
	head `yaml:",inline"`
	Spec struct {
		Type     string
		Selector labels
		Ports    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
	}
}

type budget struct {
	head `yaml:",inline"`
	Spec struct {
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       selector
	}
}

// kubernetes reads kubernetes.yaml, strictly.
func kubernetes(t *testing.T) (d deployment, s service, b budget) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, "kubernetes.yaml")))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&d))
	require.NoError(t, decoder.Decode(&s))
	require.NoError(t, decoder.Decode(&b))
	require.ErrorIs(t, decoder.Decode(new(any)), io.EOF)
	return d, s, b
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
