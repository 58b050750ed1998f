package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// NewBatches registers the metrics lastseen_batch_members and lastseen_queue_wait_seconds of a queue, and returns what
// records one of its batches, by the kind of its calls. Kinds other than those given are ignored.
func NewBatches(r prometheus.Registerer, kinds ...string) (observe func(kind string, members int, wait time.Duration)) {
	label, register := []string{"kind"}, promauto.With(r)
	members := register.NewHistogramVec(histogram("lastseen_batch_members", "Users in a batch sent to Redis.",
		prometheus.ExponentialBuckets(1, 2, 13)), label)
	waits := register.NewHistogramVec(histogram("lastseen_queue_wait_seconds",
		"Time that the first call of a batch waited in its queue.", durationBuckets()), label)
	type metrics struct{ members, wait prometheus.Observer }
	byKind := map[string]metrics{}
	for _, kind := range kinds {
		byKind[kind] = metrics{members.WithLabelValues(kind), waits.WithLabelValues(kind)}
	}
	return func(kind string, members int, wait time.Duration) {
		if of, known := byKind[kind]; known {
			of.members.Observe(float64(members))
			of.wait.Observe(wait.Seconds())
		}
	}
}
