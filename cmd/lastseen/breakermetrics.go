package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/store/redisstore"
)

// breakers registers the metrics of circuit breakers, and of writes that replicas did not confirm.
func (m storeMetrics) breakers(s *redisstore.Store) {
	m.MustRegister(breakerStates{s, prometheus.NewDesc("lastseen_breaker_state",
		"Circuit breaker of a Redis server: 0 closed, 1 probing, 2 open.", []string{"server"}, nil)})
	m.counter("breaker_opened_total", "How often a circuit breaker opened.",
		func() float64 { return float64(s.Client().BreakersOpened()) })
	m.counter("redis_wait_failures_total", "Batches that too few replicas confirmed in time.",
		func() float64 { return float64(s.Client().WaitFailures()) })
}

// breakerStates exports the state of the circuit breaker of each server that is used.
type breakerStates struct {
	store *redisstore.Store
	desc  *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (b breakerStates) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- b.desc }

// Collect implements [prometheus.Collector].
func (b breakerStates) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range b.store.Client().Breakers() {
		metrics <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(one.State), one.Server)
	}
}
