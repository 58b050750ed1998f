package filestore

import (
	"context"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// SetInCalls implements [store.Store]. It changes the memory alone.
func (s *Store) SetInCalls(ctx context.Context, namespace string, in []store.InCall) error {
	in, namespace = slices.Clone(in), strings.Clone(namespace) // the write can outlast the call
	for i := range in {
		in[i].User = strings.Clone(in[i].User)
	}
	return s.writer.do(ctx, write{op: opFunc(func(t *transaction) {
		if !t.exists(namespace) {
			return
		}
		for _, i := range in {
			t.setInCall(userKey{namespace, i.User}, i.Until)
		}
		if p := t.index.people(namespace); p != nil {
			for _, end := range firstEnds(p.callEnds, s.purgeable(t, namespace, s.readClock()), maxPurge) {
				t.endInCall(userKey{namespace, end.user}, end.at)
			}
		}
	})})
}

// inCallWrite is a staged change of until when a user is in a call.
type inCallWrite struct {
	userKey
	until lastseen.Instant
	ended lastseen.Instant // if not 0, the change is made only if this is the value before
}

// setInCall records until when a user is in a call; 0 for not.
func (t *transaction) setInCall(key userKey, until lastseen.Instant) {
	t.writeInCall(inCallWrite{userKey: key, until: until})
}

// endInCall deletes the end of a call that has passed, unless another one was recorded.
func (t *transaction) endInCall(key userKey, ended lastseen.Instant) {
	t.writeInCall(inCallWrite{userKey: key, ended: ended})
}

func (t *transaction) writeInCall(w inCallWrite) {
	if t.staged == nil {
		t.makeInCall(w)
		return
	}
	t.inCalls = append(t.inCalls, w)
}

// makeInCall is make for until when a user is in a call. Nothing is recorded in a namespace that does not exist.
func (t *transaction) makeInCall(w inCallWrite) {
	n, ok := t.index.namespaces.Get(w.namespace)
	if !ok || w.ended != 0 && n.users.people.inCallOf(w.user) != w.ended {
		return
	}
	t.publish(n, w.user, func() { n.users.setInCall(w.user, w.until) })
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
