package calls

import (
	"sync/atomic"

	"github.com/lastseen/lastseen"
)

// counters count what happened since the start.
type counters struct {
	reached [7]atomic.Int64 // in the order of lastseen.CallStates
	signals atomic.Int64
}

func (c *counters) count(state lastseen.CallState) {
	for i, s := range lastseen.CallStates() {
		if s == state {
			c.reached[i].Add(1)
		}
	}
}

// Stats describes a keeper at this moment, and since the start.
type Stats struct {
	Reached map[lastseen.CallState]int64 // calls that came into a state by a step on this server
	Signals int64                        // calls that were read again because it was not clear what the parties know

	Watching bool // this server ends the calls whose time has passed
	GoingOn  int  // calls that go on, as far as it knows; 0 unless Watching
	Followed int  // parties of calls that are connected to this server
	Unclear  int  // calls that have to be read again
}

// Stats returns the current statistics.
func (k *Keeper) Stats() Stats {
	s := Stats{
		Reached: map[lastseen.CallState]int64{}, Signals: k.stats.signals.Load(),
		Followed: k.hearing.size(), Unclear: k.results.size(),
	}
	for i, state := range lastseen.CallStates() {
		s.Reached[state] = k.stats.reached[i].Load()
	}
	s.Watching, s.GoingOn = k.watch.goingOn()
	return s
}
