package memstore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// details returns a user's state and details. Details is nil if the user has none.
func (u *users) details(user string) (lastseen.State, *store.Details) {
	e, _ := u.get(user)
	return e.score.State(), u.availability.find(user)
}

// describes reports whether there is a table of availability, which it makes if there is something to store.
func (u *users) describes(something bool) bool {
	if u.availability == nil && something {
		u.availability = newAvailabilityTable()
	}
	return u.availability != nil
}

// setAvailability stores what others see of a user's availability, also of a user without a state.
func (u *users) setAvailability(user string, s lastseen.AvailabilityState) {
	if u.describes(s != (lastseen.AvailabilityState{})) {
		u.availability.set(user, s)
	}
}

// setInCall stores until when a user is in a call, also for a user without a state.
func (u *users) setInCall(user string, until lastseen.Instant) {
	if u.describes(until != 0) {
		u.availability.setInCall(user, until)
	}
}

// hide stores the hidden time of a user, also of a user without a state.
func (u *users) hide(user string, h Hidden) {
	if u.describes(h != (Hidden{})) {
		u.availability.hide(user, h)
	}
}

// noteIdle notes since when the devices of a user are idle.
func (u *users) noteIdle(user string, d lastseen.Devices) {
	// That is none of the devices that were live when one last asserted something. Then all records were within the
	// window: older ones are deleted.
	since, _ := d.Activity(lastseen.MinInstant)
	if u.describes(since != 0) {
		u.availability.setIdle(user, since)
	}
}

// unlist deletes all users, but not their availability.
func (u *users) unlist() *users {
	empty := newUsers()
	empty.unlisted = true
	if p := u.availability; p != nil {
		empty.availability = p
		p.callEnds.Clear()
		clear(p.details)
		p.availabilities.Scan(func(user string, s *lastseen.AvailabilityState) bool {
			p.details[user] = &store.Details{Availability: *s}
			return true
		})
	}
	return empty
}
