package lastseen

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// MaxNoteLen is the maximum length of a note in code points.
const MaxNoteLen = 140

// Availability is chosen by the user, while a [Status] is measured. Neither changes the other, except that a user who
// becomes [Invisible] leaves.
type Availability string // @name Availability

// The availabilities. A user without one has the empty one.
const (
	Away      Availability = "away"
	Busy      Availability = "busy"
	Invisible Availability = "invisible" // others see a user who left
)

// Availabilities returns all availabilities but the empty one.
func Availabilities() []Availability { return []Availability{Away, Busy, Invisible} }

// ParseAvailability returns the availability with this name; "" for an empty one.
func ParseAvailability(s string) (Availability, error) {
	if a := Availability(s); a == "" || slices.Contains(Availabilities(), a) {
		return a, nil
	}
	return "", fmt.Errorf("%s is not a valid availability: use away, busy or invisible, or null for none", quote(s))
}

// AvailabilityState is a user's availability with a note and an end. The zero value is that of a user without one, and
// so is an end alone: see [AvailabilityState.At].
type AvailabilityState struct {
	Availability Availability
	Note         string  // a valid note: see [CheckNote]
	Until        Instant // when it ends; 0 for no end
}

// At returns what is in effect at a time: nothing from Until on, and nothing without an availability and a note.
func (s AvailabilityState) At(now Instant) AvailabilityState {
	if s.Until != 0 && s.Until <= now || s.Availability == "" && s.Note == "" {
		return AvailabilityState{}
	}
	return s
}

// Public returns what others see: nothing of a user who is invisible.
func (s AvailabilityState) Public() AvailabilityState {
	if s.Availability == Invisible {
		return AvailabilityState{}
	}
	return s
}

// HiddenUntil returns the end of the hidden time of a user with this availability: MaxInstant if there is none; 0
// unless the user is invisible. See [HiddenTime].
func (s AvailabilityState) HiddenUntil() Instant {
	switch {
	case s.Availability != Invisible:
		return 0
	case s.Until == 0:
		return MaxInstant
	default:
		return s.Until
	}
}

// HiddenTime is the time in which what a user's devices assert is not recorded: see [HiddenTime.Hides]. The zero value
// hides nothing.
type HiddenTime struct {
	End   Instant // the first instant that is not hidden
	Ended bool    // the user set another availability at End, before the end that was set first
}

// Hides reports whether an event is hidden that is about a time and arrives now. It is hidden also if it arrives
// after the end; and if it arrives before an end that lies ahead although its time is later, so that a client whose
// clock is ahead is not seen too early.
//
// A time that the user ended hides what is about it alone: no event arrives before an end that has been. If its end
// is in the future by more than slack, a clock was wrong when the user ended it, and it hides nothing: a wrong clock
// must not keep a user hidden.
func (h HiddenTime) Hides(at, now Instant, slack time.Duration) bool {
	if h.Ended {
		return h.End <= now.Add(slack) && at < h.End
	}
	return min(at, now) < h.End
}

// CheckNote returns an error unless s is a valid note: at most 140 code points that pass [CheckText]. A note is text:
// it is never HTML.
func CheckNote(s string) error {
	if n := utf8.RuneCountInString(s); n > MaxNoteLen {
		return fmt.Errorf("the note has %d characters: at most %d are allowed", n, MaxNoteLen)
	}
	return CheckText("the note", s)
}

// Dot is what one dot beside a name shows of a user: a status, or Red.
type Dot string

// The dots. A dot is not a [Status]: red is an availability, or a call.
const (
	GreenDot  Dot = "green"  // online
	YellowDot Dot = "yellow" // online a while ago, away, or idle
	RedDot    Dot = "red"    // online, but busy or in a call
	GreyDot   Dot = "grey"   // offline
)

// DotOf returns the dot of a user. Idle reports that the user uses none of their devices, and inCall that the user is
// in a call. A user who is grey stays grey, whatever their availability is.
func DotOf(s Status, a Availability, idle, inCall bool) Dot {
	switch {
	case s == Grey:
		return GreyDot
	case a == Busy || inCall:
		return RedDot
	case a == Away || idle:
		return YellowDot
	}
	return Dot(s)
}
