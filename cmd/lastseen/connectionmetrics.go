package main

import "github.com/lastseen/lastseen/store/connections"

// connections registers the metrics of the connections that users hold open.
func (m storeMetrics) connections(r *connections.Registry) {
	if m.Registerer == nil {
		return
	}
	m.gauge("connections", "Connections of users that are open.",
		func() float64 { return float64(r.Stats().Open) })
	m.gauge("connections_waiting", "Goodbyes and leaves that wait for their time, or for the store.",
		func() float64 { return float64(r.Stats().Waiting) })
	m.gauge("connections_unwritten", "Connections whose newest evidence the store did not take yet.",
		func() float64 { return float64(r.Stats().Evidence) })
	m.counter("connections_opened_total", "Connections of users that were opened.",
		func() float64 { return float64(r.Stats().Opened) })
	m.counter("connections_goodbyes_total", "Goodbyes of connections that were recorded.",
		func() float64 { return float64(r.Stats().Goodbyes) })
	m.counter("connections_lost_total", "Connections that ended in silence.",
		func() float64 { return float64(r.Stats().Lost) })
	m.counter("connections_forgotten_total", "Connections closed because their user was forgotten, or an operator did.",
		func() float64 { return float64(r.Stats().Forgotten) })
	m.counter("connections_dropped_goodbyes_total", "Goodbyes of connections that could not be recorded.",
		func() float64 { return float64(r.Stats().Dropped) })
}
