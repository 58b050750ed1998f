package api

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// metrics are the metrics of the handlers, which docs/metrics.md defines. They outlive a handler. Methods of a nil
// *metrics have no effect. Clients cannot add labels: each label is from a list in the code or in the configuration.
type metrics struct {
	requests   *requestMetrics
	errors     map[problem.Code]prometheus.Counter
	limited    map[limit.Policy]prometheus.Counter
	results    [2]results // by event
	departures *prometheus.CounterVec
	gaps       prometheus.Histogram
	changes    *changesMetrics
	sockets    *socketMetrics
	configured atomic.Pointer[configuredMetrics] // of the newest handler; nil before the first
}

// results count events of one kind by what became of them.
type results struct{ recorded, superseded, refused prometheus.Counter }

// configuredMetrics depend on the configuration.
type configuredMetrics struct {
	settings func(namespace string) Settings
	left     map[string]prometheus.Counter // departures, by configured namespace
}

// newMetrics registers the metrics of handlers with these settings; it returns nil if there is no registry.
func newMetrics(c Config, bodies *bodyMemory, o *overload) *metrics {
	if c.Metrics == nil {
		return nil
	}
	register := promauto.With(c.Metrics)
	routes := (&server{}).routes() // those of all handlers
	m := &metrics{
		requests: newRequestMetrics(register, routes), changes: newChangesMetrics(register),
		sockets: newSocketMetrics(register),
		errors:  map[problem.Code]prometheus.Counter{}, limited: map[limit.Policy]prometheus.Counter{},
		results: [2]results{
			eventPing:  newResults(register, "lastseen_pings_total", "Pings by result."),
			eventLeave: newResults(register, "lastseen_leaves_total", "Leaves by result."),
		},
		departures: register.NewCounterVec(prometheus.CounterOpts{
			Name: "lastseen_departures_total", Help: "Users of configured namespaces that left or turned grey.",
		}, []string{"namespace", "how"}),
		gaps: register.NewHistogram(withNativeBuckets(prometheus.HistogramOpts{
			Name: "lastseen_ping_gap_ratio", Buckets: []float64{.5, .8, 1, 1.2, 1.5, 2, 3, 5, 10},
			Help: "Time since the user's last ping, as a multiple of the ping interval; a sample of pings.",
		})),
	}
	codes := register.NewCounterVec(prometheus.CounterOpts{
		Name: "lastseen_http_errors_total", Help: "Error responses by code.",
	}, []string{"code"})
	for _, c := range problem.Types() {
		m.errors[c.Code] = codes.WithLabelValues(string(c.Code))
	}
	policies := register.NewCounterVec(prometheus.CounterOpts{
		Name: "lastseen_rate_limited_total", Help: "Requests refused by a rate limit.",
	}, []string{"policy"})
	for _, p := range []limit.Policy{limit.PerAddress, limit.PerKey, limit.PerUser, limit.PerCall} {
		m.limited[p] = policies.WithLabelValues(string(p))
	}
	for _, r := range routes {
		if e, ok := r.event(); ok {
			m.requests.endpoints[endpointKey{r.method, r.path}].refused = m.results[e].refused
		}
	}
	bodies.export(register)
	o.export(register)
	return m
}

func newResults(register promauto.Factory, name, help string) results {
	counts := register.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	return results{
		counts.WithLabelValues("recorded"), counts.WithLabelValues("superseded"), counts.WithLabelValues("refused"),
	}
}

// withNativeBuckets adds native buckets to a histogram, for servers of Prometheus that scrape these.
func withNativeBuckets(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = 1.1, 100
	o.NativeHistogramMinResetDuration = time.Hour
	return o
}

// configure makes the configuration of a new handler that of the metrics.
func (m *metrics) configure(s *server) {
	if m == nil {
		return
	}
	m.sockets.limit.Store(int64(s.Config.WebSockets.Max))
	c := &configuredMetrics{settings: s.settings, left: map[string]prometheus.Counter{}}
	for name := range s.Namespaces {
		c.left[name] = m.departures.WithLabelValues(name, "left")
	}
	m.configured.Store(c)
}

// failed counts an error response.
func (m *metrics) failed(c problem.Code) {
	if m != nil {
		m.errors[c].Inc()
	}
}

// rateLimited counts a request that a rate limit refused.
func (m *metrics) rateLimited(p limit.Policy) {
	if m != nil {
		m.limited[p].Inc()
	}
}

// recorded counts events that were recorded, given the resulting states and the time of each event.
func (m *metrics) recorded(e event, namespace string, states []lastseen.State, at func(i int) lastseen.Instant) {
	if m == nil {
		return
	}
	superseded, left := 0, 0
	for i, state := range states {
		switch {
		case state.Compare(lastseen.State{At: at(i), Left: e == eventLeave}) > 0:
			superseded++
		case state.Left: // not if another device is live
			left++
		}
	}
	m.accepted(e, len(states)-superseded)
	add(m.results[e].superseded, superseded)
	if e == eventLeave {
		add(m.configured.Load().left[namespace], left)
	}
}

// accepted counts events that will be recorded, or were.
func (m *metrics) accepted(e event, n int) {
	if m != nil {
		add(m.results[e].recorded, n)
	}
}

// refused counts events that were not recorded.
func (m *metrics) refused(e event, n int) {
	if m != nil {
		add(m.results[e].refused, n)
	}
}

// add adds n to a counter, which is nil if the namespace is not configured.
func add(c prometheus.Counter, n int) {
	if c != nil && n > 0 {
		c.Add(float64(n))
	}
}

// GapObserver returns the function that a store calls for a sample of pings, with the time since the user's previous
// ping. It is nil if there are no metrics.
func (s *Shared) GapObserver() func(namespace string, gap time.Duration) {
	if s.metrics == nil {
		return nil
	}
	return s.metrics.observeGap
}

func (m *metrics) observeGap(namespace string, gap time.Duration) {
	c := m.configured.Load()
	if c == nil { // a store that is used before there is a handler
		return
	}
	if interval := c.settings(namespace).PingInterval; interval > 0 {
		m.gaps.Observe(float64(gap) / float64(interval))
	}
}

// CountLeft counts n users who left by the end of a connection, or by a leave that waited, if the namespace is
// configured.
func (s *Shared) CountLeft(namespace string, n int) {
	if s.metrics == nil {
		return
	}
	if c := s.metrics.configured.Load(); c != nil {
		add(c.left[namespace], n)
	}
}

// CountExpired counts n users who turned grey without a leave, if the namespace is configured. The first call makes the
// time series, also with 0: a namespace that is not counted has none.
func (s *Shared) CountExpired(namespace string, n int) {
	if s.metrics == nil {
		return
	}
	if c := s.metrics.configured.Load(); c != nil && c.left[namespace] != nil {
		s.metrics.departures.WithLabelValues(namespace, "expired").Add(float64(n))
	}
}
