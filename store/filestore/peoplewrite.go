package filestore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// saying is a call of SetAvailability.
type saying struct {
	userKey
	said  lastseen.Said
	at    lastseen.Instant
	now   func() lastseen.Instant
	s     *Store
	err   error          // why nothing was recorded
	state lastseen.State // the result
}

func (a *saying) do(t *transaction) {
	now := a.now()
	if t.staged == nil {
		t.now = now
	}
	at := store.Bounded(a.at, now)
	if a.err = a.record(t, at, now); a.err != nil {
		return
	}
	t.noteUse(a.userKey, now)
	a.state = t.get(a.namespace, a.user)
	t.purge(a.namespace, t.purgeable(a.namespace, min(a.at, now)), min(a.at, now).Add(-store.HiddenKept))
}

// record records what the user says at a time.
func (a *saying) record(t *transaction, at, now lastseen.Instant) error {
	said, h := a.said.At(at), t.hiddenOf(a.userKey)
	if said.Availability != lastseen.Invisible {
		if said != (lastseen.Said{}) {
			if err := t.ensure(a.namespace); err != nil {
				return err
			}
		}
		t.hide(a.userKey, h.ended(at, now))
		t.say(a.userKey, said)
		return nil
	}
	if h.said().At(at) == (lastseen.Said{}) { // visible until now
		if err := t.ensure(a.namespace); err != nil {
			return err
		}
		t.leave(a.userKey, at)
	}
	t.hide(a.userKey, hidden{
		HiddenTime: lastseen.HiddenTime{End: said.HiddenUntil()}, until: said.Until, note: said.Note,
	})
	return nil
}

// ended returns what is kept of a hidden time once the user says something else.
func (h hidden) ended(at, now lastseen.Instant) hidden {
	switch {
	case h.End == 0:
		return hidden{}
	case h.Ended && h.End <= now.Add(store.MaxAhead):
		return h
	}
	return hidden{HiddenTime: lastseen.HiddenTime{End: min(h.End, at), Ended: true}}
}

// leave records that a user left on all devices, at a time or at the user's own time if that is later.
func (t *transaction) leave(key userKey, at lastseen.Instant) {
	state := t.get(key.namespace, key.user)
	at = max(at, state.At)
	if !t.hasDevices(key.namespace) {
		if left := state.AfterLeave(at); left != state {
			t.set(key.namespace, key.user, left)
		}
		return
	}
	writes := deviceWrites{t: t, namespace: key.namespace, users: map[string]*deviceWrite{}}
	w := writes.of(key.user)
	w.state, w.Devices = w.Leave(w.state, at)
	writes.finish()
}

func (t *transaction) saidOf(key userKey) lastseen.Said {
	if s, ok := t.said[key]; ok {
		return s
	}
	return t.index.people(key.namespace).saidOf(key.user)
}

func (t *transaction) hiddenOf(key userKey) hidden {
	if h, ok := t.hidden[key]; ok {
		return h
	}
	return t.index.people(key.namespace).hiddenOf(key.user)
}

// says reports whether anything is kept of what a user said.
func (t *transaction) says(key userKey) bool {
	return t.saidOf(key) != (lastseen.Said{}) || t.hiddenOf(key) != (hidden{})
}

// say changes what others see of what a user says.
func (t *transaction) say(key userKey, s lastseen.Said) {
	if t.saidOf(key) == s {
		return
	}
	t.log.say(key.namespace, key.user, s)
	t.logged(key.namespace)
	if t.staged == nil {
		t.makeSaid(key, s)
		return
	}
	t.stageSaid(key, s)
}

func (t *transaction) stageSaid(key userKey, s lastseen.Said) {
	if t.said == nil {
		t.said = map[userKey]lastseen.Said{}
	}
	t.said[key] = s
}

// hide changes the hidden time of a user.
func (t *transaction) hide(key userKey, h hidden) {
	if t.hiddenOf(key) == h {
		return
	}
	t.log.hide(key.namespace, key.user, h)
	t.logged(key.namespace)
	if t.staged == nil {
		t.index.hide(key.namespace, key.user, h)
		return
	}
	t.stageHidden(key, h)
}

func (t *transaction) stageHidden(key userKey, h hidden) {
	if t.hidden == nil {
		t.hidden = map[userKey]hidden{}
	}
	t.hidden[key] = h
}

// logged ends changes to a namespace that need not exist. The changes alone would create it.
func (t *transaction) logged(namespace string) {
	if !t.exists(namespace) {
		t.log.unlist(namespace)
	}
}

// hides returns a function that reports whether an assertion is hidden; nil if no user of a namespace is hidden.
func (t *transaction) hides(namespace string, now lastseen.Instant) func(user string, at lastseen.Instant) bool {
	if !t.index.hides && t.hidden == nil {
		return nil
	}
	people := t.index.people(namespace)
	if t.hidden == nil && (people == nil || people.hidden.Len() == 0) {
		return nil
	}
	return func(user string, at lastseen.Instant) bool {
		h, ok := t.hidden[userKey{namespace, user}]
		if !ok {
			h = people.hiddenOf(user)
		}
		return h.End != 0 && h.Hides(at, now, store.MaxAhead)
	}
}

// maxPurge is how many users one call of SetAvailability looks at to delete what ended.
const maxPurge = 16

// purge deletes some of what was said that ended by a time, and some hidden times that ended by an earlier one.
func (t *transaction) purge(namespace string, said, hiddenBy lastseen.Instant) {
	p := t.index.people(namespace)
	if p == nil {
		return
	}
	for _, end := range firstEnds(p.ends, said, maxPurge) {
		if key := (userKey{namespace, end.user}); t.saidOf(key).Until == end.at {
			t.say(key, lastseen.Said{})
		}
	}
	for _, user := range p.nextHidden(maxPurge) {
		key := userKey{namespace, user}
		if end := t.hiddenOf(key).End; end <= hiddenBy {
			t.noteUse(key, end)
			t.hide(key, hidden{})
		}
	}
}

// purgeable returns the time until which what ended can be deleted: with a feed, entries of the ends come first.
func (t *transaction) purgeable(namespace string, until lastseen.Instant) lastseen.Instant {
	if f := t.index.feed(namespace); f != nil {
		return min(until, f.watermark)
	}
	return until
}
