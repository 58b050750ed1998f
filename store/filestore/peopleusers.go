package filestore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// hasDetails marks the place of a user, in the maps of [users], who has details in the table of people.
const hasDetails place = 1 << 63

// plain returns the place of a name without the mark.
func (p place) plain() place { return p &^ hasDetails }

func (e entry) plain() entry { return entry{e.score, e.name.plain()} }

// details returns a user's state and details. Details is nil if the user has none.
func (u *users) details(user string) (lastseen.State, *store.Details) {
	_, e, known, _ := u.find(user)
	switch {
	case e.name&hasDetails != 0:
		return e.score.state(), u.people.details[e.name.plain()]
	case known || u.people == nil || u.people.said.Len() == u.people.saidBy && len(u.people.inCalls) == 0:
		return e.score.state(), nil
	}
	if d := u.people.others(user); d != (store.Details{}) {
		return lastseen.State{}, &d
	}
	return lastseen.State{}, nil
}

// detailsOf returns the details of a user; zero if the user has none.
func (u *users) detailsOf(user string) store.Details {
	if u.people == nil {
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
	at, marked := e.name.plain(), e.name&hasDetails != 0
	if marked {
		u.undescribe(at)
	}
	e.name = at
	if d != (store.Details{}) {
		e.name |= hasDetails
		u.people.details[at] = &d
		if d.Said != (lastseen.Said{}) {
			u.people.saidBy++
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
func (u *users) undescribe(at place) {
	if u.people.details[at].Said != (lastseen.Said{}) {
		u.people.saidBy--
	}
	delete(u.people.details, at)
}

// say stores what others see of what a user says, also of a user without a state.
func (u *users) say(user string, s lastseen.Said) {
	if u.people == nil {
		if s == (lastseen.Said{}) {
			return
		}
		u.people = newPeopleTable()
	}
	u.people.say(user, s)
	d := u.detailsOf(user)
	d.Said = u.people.saidOf(user)
	u.describe(user, d)
}

// hide stores the hidden time of a user, also of a user without a state.
func (u *users) hide(user string, h hidden) {
	if u.people == nil {
		if h == (hidden{}) {
			return
		}
		u.people = newPeopleTable()
	}
	u.people.hide(user, h)
}

// forget deletes a user, and everything that the user said.
func (u *users) forget(user string) {
	u.say(user, lastseen.Said{})
	u.hide(user, hidden{})
	u.remove(user)
}

// noteIdle notes since when the devices of a user who is known are idle.
func (u *users) noteIdle(user string, d lastseen.Devices) {
	since := idleSince(d)
	if u.people == nil {
		if since == 0 {
			return
		}
		u.people = newPeopleTable()
	}
	if now := u.detailsOf(user); now.IdleSince != since {
		now.IdleSince = since
		u.describe(user, now)
	}
}

// idleSince returns since when the user uses none of the devices that were live when one last asserted something. Then
// all records were within the window: older ones are deleted.
func idleSince(d lastseen.Devices) lastseen.Instant {
	since, _ := d.Activity(lastseen.MinInstant)
	return since
}

// unlist deletes all users, but not what they said.
func (u *users) unlist() *users {
	empty := newUsers()
	if empty.people = u.people; empty.people != nil {
		clear(empty.people.details)
		empty.people.saidBy = 0
		empty.people.endInCalls()
	}
	return empty
}
