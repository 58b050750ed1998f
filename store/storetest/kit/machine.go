package kit

import (
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
)

// Machine is a machine whose clocks a test sets, while goroutines of a store read them. It starts at Base.
type Machine struct {
	Passed Span // since Base, truly
	Wrong  Span // how far its clock is off
}

// Span is a time span that a test sets.
type Span struct{ ns atomic.Int64 }

// Get returns the span.
func (s *Span) Get() time.Duration { return time.Duration(s.ns.Load()) }

// Set sets the span.
func (s *Span) Set(d time.Duration) { s.ns.Store(int64(d)) }

// Add makes the span longer.
func (s *Span) Add(d time.Duration) { s.ns.Add(int64(d)) }

// Wall returns what the machine's clock shows.
func (m *Machine) Wall() time.Time {
	return time.UnixMilli(int64(Base)).Add(m.Passed.Get() + m.Wrong.Get())
}

// Instant returns the same as an instant.
func (m *Machine) Instant() lastseen.Instant { return lastseen.InstantOf(m.Wall()) }

// Monotonic returns the time that has passed.
func (m *Machine) Monotonic() time.Duration { return m.Passed.Get() }
