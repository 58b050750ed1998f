package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// histogram returns the options of a histogram that has the given buckets, and native ones for servers that read them.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// durationBuckets returns seconds, from a write to memory to the longest timeouts.
func durationBuckets() []float64 {
	return []float64{
		0.000025, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
	}
}

// NewLag returns a histogram of seconds by which background work is late: most of it by up to a second or two.
func NewLag(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(histogram(name, help,
		[]float64{0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 30}))
}

// NewDuration returns a histogram of seconds.
func NewDuration(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(histogram(name, help, durationBuckets()))
}

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
