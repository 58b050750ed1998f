package api

import (
	"net"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/telemetry"
)

// What package api_test reads of package api, and what it has happen that does not happen on demand.

func Routes() []telemetry.Route          { return measured((&server{}).routes()) }
func (s *Shared) CallsInProgress() int64 { return s.load.Calls() }
func (s *Shared) ClearRedials()          { s.redials.last.Purge() }
func (s *Shared) BodyMemoryUsed() int64  { return s.bodies.Used() }

// FillBodyMemory has a caller take what is left of the memory for bodies.
func (s *Shared) FillBodyMemory() (release func(), err error) {
	hold := s.bodies.Hold(limit.ByAPIKey("another"), false)
	return hold.Release, hold.Grow(MinBodyMemory - int(s.bodies.Used()))
}

// Connections returns how many connections of a listener wait to be served, are open, and are idle.
func Connections(listener net.Listener) (n struct{ Accepted, Open, Idle int }) {
	l := listener.(*limitedListener)
	l.mu.Lock()
	defer l.mu.Unlock()
	n.Accepted, n.Open, n.Idle = len(l.accepted), l.open, l.idle.Len()
	return n
}
