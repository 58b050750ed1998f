package api

// Drain prepares for the end of the server. From now on readyz fails, so that load balancers stop sending requests, and
// each response ends its connection, so that clients connect to another server. Requests still succeed. Those that stay
// open end at once.
func (s *Shared) Drain() {
	s.draining.Store(true)
	s.rounds.next()
}

// Draining reports whether Drain was called.
func (s *Shared) Draining() bool { return s.draining.Load() }
