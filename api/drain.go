package api

// Drain prepares for the end of the server. From now on readyz fails, so that load balancers stop sending requests, and
// each response ends its connection, so that clients connect to another server. Requests still succeed. Those that stay
// open end at once. WebSockets stay open, and their clients are asked to connect to another server, one after the other
// over the time that [WebSocketLimits] has for that: see [Shared.EndWebSockets].
func (s *Shared) Drain() {
	s.draining.Store(true)
	s.rounds.next()
	s.drainSockets()
}

// Draining reports whether Drain was called.
func (s *Shared) Draining() bool { return s.draining.Load() }
