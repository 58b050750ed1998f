package filestore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// people returns what was said in a namespace, which need not exist; nil if nothing was.
func (x *index) people(namespace string) *peopleTable {
	if n, ok := x.namespaces.Get(namespace); ok {
		return n.users.people
	}
	p, _ := x.unlisted.Get(namespace)
	return p
}

// say stores what others see of what a user says.
func (x *index) say(namespace, user string, s lastseen.Said) {
	if n, ok := x.namespaces.Get(namespace); ok {
		bytes := n.users.people.size()
		n.users.say(user, s)
		x.live += n.users.people.size() - bytes
		return
	}
	x.inUnlisted(namespace, func(p *peopleTable) { p.say(user, s) })
}

// hide stores the hidden time of a user.
func (x *index) hide(namespace, user string, h hidden) {
	x.hides = true
	if n, ok := x.namespaces.Get(namespace); ok {
		bytes := n.users.people.size()
		n.users.hide(user, h)
		x.live += n.users.people.size() - bytes
		return
	}
	x.inUnlisted(namespace, func(p *peopleTable) { p.hide(user, h) })
}

// inUnlisted changes what was said in a namespace that does not exist.
func (x *index) inUnlisted(namespace string, change func(*peopleTable)) {
	p, ok := x.unlisted.Get(namespace)
	if !ok {
		return
	}
	bytes := p.bytes
	change(p)
	x.live += p.bytes - bytes
	if p.empty() {
		x.unlisted.Delete(namespace)
	}
}

// forget deletes a user, and everything that the user said.
func (x *index) forget(namespace, user string) {
	x.say(namespace, user, lastseen.Said{})
	x.hide(namespace, user, hidden{})
	if n, ok := x.namespaces.Get(namespace); ok {
		x.setIn(n, user, lastseen.State{})
	}
}

// seen is what others see of a user.
type seen struct {
	lastseen.State
	store.Details
}

// seen returns what others see of a user; nothing if the user or the namespace is unknown.
func (n *namespace) seen(user string) seen {
	if n == nil {
		return seen{}
	}
	s, d := n.users.details(user)
	if d == nil {
		return seen{State: s}
	}
	return seen{s, *d}
}

// publish makes a change of a user to the index, and appends what others see of it to the feed of the namespace.
func (t *transaction) publish(n *namespace, user string, change func()) {
	if n.feed == nil {
		change()
		return
	}
	old := n.seen(user)
	change()
	t.wrote(n, user, old, n.seen(user))
}

// wrote appends a change to the feed of a namespace.
func (t *transaction) wrote(n *namespace, user string, old, now seen) {
	feeds := &t.index.feeds
	if t.now == 0 {
		t.now = feeds.clock()
	}
	n.feed.wrote(user, old, now, occasion{now: t.now, monotonic: feeds.monotonic, trims: t.trims})
}

// make makes a change to the index, and appends it to the feed of the namespace, if there is one.
func (t *transaction) make(key lastseen.UserKey, s lastseen.State) {
	n := t.index.add(key.Namespace)
	if n.feed != nil && n.users.people != nil {
		t.publish(n, key.User, func() { t.index.setIn(n, key.User, s) })
		return
	}
	old := t.index.setIn(n, key.User, s)
	if n.feed != nil {
		t.wrote(n, key.User, seen{State: old}, seen{State: s})
	}
}

// makeDevices is make for a user's state and devices.
func (t *transaction) makeDevices(key lastseen.UserKey, s lastseen.State, c deviceChange) {
	n := t.index.add(key.Namespace)
	t.publish(n, key.User, func() {
		t.index.setIn(n, key.User, s)
		t.index.setDevices(key.Namespace, key.User, c.Devices, c.meta)
	})
}

// makeSaid is make for what others see of what a user says.
func (t *transaction) makeSaid(key lastseen.UserKey, s lastseen.Said) {
	n, ok := t.index.namespaces.Get(key.Namespace)
	if !ok {
		t.index.say(key.Namespace, key.User, s)
		return
	}
	t.publish(n, key.User, func() { t.index.say(key.Namespace, key.User, s) })
}

// makeForget is make for a user who is forgotten.
func (t *transaction) makeForget(key lastseen.UserKey) {
	n, ok := t.index.namespaces.Get(key.Namespace)
	if !ok {
		t.index.forget(key.Namespace, key.User)
		return
	}
	t.publish(n, key.User, func() {
		n.users.setInCall(key.User, 0)
		t.index.forget(key.Namespace, key.User)
	})
}
