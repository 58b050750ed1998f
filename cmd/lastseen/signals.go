package main

import "github.com/lastseen/lastseen/store/redisstore"

// signals registers the metrics of signals between servers.
func (m storeMetrics) signals(s *redisstore.Store) {
	m.gauge("signals_listening", "Whether signals of other servers arrive: 1 or 0.", func() float64 {
		if s.SignalStats().Listening {
			return 1
		}
		return 0
	})
	m.counter("signals_sent_total", "Signals sent to other servers.",
		func() float64 { return float64(s.SignalStats().Sent) })
	m.counter("signals_received_total", "Signals received from other servers.",
		func() float64 { return float64(s.SignalStats().Received) })
	m.counter("signals_ignored_total", "Messages on the channel of signals that are not signals.",
		func() float64 { return float64(s.SignalStats().Ignored) })
	m.counter("signals_interrupted_total", "Times that signals may have been lost, and the first subscription.",
		func() float64 { return float64(s.SignalStats().Interrupted) })
}
