package memstore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// hasDetails marks the reference to a user, in the maps of [users], who has details in the table of availability.
const hasDetails packed.Ref = 1 << 63

// plain returns an entry without the mark.
func (e entry) plain() entry { return entry{e.score, e.name &^ hasDetails} }

// details returns a user's state and details. Details is nil if the user has none.
func (u *users) details(user string) (lastseen.State, *store.Details) {
	_, e, known, _ := u.find(user)
	switch a := u.availability; {
	case e.name&hasDetails != 0:
		return e.score.State(), a.details[e.name&^hasDetails]
	case known || a == nil || a.availabilities.Len() == a.listed && len(a.inCalls) == 0:
		return e.score.State(), nil
	}
	if d := u.availability.others(user); d != (store.Details{}) {
		return lastseen.State{}, &d
	}
	return lastseen.State{}, nil
}

// detailsOf returns the details of a user; zero if the user has none.
func (u *users) detailsOf(user string) store.Details {
	if u.availability == nil {
		return store.Details{}
	}
	if _, d := u.details(user); d != nil {
		return *d
	}
	return store.Details{}
}

// describe keeps the details of a user who has a state, and the mark; zero details delete both.
func (u *users) describe(user string, d store.Details) {
	hash, e, known, collides := u.find(user)
	if !known {
		return
	}
	at, marked := e.name&^hasDetails, e.name&hasDetails != 0
	if marked {
		u.undescribe(at)
	}
	e.name = at
	if d != (store.Details{}) {
		e.name |= hasDetails
		u.availability.details[at] = &d
		if d.Availability != (lastseen.AvailabilityState{}) {
			u.availability.listed++
		}
	}
	switch {
	case marked == (d != store.Details{}):
	case collides:
		u.collisions[user] = e
	default:
		u.known[hash] = e
	}
}

// undescribe deletes the details of a user who has some.
func (u *users) undescribe(at packed.Ref) {
	if u.availability.details[at].Availability != (lastseen.AvailabilityState{}) {
		u.availability.listed--
	}
	delete(u.availability.details, at)
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
	if !u.describes(s != (lastseen.AvailabilityState{})) {
		return
	}
	u.availability.set(user, s)
	d := u.detailsOf(user)
	d.Availability = u.availability.availabilityOf(user)
	u.describe(user, d)
}

// hide stores the hidden time of a user, also of a user without a state.
func (u *users) hide(user string, h Hidden) {
	if u.describes(h != (Hidden{})) {
		u.availability.hide(user, h)
	}
}

// noteIdle notes since when the devices of a user who is known are idle.
func (u *users) noteIdle(user string, d lastseen.Devices) {
	// That is none of the devices that were live when one last asserted something. Then all records were within the
	// window: older ones are deleted.
	since, _ := d.Activity(lastseen.MinInstant)
	if !u.describes(since != 0) {
		return
	}
	if now := u.detailsOf(user); now.IdleSince != since {
		now.IdleSince = since
		u.describe(user, now)
	}
}

// unlist deletes all users, but not their availability.
func (u *users) unlist() *users {
	empty := newUsers()
	empty.unlisted = true
	if empty.availability = u.availability; empty.availability != nil {
		clear(empty.availability.details)
		empty.availability.listed = 0
		clear(empty.availability.inCalls)
		empty.availability.callEnds.Clear()
	}
	return empty
}
