package api

import (
	"context"
	"sync"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxContactReads is how many watchers of this process read contacts from the store at the same time.
const maxContactReads = 16

// viewers finds the watchers to wake when contacts change. Its methods may be called concurrently.
type viewers struct {
	reads chan struct{} // a slot for each watcher that reads contacts

	mu     sync.Mutex
	spaces map[string]map[*contactNotes]struct{}           // the watchers of each namespace
	owners map[lastseen.UserKey]map[*contactNotes]struct{} // the watchers that depend on the contacts of a user
}

func newViewers() *viewers {
	return &viewers{
		reads:  make(chan struct{}, maxContactReads),
		spaces: map[string]map[*contactNotes]struct{}{}, owners: map[lastseen.UserKey]map[*contactNotes]struct{}{},
	}
}

// join has a watcher woken when the contacts of some users change.
func (v *viewers) join(namespace string, n *contactNotes, owners ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	put(v.spaces, namespace, n)
	for _, owner := range owners {
		put(v.owners, lastseen.UserKey{Namespace: namespace, User: owner}, n)
	}
}

// leave undoes join for some users.
func (v *viewers) leave(namespace string, n *contactNotes, owners ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, owner := range owners {
		drop(v.owners, lastseen.UserKey{Namespace: namespace, User: owner}, n)
	}
}

// end is for a watcher that has left all users.
func (v *viewers) end(namespace string, n *contactNotes) {
	v.mu.Lock()
	defer v.mu.Unlock()
	drop(v.spaces, namespace, n)
}

func put[K, V comparable](in map[K]map[V]struct{}, key K, n V) {
	if in[key] == nil {
		in[key] = map[V]struct{}{}
	}
	in[key][n] = struct{}{}
}

func drop[K, V comparable](in map[K]map[V]struct{}, key K, n V) {
	if delete(in[key], n); len(in[key]) == 0 {
		delete(in, key)
	}
}

// changed wakes the watchers that depend on the contacts of a user; without a user all of the namespace, and without a
// namespace all. It does not wait for them.
func (v *viewers) changed(namespace, owner string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if owner != "" {
		for n := range v.owners[lastseen.UserKey{Namespace: namespace, User: owner}] {
			n.note(owner)
		}
		return
	}
	for name, notes := range v.spaces {
		for n := range notes {
			if namespace == "" || name == namespace {
				n.note("")
			}
		}
	}
}

// contactNotes are what a watcher has to read again, as noted by other goroutines. The zero value is ready to use.
type contactNotes struct {
	interruption // of the watcher

	mu       sync.Mutex
	contacts contactsDue
}

// note notes that the contacts of a user may have changed, or those of all for "", and then interrupts the waiting.
func (n *contactNotes) note(owner string) {
	n.mu.Lock()
	n.contacts.add(owner)
	n.mu.Unlock()
	n.wakeUp()
}

// take adds what was noted to what is due.
func (n *contactNotes) take(due *contactsDue, viewer string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.contacts.all {
		due.all = true
		due.add(viewer)
	}
	for owner := range n.contacts.owners {
		due.add(owner)
	}
	n.contacts = contactsDue{}
}

// waits reports whether something was noted and not taken.
func (n *contactNotes) waits() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contacts.any()
}

// contactsDue says whose contacts are to be read.
type contactsDue struct {
	all    bool // of all users who are watched
	owners map[string]struct{}
}

func (d *contactsDue) any() bool { return d.all || len(d.owners) > 0 }

// add adds a user, or all for "".
func (d *contactsDue) add(owner string) {
	if owner == "" {
		d.all = true
		return
	}
	if d.owners == nil {
		d.owners = map[string]struct{}{}
	}
	d.owners[owner] = struct{}{}
}

// signalContacts has the watchers on all servers learn that the contacts of a user have changed, or without a user that
// those of all users of the namespace have.
func (s *server) signalContacts(ctx context.Context, namespace, owner string) {
	s.signalChange(ctx, store.Signal{Kind: signalContacts, Namespace: namespace, User: owner},
		"clients that follow changes may be told for up to half a minute of users by the contacts before")
}
