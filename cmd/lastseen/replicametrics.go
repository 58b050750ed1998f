package main

import "github.com/lastseen/lastseen/store/redisstore"

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
