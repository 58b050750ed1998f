package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/observe"
	"github.com/lastseen/lastseen/store/redisstore"
)

// newRegistry returns a registry with the metrics of the process: those of Go, of the operating system and of the
// build. The packages that have more add theirs. docs/metrics.md lists all.
func newRegistry(v api.Version) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lastseen_build_info", Help: "The running build; always 1.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "goversion": v.Go},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// storeMetrics registers the metrics of a store.
type storeMetrics struct{ prometheus.Registerer }

// flushes returns what is called after each flush of a file.
func (m storeMetrics) flushes() func(time.Duration) {
	durations := observe.NewDuration("lastseen_file_flush_duration_seconds", "Time of a flush.")
	m.MustRegister(durations)
	return func(d time.Duration) { durations.Observe(d.Seconds()) }
}

// file returns the store in a file, measured.
func (m storeMetrics) file(s *filestore.Store) store.Store {
	m.clock(s.ClockStats)
	m.gauge("file_users", "Users in the file store.", func() float64 { return float64(s.Stats().Users) })
	m.gauge("file_dirty_users", "Users whose change is not on disk yet, at most.",
		func() float64 { return float64(s.Stats().Dirty) })
	m.gauge("file_last_flush_timestamp_seconds", "Time of the last flush that succeeded, or of the start.",
		func() float64 { return float64(s.Stats().LastFlush.UnixMilli()) / 1000 })
	m.counter("file_flush_failures_total", "Flushes that failed.",
		func() float64 { return float64(s.Stats().Failures) })
	m.gauge("file_size_bytes", "Size of the data file.", func() float64 { return float64(s.Stats().Size) })
	m.gauge("file_live_bytes", "About how large the data file would be after a compaction.",
		func() float64 { return float64(s.Stats().Live) })
	m.counter("file_compactions_total", "Compactions that finished.",
		func() float64 { return float64(s.Stats().Compactions) })
	return observe.Store(s, m.calls())
}

// batched returns the store on Redis, measured, with a queue in front of it.
func (m storeMetrics) batched(s *redisstore.Store, calls *observe.Calls, o coalesce.Options) store.Store {
	o.Observe = observe.NewBatches(m, coalesce.Pings, coalesce.Lookups, coalesce.Devices)
	queued := coalesce.New(observe.Batcher(s, calls), o)
	for kind, stats := range map[string]func() coalesce.CallStats{
		coalesce.Pings:   func() coalesce.CallStats { return queued.Stats().Pings },
		coalesce.Lookups: func() coalesce.CallStats { return queued.Stats().Lookups },
		coalesce.Devices: func() coalesce.CallStats { return queued.Stats().Devices },
	} {
		m.gauge("queue_members", "Users in queues for the next batches.",
			func() float64 { return float64(stats().Queued) }, "kind", kind)
		m.counter("queue_refused_total", "Users refused because a queue was full.",
			func() float64 { return float64(stats().Refused) }, "kind", kind)
	}
	m.clock(s.ClockStats)
	m.gauge("clock_offset_seconds", "Redis' clock minus this machine's clock.",
		func() float64 { return s.Client().Clock.Offset().Seconds() })
	const connections = "Connections to Redis by state."
	m.gauge("redis_connections", connections,
		func() float64 { total, idle := s.Client().Connections(); return float64(total - idle) }, "state", "active")
	m.gauge("redis_connections", connections,
		func() float64 { _, idle := s.Client().Connections(); return float64(idle) }, "state", "idle")
	m.breakers(s)
	m.signals(s)
	m.replicas(s)
	return queued
}

// calls returns the metric of calls to a store.
func (m storeMetrics) calls() *observe.Calls {
	calls := observe.NewCalls()
	m.MustRegister(calls)
	return calls
}

func (m storeMetrics) clock(stats func() clock.Stats) {
	m.counter("clock_steps_total", "How often the store's clock was set by more than a second.",
		func() float64 { return float64(stats().Steps) })
	m.counter("clock_readings_ignored_total", "Readings of the store's clock that were wrong for a moment.",
		func() float64 { return float64(stats().Ignored) })
}

// gauge registers a gauge that is read when it is collected. labels are at most one name and its value.
func (m storeMetrics) gauge(name, help string, read func() float64, labels ...string) {
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(options(name, help, labels)), read))
}

// counter does the same for a counter.
func (m storeMetrics) counter(name, help string, read func() float64, labels ...string) {
	m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(options(name, help, labels)), read))
}

func options(name, help string, labels []string) prometheus.Opts {
	o := prometheus.Opts{Name: "lastseen_" + name, Help: help}
	if len(labels) > 0 {
		o.ConstLabels = prometheus.Labels{labels[0]: labels[1]}
	}
	return o
}

