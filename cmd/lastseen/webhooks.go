package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/observe"
)

// newWebhooks returns what delivers for webhooks. It lasts as long as the server: reloads change only what its
// functions return.
func (r *runtimeConfig) newWebhooks() *webhooks.Manager {
	metrics := newWebhookMetrics()
	manager := webhooks.New(webhooks.Options{
		Store: r.store,
		Watch: func(ctx context.Context, namespace string, q feed.Query) (webhooks.Watcher, error) {
			return r.feeds.hub.Watch(ctx, namespace, q)
		},
		Webhooks:      func() []*webhooks.Webhook { return r.config().Webhooks() },
		Append:        api.AppendPublished,
		MaxNamespaces: func() int { return r.config().MaxWebhookNamespaces },
		Observe:       metrics, Logger: r.logger,
	})
	r.metrics.MustRegister(metrics, webhookStats{manager})
	return manager
}

// webhookMetrics counts what webhooks deliver. It implements [webhooks.Observer].
type webhookMetrics struct {
	requests, dropped, resets *prometheus.CounterVec
	lag                       prometheus.Histogram
}

func newWebhookMetrics() *webhookMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lastseen_webhooks_" + name, Help: help}, labels)
	}
	return &webhookMetrics{
		requests: counter("requests_total", "Requests to webhooks, by what came of them.", "webhook", "result"),
		dropped: counter("dropped_users_total", "Users of events that a receiver refused, which are not sent again.",
			"webhook"),
		resets: counter("resets_total", "Resets that were delivered: the receiver may have missed changes.", "webhook"),
		lag: observe.NewLag("lastseen_webhooks_lag_seconds",
			"Time from recording a change, or from the end of the time it was held for, to its delivery."),
	}
}

// Tried implements [webhooks.Observer].
func (m *webhookMetrics) Tried(webhook string, r webhooks.Result) {
	m.requests.WithLabelValues(webhook, string(r)).Inc()
}

// Dropped implements [webhooks.Observer].
func (m *webhookMetrics) Dropped(webhook string, users int) {
	m.dropped.WithLabelValues(webhook).Add(float64(users))
}

// Reset implements [webhooks.Observer].
func (m *webhookMetrics) Reset(webhook string) { m.resets.WithLabelValues(webhook).Inc() }

// Lag implements [webhooks.Observer].
func (m *webhookMetrics) Lag(_ string, d time.Duration) { m.lag.Observe(d.Seconds()) }

// Describe implements [prometheus.Collector].
func (m *webhookMetrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements [prometheus.Collector].
func (m *webhookMetrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.requests, m.dropped, m.resets, m.lag} {
		c.Collect(out)
	}
}

// webhookStats has the statistics of webhooks at the moment of a scrape. It implements [prometheus.Collector].
type webhookStats struct{ manager *webhooks.Manager }

// Describe implements [prometheus.Collector]. Which webhooks there are can change, so it describes nothing.
func (webhookStats) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s webhookStats) Collect(out chan<- prometheus.Metric) {
	gauge := func(webhook, name, help string, value float64) {
		desc := prometheus.NewDesc("lastseen_webhooks_"+name, help, []string{"webhook"}, nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, webhook)
	}
	for _, w := range s.manager.Stats() {
		gauge(w.Webhook, "holding", "1 on the server that delivers for the webhook.", toFloat(w.Holding))
		gauge(w.Webhook, "disabled", "1 if the receiver answered 410: nothing is delivered.", toFloat(w.Disabled))
		gauge(w.Webhook, "namespaces", "Namespaces that this server delivers for the webhook.", float64(w.Namespaces))
		gauge(w.Webhook, "behind_seconds",
			"For how long the receiver accepts nothing, in the namespace where that is longest.", w.Behind.Seconds())
	}
}

func toFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
