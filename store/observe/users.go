package observe

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// MaxNamespaces is the number of namespaces that have their own metrics: the first ones given.
const MaxNamespaces = 100

const (
	usersFor     = 10 * time.Second // how long counts are used again
	usersTimeout = 2 * time.Second  // of counting all namespaces; less than a scrape may take
)

// Namespace is a namespace whose users are counted.
type Namespace struct {
	Name string
	lastseen.Thresholds
}

// Users counts the users of namespaces by status when it is collected. It is a [prometheus.Collector].
//
// Counts are kept for ten seconds, however often they are collected. A namespace that cannot be counted has none:
// unknown is not zero.
type Users struct {
	store      store.Store
	namespaces func() []Namespace
	now        func() time.Time
	desc       *prometheus.Desc

	mu      sync.Mutex // held while counting, so that there is one count at a time
	counted time.Time
	metrics []prometheus.Metric
}

// NewUsers returns the metric lastseen_users. Of what namespaces returns, the first [MaxNamespaces] are counted.
func NewUsers(s store.Store, namespaces func() []Namespace) *Users {
	return &Users{
		store: s, namespaces: namespaces, now: time.Now,
		desc: prometheus.NewDesc("lastseen_users",
			"Users of configured namespaces by status. All servers on one store export the same users.",
			[]string{"namespace", "status"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (u *Users) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- u.desc }

// Collect implements [prometheus.Collector].
func (u *Users) Collect(metrics chan<- prometheus.Metric) {
	for _, m := range u.recent() {
		metrics <- m
	}
}

// recent returns the metrics of the last count, or of a new one if that is too old.
func (u *Users) recent() []prometheus.Metric {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := u.now(); u.counted.IsZero() || now.Sub(u.counted) >= usersFor {
		u.metrics = u.count()
		u.counted = now
	}
	return u.metrics
}

func (u *Users) count() (all []prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), usersTimeout)
	defer cancel()
	now, err := u.store.Now(ctx)
	if err != nil {
		return nil
	}
	namespaces := u.namespaces()
	for _, ns := range namespaces[:min(len(namespaces), MaxNamespaces)] {
		if ctx.Err() != nil {
			break
		}
		all = append(all, u.countIn(ctx, ns, now)...)
	}
	return all
}

// countIn returns a metric for each status, or none after an error.
func (u *Users) countIn(ctx context.Context, ns Namespace, now lastseen.Instant) (all []prometheus.Metric) {
	sums, err := store.CountByStatus(ctx, u.store, ns.Name, ns.Thresholds, now, lastseen.MinInstant, now)
	if err != nil {
		return nil
	}
	for _, status := range lastseen.Statuses() {
		all = append(all, prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, float64(sums[status]), ns.Name,
			string(status)))
	}
	return all
}
