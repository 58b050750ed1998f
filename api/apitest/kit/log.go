package kit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// ParseLog returns the lines of a log in JSON.
func ParseLog(t *testing.T, log string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		lines = append(lines, fields)
	}
	return lines
}

// Samples returns the time series whose name begins with a prefix, such as name{GET,/v1/namespaces,2xx}: the value of a
// counter or gauge, the number of observations of a histogram. Zeros are omitted.
func Samples(t *testing.T, registry *prometheus.Registry, prefix string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			name, ok := strings.CutPrefix(family.GetName(), prefix)
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if ok && value != 0 {
				all[strings.Trim(name+"{"+strings.Join(labels, ",")+"}", "{}")] = value
			}
		}
	}
	return all
}

// Log is [testenv.Log].
type Log = testenv.Log
