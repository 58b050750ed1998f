package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Batches measures the batches of a queue, by the kind of their calls. It is a [prometheus.Collector].
type Batches struct {
	members, wait *prometheus.HistogramVec
	byKind        map[string]batchesOfKind
}

type batchesOfKind struct{ members, wait prometheus.Observer }

// NewBatches returns the metrics lastseen_batch_members and lastseen_queue_wait_seconds for the given kinds.
func NewBatches(kinds ...string) *Batches {
	label := []string{"kind"}
	b := &Batches{
		members: prometheus.NewHistogramVec(histogram("lastseen_batch_members", "Users in a batch sent to Redis.",
			prometheus.ExponentialBuckets(1, 2, 13)), label),
		wait: prometheus.NewHistogramVec(histogram("lastseen_queue_wait_seconds",
			"Time that the first call of a batch waited in its queue.", durationBuckets()), label),
		byKind: map[string]batchesOfKind{},
	}
	for _, kind := range kinds {
		b.byKind[kind] = batchesOfKind{b.members.WithLabelValues(kind), b.wait.WithLabelValues(kind)}
	}
	return b
}

// Observe records a batch. Kinds other than those given to [NewBatches] are ignored.
func (b *Batches) Observe(kind string, members int, wait time.Duration) {
	if of, known := b.byKind[kind]; known {
		of.members.Observe(float64(members))
		of.wait.Observe(wait.Seconds())
	}
}

// Describe implements [prometheus.Collector].
func (b *Batches) Describe(descriptions chan<- *prometheus.Desc) {
	b.members.Describe(descriptions)
	b.wait.Describe(descriptions)
}

// Collect implements [prometheus.Collector].
func (b *Batches) Collect(metrics chan<- prometheus.Metric) {
	b.members.Collect(metrics)
	b.wait.Collect(metrics)
}
