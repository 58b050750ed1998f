package deploy_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen/internal/testenv"
)

// query is an expression of an alert rule or a dashboard, with the texts that show labels of its result.
type query struct {
	name  string // where it is
	expr  string
	shown []string // names of labels
}

type alertRule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// alertRules returns the rules, and refuses fields that do not exist.
func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(read(t, "prometheus/alerts.yml"))))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	require.NotEmpty(t, rules)
	return rules
}

func alertQueries(t *testing.T) (all []query) {
	t.Helper()
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, rule := range alertRules(t) {
		q := query{name: "alert " + rule.Alert, expr: rule.Expr}
		for _, text := range rule.Annotations {
			q.shown = append(q.shown, groups(label, text)...)
		}
		all = append(all, q)
	}
	return all
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ Type, UID string }
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct{ RefID, Expr, LegendFormat string }
}

type dashboard struct {
	UID        string
	Templating struct {
		List []struct {
			Name  string
			Type  string
			Query any
		}
	}
	Panels []panel
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal(read(t, "grafana/dashboards/lastseen.json"), &d))
	return d
}

func dashboardQueries(t *testing.T) (all []query) {
	t.Helper()
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, query{"panel " + p.Title, target.Expr, groups(label, target.LegendFormat)})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// groups returns what the first group of a pattern matches in a text, each time.
func groups(pattern *regexp.Regexp, text string) (all []string) {
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// selector is a metric in a query, with the labels that select its series.
type selector struct {
	metric   string
	matchers [][2]string // name and value; the value is empty if it is a pattern or excluded
}

// selectors returns the metrics in a query. What it takes for a metric begins as those of lastseen, the process, Go and
// Prometheus do.
func (q query) selectors() (all []selector) {
	metric := regexp.MustCompile(`\b(up|ALERTS|(?:lastseen|process|go)_\w+)\b(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	for _, match := range metric.FindAllStringSubmatch(q.expr, -1) {
		s := selector{metric: match[1]}
		for _, m := range matcher.FindAllStringSubmatch(match[2], -1) {
			value := ""
			if m[2] == "=" || m[2] == "!=" {
				value = m[3]
			}
			s.matchers = append(s.matchers, [2]string{m[1], value})
		}
		all = append(all, s)
	}
	return all
}

// grouping returns the labels that a query groups by.
func (q query) grouping() (labels []string) {
	for _, list := range groups(regexp.MustCompile(`\bby \(([^)]*)\)`), q.expr) {
		for name := range strings.SplitSeq(list, ",") {
			labels = append(labels, strings.TrimSpace(name))
		}
	}
	return labels
}

// TestAlertsSayWhatToDo checks that each rule has the annotations that operators read, and that the page, the section
// and the row that they name exist.
func TestAlertsSayWhatToDo(t *testing.T) {
	const url = "https://github.com/lastseen/lastseen/blob/main/docs/"
	for _, rule := range alertRules(t) {
		require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		runbook, found := strings.CutPrefix(rule.Annotations["runbook"], url)
		require.True(t, found, rule.Alert)
		page, section, _ := strings.Cut(runbook, "#")
		guide := string(read(t, "../docs/"+page))
		if section != "" {
			require.Regexp(t, `(?im)^## `+strings.ReplaceAll(section, "-", " ")+`$`, guide, rule.Alert)
		}
		fault, isFault := rule.Annotations["fault"]
		require.Equal(t, page == "faults.md", isFault, rule.Alert)
		if isFault {
			require.Contains(t, guide, "\n| "+fault+" |", rule.Alert)
		}
	}
}

// TestOldRunbooksAnswer: alert rules of earlier versions, which operators have copied, name these sections, and so do
// messages.
func TestOldRunbooksAnswer(t *testing.T) {
	guide := string(read(t, "../docs/operations.md"))
	for _, section := range []string{
		"Faults", "Feeds", "Logs", "Redis", "Retention", "Troubleshooting", "Upgrade", "WebSockets",
	} {
		require.Regexp(t, `(?m)^## `+section+`\n\nSee \[`, guide)
	}
}

// TestAlertsAreTested checks that each rule fires in a test.
func TestAlertsAreTested(t *testing.T) {
	tests := string(read(t, "prometheus/alerts_test.yml")) + string(read(t, "prometheus/alerts_day_test.yml"))
	names := map[string]bool{}
	for _, rule := range alertRules(t) {
		require.False(t, names[rule.Alert], "%s exists twice", rule.Alert)
		names[rule.Alert] = true
		require.Regexp(t, `exp_samples: .*alertname="`+rule.Alert+`"`, tests)
	}
}

func TestAlertsPassPromtool(t *testing.T) {
	promtool := testenv.Program(t, "promtool", "prometheus")
	run(t, "prometheus", promtool, "check", "config", "prometheus.yml")
	run(t, "prometheus", promtool, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yml")
	run(t, "prometheus", promtool, "test", "rules", "alerts_test.yml", "alerts_day_test.yml")
}

// TestDashboardIsComplete checks what Grafana would refuse or not show. It does not replace Grafana, which is not
// available wherever the tests run.
func TestDashboardIsComplete(t *testing.T) {
	d := readDashboard(t)
	require.NotEmpty(t, d.UID)
	variables := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	ids, used := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.Empty(t, ids[p.ID], p.Title)
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, used[[2]int{x, y}], "%s has the place of another panel", p.Title)
				used[[2]int{x, y}] = p.Title
			}
		}
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		if p.Type == "row" {
			continue
		}
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			for _, name := range groups(regexp.MustCompile(`\$(\w+)`), target.Expr) {
				require.Contains(t, variables, name, p.Title)
			}
		}
	}
}

// TestGrafanaFindsItsFiles checks that the folders and addresses in the provisioning are those of compose.yaml.
func TestGrafanaFindsItsFiles(t *testing.T) {
	volumes := composeFile(t).Services["grafana"].Volumes
	folder := find(t, "grafana/provisioning/dashboards/lastseen.yaml", `(?m)^ +path: (\S+)$`)
	require.Contains(t, volumes, "./deploy/grafana/dashboards:"+folder+":ro")
	require.Contains(t, volumes, "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro")
	url := find(t, "grafana/provisioning/datasources/prometheus.yaml", `(?m)^ +url: http://(\S+)$`)
	name, _, _ := strings.Cut(url, ":")
	require.Contains(t, composeFile(t).Services, name)
}
