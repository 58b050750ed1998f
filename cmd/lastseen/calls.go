package main

import (
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/observe"
)

// newCallManager returns what keeps calls going. It lasts as long as the server: reloads change only what its functions
// return.
func (r *runtimeConfig) newCallManager() *calls.Manager {
	manager := calls.New(r.store, r.logger)
	storeMetrics{r.metrics}.callManager(manager)
	manager.Timeout = func(namespace string) time.Duration { return r.config().Namespace(namespace).Green }
	manager.Heard = r.registry.HeardWithin
	return manager
}

// callManager registers the metrics of calls between users, and has the manager observed.
func (m storeMetrics) callManager(k *calls.Manager) {
	lag := observe.NewLag("lastseen_calls_expiry_lag_seconds",
		"Time by which calls were ended later than their time passed, for the first of those that were ended together.")
	k.Late = func(d time.Duration) { lag.Observe(d.Seconds()) }
	m.MustRegister(lag)
	for _, state := range lastseen.CallStates() {
		m.counter("calls_total", "Calls that came into a state, by a step on this server.",
			func() float64 { return float64(k.Stats().Reached[state]) }, "state", string(state))
	}
	m.gauge("calls", "Calls that go on, on the server that ends calls; 0 on others.",
		func() float64 { return float64(k.Stats().GoingOn) })
	m.gauge("calls_followed", "Users in a call who are connected to this server.",
		func() float64 { return float64(k.Stats().Followed) })
	m.gauge("calls_unclear", "Calls that wait to be signalled again.",
		func() float64 { return float64(k.Stats().Unknown) })
	m.counter("calls_signals_repeated_total", "Calls that were signalled again.",
		func() float64 { return float64(k.Stats().Signals) })
}
