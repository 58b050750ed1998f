package main

import (
	"math"

	"github.com/lastseen/lastseen/store/connections"
)

// maxAutoConnections bounds the number of connections unless it is set: an idle one takes 20 KB.
const maxAutoConnections = 65_536

// maxConnections returns how many connections are allowed: the setting or, if that is 0, a number that depends on how
// many files the process can open, 0 if unknown. It leaves a sixteenth of the files, but at least 128, to the store and
// others, or a half if there are very few.
func maxConnections(setting int, files uint64) int {
	if setting != 0 {
		return setting
	}
	if files == 0 {
		files = math.MaxInt32
	}
	reserve := min(max(files/16, 128), files/2)
	return int(min(files-reserve, maxAutoConnections))
}

// connections registers the metrics of the connections that users hold open.
func (m storeMetrics) connections(r *connections.Registry) {
	m.gauge("connections", "Connections of users that are open.",
		func() float64 { return float64(r.Stats().Open) })
	m.gauge("connections_waiting", "Leaves that wait for their time, or for the store.",
		func() float64 { return float64(r.Stats().Waiting) })
	m.gauge("connections_unwritten", "Connections whose newest heartbeat the store did not take yet.",
		func() float64 { return float64(r.Stats().Unwritten) })
	m.counter("connections_opened_total", "Connections of users that were opened.",
		func() float64 { return float64(r.Stats().Opened) })
	m.counter("connections_goodbyes_total", "Leaves of connections that were recorded.",
		func() float64 { return float64(r.Stats().Leaves) })
	m.counter("connections_lost_total", "Connections that ended in silence.",
		func() float64 { return float64(r.Stats().Lost) })
	m.counter("connections_forgotten_total", "Connections closed because their user was forgotten, or an operator did.",
		func() float64 { return float64(r.Stats().Forgotten) })
	m.counter("connections_dropped_goodbyes_total", "Leaves of connections that could not be recorded.",
		func() float64 { return float64(r.Stats().Dropped) })
}
