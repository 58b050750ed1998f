package api

import (
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/telemetry"
)

// What package api_test reads of package api, and what it has happen that does not happen on demand.

func Routes() []telemetry.Route          { return measured((&server{}).routes()) }
func (s *Shared) CallsInProgress() int64 { return s.load.Calls() }
func (s *Shared) ClearRedials()          { s.redials = limit.NewRedials() }
func (s *Shared) BodyMemoryUsed() int64  { return s.Bodies.Used() }

// FillBodyMemory has a caller take what is left of the memory for bodies.
func (s *Shared) FillBodyMemory() (release func(), err error) {
	hold := s.Bodies.Hold(limit.ByAPIKey("another"), false)
	return hold.Release, hold.Grow(MinBodyMemory - int(s.Bodies.Used()))
}
