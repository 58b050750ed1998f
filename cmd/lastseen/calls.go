package main

import (
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/observe"
)

// newKeeper returns what keeps calls going. It lasts as long as the server: reloads change only what its functions
// return.
func (r *runtimeConfig) newKeeper() *calls.Keeper {
	keeper := calls.New(r.store, r.logger)
	storeMetrics{r.metrics}.keeper(keeper)
	keeper.Quiet = func(namespace string) time.Duration { return r.config().Namespace(namespace).Green }
	keeper.Heard = r.registry.HeardWithin
	return keeper
}

// keeper registers the metrics of calls between users, and has the keeper observed.
func (m storeMetrics) keeper(k *calls.Keeper) {
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
		func() float64 { return float64(k.Stats().Unclear) })
	m.counter("calls_signals_repeated_total", "Calls that were signalled again.",
		func() float64 { return float64(k.Stats().Signals) })
}
