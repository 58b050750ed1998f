//go:build faults

package faults

import (
	"net/http"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// metric returns the sum of the series of a metric that have the given labels (name, value, …), and 0 if there are
// none. Of a histogram, it sums the counts.
func (s *server) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	client := &http.Client{Timeout: awaitFor}
	defer client.CloseIdleConnections()
	r, err := client.Get(s.admin + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r.Body)
	require.NoError(t, err)
	sum := 0.0
	for _, series := range families[name].GetMetric() {
		has := map[string]string{}
		for _, label := range series.GetLabel() {
			has[label.GetName()] = label.GetValue()
		}
		if matches(has, labels) {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue() +
				float64(series.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func matches(has map[string]string, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if has[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}
