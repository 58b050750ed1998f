package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/store/redisstore"
)

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
