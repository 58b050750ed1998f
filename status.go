package lastseen

import (
	"fmt"
	"slices"
	"time"
)

// Status is what a reader sees of a user. It is computed from a [State] at each read.
type Status string // @name Status

// The three statuses, from online to offline.
const (
	Green  Status = "green"  // present, and seen less than the green threshold ago
	Yellow Status = "yellow" // present, and seen less than the yellow threshold ago
	Grey   Status = "grey"   // seen longer ago, left, or never seen
)

// Statuses returns all statuses, from online to offline.
func Statuses() []Status { return []Status{Green, Yellow, Grey} }

// ParseStatus returns the status with the given name. Names are lower case.
func ParseStatus(s string) (Status, error) {
	if status := Status(s); slices.Contains(Statuses(), status) {
		return status, nil
	}
	return "", fmt.Errorf("%s is not a status: use green, yellow or grey", quote(s))
}

// Thresholds are the ages at which a status changes: a user is yellow from the age Green on, and grey from the age
// Yellow on. Both are whole milliseconds.
type Thresholds struct {
	Green  time.Duration
	Yellow time.Duration
}

// Validate returns an error unless 0 < Green < Yellow and both are within the bounds of durations.
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
	Left       bool    // the newest event is a leave
	ValidUntil Instant // when the status changes without another ping or leave; 0 if it cannot
}

// Presence evaluates a user's state at the instant asOf. A user seen later than that has age zero.
//
// ValidUntil bounds changes with time only: another ping or leave can change the status sooner.
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

// Ranges returns ranges that together select exactly the users last seen within [from, to] that have one of the wanted
// statuses as of asOf; an empty wanted means all statuses. The ranges are disjoint and not empty. to is at most asOf.
func (t Thresholds) Ranges(wanted []Status, asOf, from, to Instant) []Range {
	var ranges []Range
	add := func(status Status, r Range) {
		r.From, r.To = max(r.From, from, MinInstant), min(r.To, to)
		if r.From > r.To || len(wanted) > 0 && !slices.Contains(wanted, status) {
			return
		}
		if last := len(ranges) - 1; last >= 0 && ranges[last].Left == r.Left && ranges[last].From == r.To+1 {
			ranges[last].From = r.From
			return
		}
		ranges = append(ranges, r)
	}
	green, yellow := asOf-millis(t.Green), asOf-millis(t.Yellow)
	add(Green, Range{From: green + 1, To: asOf})
	add(Yellow, Range{From: yellow + 1, To: green})
	add(Grey, Range{From: MinInstant, To: yellow})
	add(Grey, Range{Left: true, From: MinInstant, To: asOf})
	return ranges
}
