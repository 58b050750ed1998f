package main

import "github.com/lastseen/lastseen/store/redisstore"

// replicas registers the metrics of reads from replicas.
func (m storeMetrics) replicas(s *redisstore.Store) {
	for result, count := range map[string]func(redisstore.ReplicaStats) int64{
		"replica": func(stats redisstore.ReplicaStats) int64 { return stats.Replica },
		"behind":  func(stats redisstore.ReplicaStats) int64 { return stats.Behind },
		"failed":  func(stats redisstore.ReplicaStats) int64 { return stats.Failed },
	} {
		m.counter("replica_reads_total", "Reads that replicas can answer, by what became of them.",
			func() float64 { return float64(count(s.ReplicaStats())) }, "result", result)
	}
	m.optionalGauge("replica_age_seconds", "How far behind the replica may be that is furthest behind.",
		func() (float64, bool) {
			age, known := s.ReplicaAge()
			return age.Seconds(), known
		})
}
