// Package telemetry is what operators see of requests: metrics, traces, and log lines about failures that repeat.
package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// Metrics are the metrics of the handlers, which docs/metrics.md defines. They outlive a handler. Clients cannot add
// labels: each label is from a list in the code or in the configuration.
type Metrics struct {
	requests   *requestMetrics
	errors     map[problem.Code]prometheus.Counter
	limited    map[limit.Policy]prometheus.Counter
	results    [2]results // by event
	departures *prometheus.CounterVec
	gaps       prometheus.Observer
	changes    *changesMetrics
	sockets    *socketMetrics
	configured atomic.Pointer[configuredMetrics] // of the newest handler
}

// Event is what clients record.
type Event int

// The events.
const (
	Ping Event = iota
	Leave
)

// results count events of one kind by what became of them.
type results struct{ recorded, superseded, refused prometheus.Counter }

// configuredMetrics depend on the configuration.
type configuredMetrics struct {
	interval func(namespace string) time.Duration
	left     map[string]prometheus.Counter // departures, by configured namespace
}

// New returns the metrics of handlers with these routes, and registers them if there is a registry.
func New(registry prometheus.Registerer, routes []Route) *Metrics {
	f := factory{promauto.With(registry)}
	m := &Metrics{
		requests: newRequestMetrics(f, routes), changes: newChangesMetrics(f),
		sockets: newSocketMetrics(f),
		errors:  map[problem.Code]prometheus.Counter{}, limited: map[limit.Policy]prometheus.Counter{},
		results: [2]results{
			Ping:  newResults(f.counters("lastseen_pings_total", "Pings by result.", "result")),
			Leave: newResults(f.counters("lastseen_leaves_total", "Leaves by result.", "result")),
		},
		departures: f.counters("lastseen_departures_total",
			"Users of configured namespaces that left or turned grey.", "namespace", "how"),
		gaps: f.histograms("lastseen_ping_gap_ratio",
			"Time since the user's last ping, as a multiple of the ping interval; a sample of pings.",
			[]float64{.5, .8, 1, 1.2, 1.5, 2, 3, 5, 10}).WithLabelValues(),
	}
	m.configured.Store(&configuredMetrics{interval: func(string) time.Duration { return 0 }}) // until a handler sets it
	codes := f.counters("lastseen_http_errors_total", "Error responses by code.", "code")
	for _, c := range problem.Types() {
		m.errors[c.Code] = codes.WithLabelValues(string(c.Code))
	}
	policies := f.counters("lastseen_rate_limited_total", "Requests refused by a rate limit.", "policy")
	for _, p := range []limit.Policy{limit.PerAddress, limit.PerKey, limit.PerUser, limit.PerCall} {
		m.limited[p] = policies.WithLabelValues(string(p))
	}
	for _, r := range routes {
		if r.Records {
			m.requests.endpoints[[2]string{r.Method, r.Path}].refused = m.results[r.Event].refused
		}
	}
	return m
}

func newResults(counts *prometheus.CounterVec) results {
	return results{
		counts.WithLabelValues("recorded"), counts.WithLabelValues("superseded"), counts.WithLabelValues("refused"),
	}
}

// factory makes metrics and registers them.
type factory struct{ promauto.Factory }

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (f factory) gauge(name, help string, value *atomic.Int64) {
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
}

// histograms returns histograms with these buckets, and native ones for servers of Prometheus that scrape these.
func (f factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1,
		NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// Configure sets what depends on the configuration of the newest handler: how many WebSockets can be open, the
// configured namespaces, and the ping interval of any namespace.
func (m *Metrics) Configure(webSockets int, namespaces []string, interval func(namespace string) time.Duration) {
	m.sockets.limit.Store(int64(webSockets))
	c := &configuredMetrics{interval: interval, left: map[string]prometheus.Counter{}}
	for _, name := range namespaces {
		c.left[name] = m.departures.WithLabelValues(name, "left")
	}
	m.configured.Store(c)
}

// Failed counts an error response.
func (m *Metrics) Failed(c problem.Code) { m.errors[c].Inc() }

// RateLimited counts a request that a rate limit refused.
func (m *Metrics) RateLimited(p limit.Policy) { m.limited[p].Inc() }

// Recorded counts n events that were recorded, of which some were superseded by later ones. Of the others, leaves ended
// the presence of so many users.
func (m *Metrics) Recorded(e Event, namespace string, n, superseded, left int) {
	m.Accepted(e, n-superseded)
	add(m.results[e].superseded, superseded)
	if e == Leave {
		m.CountLeft(namespace, left)
	}
}

// Accepted counts events that will be recorded, or were.
func (m *Metrics) Accepted(e Event, n int) { add(m.results[e].recorded, n) }

// Refused counts events that were not recorded.
func (m *Metrics) Refused(e Event, n int) { add(m.results[e].refused, n) }

// add adds n to a counter, which is nil if the namespace is not configured.
func add(c prometheus.Counter, n int) {
	if c != nil && n > 0 {
		c.Add(float64(n))
	}
}

// ObserveGap observes the time since a user's previous ping, of which a store has a sample.
func (m *Metrics) ObserveGap(namespace string, gap time.Duration) {
	if interval := m.configured.Load().interval(namespace); interval > 0 {
		m.gaps.Observe(float64(gap) / float64(interval))
	}
}

// CountLeft counts n users who left by the end of a connection, or by a leave that waited, if the namespace is
// configured.
func (m *Metrics) CountLeft(namespace string, n int) { add(m.configured.Load().left[namespace], n) }

// CountExpired counts n users who turned grey without a leave, if the namespace is configured. The first call makes the
// time series, also with 0: a namespace that is not counted has none.
func (m *Metrics) CountExpired(namespace string, n int) {
	if m.configured.Load().left[namespace] != nil {
		m.departures.WithLabelValues(namespace, "expired").Add(float64(n))
	}
}