// retention registers the metrics of the job.
func (m storeMetrics) retention(job *jobs.Retention) {
	m.counter("retention_deleted_total", "Users deleted by retention.",
		func() float64 { return float64(job.Stats().Deleted) })
	m.counter("retention_contacts_deleted_total", "Contacts deleted by contacts-retention.",
		func() float64 { return float64(job.Stats().DeletedContacts) })
	m.optionalGauge("retention_last_round_timestamp_seconds",
		"When a round over all namespaces last ended, on the server that runs retention.", func() (float64, bool) {
			at := job.Stats().LastRound
			return float64(at) / 1000, at != 0
		})
}

// optionalGauge registers a gauge that is exported only while its value is known.
func (m storeMetrics) optionalGauge(name, help string, value func() (v float64, known bool)) {
	desc := prometheus.NewDesc("lastseen_"+name, help, nil, nil)
	m.MustRegister(prometheus.CollectorFunc(func(metrics chan<- prometheus.Metric) {
		if v, known := value(); known {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
		}
	}))
}

// countUsers registers the metric of users by status, and counts departures until the context ends.
func (r *runtimeConfig) countUsers(ctx context.Context) {
	r.metrics.MustRegister(observe.NewUsers(r.store, r.countedNamespaces))
	yellow := func() map[string]time.Duration {
		thresholds := map[string]time.Duration{}
		for _, ns := range r.countedNamespaces() {
			thresholds[ns.Name] = ns.Yellow
		}
		return thresholds
	}
	jobs.NewDepartures(r.store, yellow, r.shared.Telemetry.CountExpired, r.logger).Run(ctx)
}

// countedNamespaces returns the configured namespaces whose users are counted: the first ones, so that counting takes
// a bounded time.
func (r *runtimeConfig) countedNamespaces() []observe.Namespace {
	c := r.config()
	names := c.Names()
	counted := make([]observe.Namespace, min(len(names), observe.MaxNamespaces))
	for i := range counted {
		counted[i] = observe.Namespace{Name: names[i], Thresholds: c.Namespace(names[i]).Thresholds()}
	}
	return counted
}

// breakers registers the metrics of circuit breakers, of each server that is used, and of writes that replicas did not
// confirm.
func (m storeMetrics) breakers(s *redisstore.Store) {
	state := prometheus.NewDesc("lastseen_breaker_state",
		"Circuit breaker of a Redis server: 0 closed, 1 probing, 2 open.", []string{"server"}, nil)
	m.MustRegister(prometheus.CollectorFunc(func(metrics chan<- prometheus.Metric) {
		for _, one := range s.Client().Breakers() {
			metrics <- prometheus.MustNewConstMetric(state, prometheus.GaugeValue, float64(one.State), one.Server)
		}
	}))
	m.counter("breaker_opened_total", "How often a circuit breaker opened.",
		func() float64 { return float64(s.Client().BreakersOpened()) })
	m.counter("redis_wait_failures_total", "Batches that too few replicas confirmed in time.",
		func() float64 { return float64(s.Client().WaitFailures()) })
}

// replicas registers the metrics of reads from replicas.
func (m storeMetrics) replicas(s *redisstore.Store) {
	count := func(result string, stat func() int64) {
		m.counter("replica_reads_total", "Reads that replicas can answer, by what became of them.",
			func() float64 { return float64(stat()) }, "result", result)
	}
	count("replica", func() int64 { return s.Replicas().Stats().Replica })
	count("behind", func() int64 { return s.Replicas().Stats().Behind })
	count("failed", func() int64 { return s.Replicas().Stats().Failed })
	m.optionalGauge("replica_age_seconds", "How far behind the replica may be that is furthest behind.",
		func() (float64, bool) {
			age, known := s.Replicas().Age()
			return age.Seconds(), known
		})
}

// signals registers the metrics of signals between servers.
func (m storeMetrics) signals(s *redisstore.Store) {
	m.gauge("signals_listening", "Whether signals of other servers arrive: 1 or 0.", func() float64 {
		if s.SignalStats().Listening {
			return 1
		}
		return 0
	})
	m.counter("signals_sent_total", "Signals sent to other servers.",
		func() float64 { return float64(s.SignalStats().Sent) })
	m.counter("signals_received_total", "Signals received from other servers.",
		func() float64 { return float64(s.SignalStats().Received) })
	m.counter("signals_ignored_total", "Messages on the channel of signals that are not signals.",
		func() float64 { return float64(s.SignalStats().Ignored) })
	m.counter("signals_interrupted_total", "Times that signals may have been lost, and the first subscription.",
		func() float64 { return float64(s.SignalStats().Interrupted) })
}
