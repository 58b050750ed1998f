package lastseen

import (
	"fmt"
	"time"
)

// Status is what a reader sees of a user. It is derived from a [State] whenever it is read.
type Status string // @name Status

// The three statuses, from here to away.
const (
	Green  Status = "green"  // present, and seen less than the green threshold ago
	Yellow Status = "yellow" // present, and seen less than the yellow threshold ago
	Grey   Status = "grey"   // seen longer ago, gone on purpose, or never seen
)

// Statuses returns all statuses, from here to away.
func Statuses() []Status { return []Status{Green, Yellow, Grey} }

// ParseStatus returns the status of that name. Names are lower case.
func ParseStatus(s string) (Status, error) {
	switch status := Status(s); status {
	case Green, Yellow, Grey:
		return status, nil
	default:
		return "", fmt.Errorf("%s is not a status: use green, yellow or grey", quote(s))
	}
}

// Thresholds are the two ages at which a status changes: from Green on a user is yellow, from Yellow
// on grey. Both are whole milliseconds.
type Thresholds struct {
	Green  time.Duration
	Yellow time.Duration
}

// Validate returns an error unless 0 < Green < Yellow and both lie within the bounds of durations.
func (t Thresholds) Validate() error {
	for _, d := range []time.Duration{t.Green, t.Yellow} {
		if d < MinDuration || d > MaxDuration {
			return fmt.Errorf("%s is out of range: thresholds are between 1ms and 10 years", d)
		}
	}
	if t.Green >= t.Yellow {
		return fmt.Errorf("green (%s) must be shorter than yellow (%s)", t.Green, t.Yellow)
	}
	return nil
}

// Presence is a user as seen at one instant.
type Presence struct {
	User       string
	Status     Status
	LastSeen   Instant // 0 if never seen
	Left       bool    // the last thing heard was a leave
	ValidUntil Instant // when the status decays if nothing else happens; 0 if it cannot
}

// Presence evaluates a user's state at the instant asOf. Someone seen later than that has age zero.
//
// ValidUntil bounds decay only: another ping or leave can change the status sooner.
func (t Thresholds) Presence(user string, s State, asOf Instant) Presence {
	p := Presence{User: user, Status: Grey, LastSeen: s.At, Left: s.Left}
	if s.Left || !s.Known() {
		return p
	}
	switch age := max(0, asOf-s.At); {
	case age < millis(t.Green):
		p.Status, p.ValidUntil = Green, s.At+millis(t.Green)
	case age < millis(t.Yellow):
		p.Status, p.ValidUntil = Yellow, s.At+millis(t.Yellow)
	}
	p.ValidUntil = min(p.ValidUntil, MaxInstant)
	return p
}

func millis(d time.Duration) Instant { return Instant(d.Milliseconds()) }
