package filestore

import (
	"context"
	"strings"

	"github.com/lastseen/lastseen"
)

// changeCalls runs a step on the calls of a namespace, and records in the details of its parties who is in a call, both
// at once for those who read. It changes the memory alone.
func (s *Store) changeCalls(ctx context.Context, namespace string, step func(*callTable, moment)) error {
	return s.change(ctx, func(*index) error {
		s.calls.step(namespace, false, func(t *callTable, m moment) {
			step(t, m)
			s.setInCalls(namespace, t.changed, t.inCallUntil)
			t.changed = nil
		})
		return nil
	})
}

// setInCalls records until when users are in a call; 0 for not. It also deletes some of what has ended, and is in the
// feed. Nothing is recorded in a namespace that does not exist. The caller holds the lock.
func (s *Store) setInCalls(name string, users []string, until func(user string) lastseen.Instant) {
	n, ok := s.index.namespaces.Get(name)
	if !ok || len(users) == 0 {
		return
	}
	t := &transaction{index: &s.index}
	for _, user := range users { // in this order in the feed, too
		t.publish(n, user, func() { n.users.setInCall(user, until(user)) })
	}
	if p := n.users.people; p != nil {
		for _, end := range firstEnds(p.callEnds, t.purgeable(name, s.readClock()), maxPurge) {
			t.publish(n, end.user, func() { n.users.setInCall(end.user, 0) })
		}
	}
}

// hear notes that a party of an active call was heard. Servers hear parties four times in the quiet time. It moves
// until when the parties are shown to be in the call if less than half of that is left, or if the store's clock was set
// back.
func (t *callTable) hear(r *callRecord, p lastseen.CallParty, m moment) {
	if p == lastseen.Caller {
		r.heard[0] = m.at
	} else {
		r.heard[1] = m.at
	}
	if due := min(r.heard[0], r.heard[1]) + r.quiet; due > r.due {
		t.setDue(r, due, m)
	}
	r.Expires = r.expires(m)
	moved, left := r.Expires.Sub(r.shownUntil), r.shownUntil.Sub(m.wall)
	if moved > 0 && left < r.quiet/2 || moved <= -r.quiet/4 {
		t.show(r)
	}
}

// show has the parties of an active call shown to be in it until it expires.
func (t *callTable) show(r *callRecord) {
	r.shownUntil = r.Expires
	t.note(r)
}

// note notes that who is in a call has changed, or until when, where calls are shown.
func (t *callTable) note(r *callRecord) {
	if r.shown {
		t.changed = append(t.changed, r.From, r.To)
	}
}

// inCallUntil returns until when a user is shown to be in a call; 0 for not.
func (t *callTable) inCallUntil(user string) lastseen.Instant {
	if r := t.current[user]; r != nil && r.State == lastseen.Active && r.shown {
		return r.shownUntil
	}
	return 0
}

// setInCall stores until when a user is in a call, also for a user without a state.
func (u *users) setInCall(user string, until lastseen.Instant) {
	if u.people == nil {
		if until == 0 {
			return
		}
		u.people = newPeopleTable()
	}
	if u.people.inCallOf(user) == until {
		return
	}
	u.people.setInCall(user, until)
	d := u.detailsOf(user)
	d.InCallUntil = until
	u.describe(user, d)
}

// inCallOf returns until when a user is in a call; 0 for not.
func (p *peopleTable) inCallOf(user string) lastseen.Instant {
	if p == nil {
		return 0
	}
	return p.inCalls[user]
}

func (p *peopleTable) setInCall(user string, until lastseen.Instant) {
	if old, ok := p.inCalls[user]; ok {
		delete(p.inCalls, user)
		p.callEnds.Delete(saidEnd{old, user})
	}
	if until != 0 {
		user = strings.Clone(user)
		p.inCalls[user] = until
		p.callEnds.Set(saidEnd{until, user})
	}
}

// endInCalls takes all users out of their calls, in a table without states.
func (p *peopleTable) endInCalls() {
	clear(p.inCalls)
	p.callEnds.Clear()
}
