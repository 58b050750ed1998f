package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/store/redisstore"
)

// replicas registers the metrics of reads from replicas.
func (m storeMetrics) replicas(s *redisstore.Store) {
	for result, count := range map[string]func(redisstore.ReplicaStats) int64{
		"replica":    func(stats redisstore.ReplicaStats) int64 { return stats.Replica },
		"own_writes": func(stats redisstore.ReplicaStats) int64 { return stats.Own },
		"behind":     func(stats redisstore.ReplicaStats) int64 { return stats.Behind },
		"failed":     func(stats redisstore.ReplicaStats) int64 { return stats.Failed },
	} {
		m.counter("replica_reads_total", "Reads that replicas can answer, by what became of them.",
			func() float64 { return float64(count(s.ReplicaStats())) }, "result", result)
	}
	m.MustRegister(replicaAge{s, prometheus.NewDesc("lastseen_replica_age_seconds",
		"How far behind the replica may be that is furthest behind.", nil, nil)})
}

// replicaAge exports how far behind replicas are, if there are any to read from.
type replicaAge struct {
	store *redisstore.Store
	desc  *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (r replicaAge) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- r.desc }

// Collect implements [prometheus.Collector].
func (r replicaAge) Collect(metrics chan<- prometheus.Metric) {
	if age, known := r.store.ReplicaAge(); known {
		metrics <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, age.Seconds())
	}
}
