package memstore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// setAvailability stores what others see of a user's availability.
func (x *index) setAvailability(namespace, user string, s lastseen.AvailabilityState) {
	x.change(namespace, func(u *users) { u.setAvailability(user, s) })
}

// hide stores the hidden time of a user.
func (x *index) hide(namespace, user string, h Hidden) {
	x.hides = x.hides || h != (Hidden{})
	x.change(namespace, func(u *users) { u.hide(user, h) })
}

// forget deletes a user, and the availability.
func (x *index) forget(namespace, user string) {
	x.setAvailability(namespace, user, lastseen.AvailabilityState{})
	x.hide(namespace, user, Hidden{})
	if n, ok := x.namespaces.Get(namespace); ok {
		x.setIn(n, user, lastseen.State{})
	}
}

// seen is what others see of a user.
type seen struct {
	lastseen.State
	store.Details
}

// seen returns what others see of a user.
func (n *namespace) seen(user string) seen {
	s, d := n.users.details(user)
	if d == nil {
		return seen{State: s}
	}
	return seen{s, *d}
}

// publish makes a change of a user to the index, and appends what others see of it to the feed of the namespace. n is
// nil if that does not exist.
func (t *transaction) publish(n *namespace, user string, change func()) {
	if n == nil || n.feed == nil {
		change()
		return
	}
	old := n.seen(user)
	change()
	n.feed.wrote(user, old, n.seen(user), t)
}

// madeAt returns when changes are made, by the store's clock.
func (t *transaction) madeAt() lastseen.Instant {
	if t.now == 0 {
		t.now = t.index.feeds.clock()
	}
	return t.now
}

// make makes a change to the index, and appends it to the feed of the namespace, if there is one.
func (t *transaction) make(key lastseen.UserKey, s lastseen.State) {
	n := t.index.add(key.Namespace)
	t.publish(n, key.User, func() { t.index.setIn(n, key.User, s) })
}

// makeDevices is make for a user's state and devices.
func (t *transaction) makeDevices(key lastseen.UserKey, s lastseen.State, c deviceChange) {
	n := t.index.add(key.Namespace)
	t.publish(n, key.User, func() {
		t.index.setIn(n, key.User, s)
		t.index.change(key.Namespace, func(u *users) { u.setDevices(key.User, c.Devices, c.meta) })
	})
}

// makeAvailability is make for what others see of a user's availability.
func (t *transaction) makeAvailability(key lastseen.UserKey, s lastseen.AvailabilityState) {
	n, _ := t.index.namespaces.Get(key.Namespace)
	t.publish(n, key.User, func() { t.index.setAvailability(key.Namespace, key.User, s) })
}

// inCall reports whether a user is recorded as in a call.
func (t *transaction) inCall(key lastseen.UserKey) bool {
	n, exists := t.index.namespaces.Get(key.Namespace)
	return exists && n.users.availability.inCallOf(key.User) != 0
}

// makeForget is make for a user who is forgotten.
func (t *transaction) makeForget(key lastseen.UserKey) {
	n, exists := t.index.namespaces.Get(key.Namespace)
	t.publish(n, key.User, func() {
		if exists {
			n.users.setInCall(key.User, 0)
		}
		t.index.forget(key.Namespace, key.User)
	})
}
