package deploy_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// patience is how long the test waits for what comes late, on a busy machine.
const patience = time.Minute

// monitored are servers with both stores, and what they exported.
type monitored struct {
	servers []*testserver.Server
	series  exported
	types   families
}

// TestMonitoring compares the alert rules, the dashboard and docs/metrics.md with servers that run, and runs all
// queries in a Prometheus that scraped these servers.
func TestMonitoring(t *testing.T) {
	redis := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	redistest.StartReplica(t, redis, "--appendonly", "no")
	m := &monitored{series: exported{}, types: families{}}
	m.servers = []*testserver.Server{
		startServer(t),
		startServer(t, "--store", redis.URL(), "--redis-timeout", "30s", "--redis-dial-timeout", "30s",
			"--redis-read-from", "replica"),
	}
	m.observe(t)
	t.Run("names", m.testNames)
	t.Run("documentation", m.testDocumentation)
	t.Run("queries", func(t *testing.T) {
		prometheus := startPrometheus(t, m.servers)
		for _, s := range m.servers {
			use(t, s)
		}
		redis.Stop(t) // some metrics exist only after a fault
		status, _ := m.servers[1].Call(t, "POST", testserver.Alice+"/ping", "")
		require.Equal(t, 503, status)
		prometheus.testQueries(t)
	})
}

// observe uses and scrapes the servers until they export all that is documented. Some metrics come late: what
// background jobs do, and numbers of users.
func (m *monitored) observe(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		for _, s := range m.servers {
			use(t, s)
			scrape(t, s, m.series, m.types)
		}
		missing := slices.ContainsFunc(documentedMetrics(t), func(d documentedMetric) bool {
			return m.types[d.name] == ""
		})
		if !missing || time.Now().After(deadline) {
			return // testDocumentation reports what is missing
		}
	}
}

func selected(t *testing.T) []query {
	t.Helper()
	return append(alertQueries(t), dashboardQueries(t)...)
}

// testNames checks the metrics and labels in all queries. Values of labels must be exported or documented.
func (m *monitored) testNames(t *testing.T) {
	documented := string(read(t, "../docs/metrics.md")) + string(read(t, "../docs/errors.md"))
	for _, s := range []string{"job", "instance"} { // which Prometheus adds
		for name := range m.series {
			m.series.add(name, s, "lastseen")
		}
		m.series.add("up", s, "lastseen")
	}
	for _, label := range []string{"alertname", "alertstate"} {
		m.series.add("ALERTS", label, "firing")
	}
	for _, q := range selected(t) {
		labels := map[string]bool{}
		require.NotEmpty(t, q.selectors(), q.name)
		for _, s := range q.selectors() {
			_, found := m.series[s.metric]
			require.True(t, found, "%s: no server exports %s", q.name, s.metric)
			for _, matcher := range s.matchers {
				values, found := m.series[s.metric][matcher[0]]
				require.True(t, found, "%s: %s has no label %s", q.name, s.metric, matcher[0])
				known := matcher[1] == "" || values[matcher[1]] ||
					strings.Contains(documented, "`"+matcher[1]+"`") || strings.Contains(documented, "## "+matcher[1]+"\n")
				require.True(t, known, "%s: %s has no %s %q", q.name, s.metric, matcher[0], matcher[1])
			}
			for label := range m.series[s.metric] {
				labels[label] = true
			}
		}
		for _, label := range slices.Concat(q.grouping(), q.shown) {
			require.Contains(t, labels, label, q.name)
		}
	}
}

// documentedMetric is a row of the table in docs/metrics.md.
type documentedMetric struct {
	name, kind string
	labels     []string
}

func documentedMetrics(t *testing.T) (all []documentedMetric) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `(lastseen_\\w+)` \\| (\\w+) \\| ([^|]*)\\|")
	label := regexp.MustCompile("`(\\w+)`")
	for _, match := range row.FindAllStringSubmatch(string(read(t, "../docs/metrics.md")), -1) {
		text := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(match[3], "") // values of labels
		text = strings.ReplaceAll(text, "as above", "")
		all = append(all, documentedMetric{match[1], match[2], groups(label, text)})
	}
	require.NotEmpty(t, all)
	return all
}

// testDocumentation checks that the table lists exactly what the servers export, with types and labels.
func (m *monitored) testDocumentation(t *testing.T) {
	exported := map[string]bool{}
	for name := range m.types {
		if strings.HasPrefix(name, "lastseen_") {
			exported[name] = true
		}
	}
	for _, d := range documentedMetrics(t) {
		if !exported[d.name] {
			t.Errorf("%s is in docs/metrics.md, but no server exports it", d.name)
			continue
		}
		delete(exported, d.name)
		require.Equal(t, d.kind, m.types[d.name], d.name)
		series := d.name
		if d.kind == "histogram" {
			series += "_count"
		}
		labels := slices.Sorted(maps.Keys(m.series[series]))
		labels = slices.DeleteFunc(labels, func(name string) bool { return name == "job" || name == "instance" })
		slices.Sort(d.labels)
		require.ElementsMatch(t, d.labels, labels, d.name)
	}
	require.Empty(t, exported, "these are not in docs/metrics.md")
}

// testQueries runs all queries, until those of the dashboard have data. An alert may have none: then it does not fire.
func (p prometheus) testQueries(t *testing.T) {
	for _, q := range alertQueries(t) {
		p.query(t, q)
	}
	empty := dashboardQueries(t)
	for deadline := time.Now().Add(patience); len(empty) > 0; time.Sleep(100 * time.Millisecond) {
		empty = slices.DeleteFunc(empty, func(q query) bool { return p.query(t, q) })
		require.True(t, len(empty) == 0 || time.Now().Before(deadline), "no data: %v", empty)
	}
}

// query runs a query as Grafana would and reports whether it has data.
func (p prometheus) query(t *testing.T, q query) bool {
	t.Helper()
	expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", "30s").Replace(q.expr)
	status, body := get(t, p.url+"/api/v1/query?query="+url.QueryEscape(expr))
	require.Equal(t, 200, status, "%s: %s\n%s", q.name, expr, body)
	var response struct{ Data struct{ Result []any } }
	require.NoError(t, json.Unmarshal([]byte(body), &response))
	return len(response.Data.Result) > 0
}
