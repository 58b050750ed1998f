package memstore

import (
	"fmt"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// transaction gives writes access to the index. In a staged transaction, changes are kept apart from the index until
// they are in the journal; otherwise they are made at once.
type transaction struct {
	index  *index
	log    Log
	staged map[lastseen.UserKey]lastseen.State // nil if changes are made at once, as the maps below
	drops  []func()                            // staged; the ends of namespaces
	adds   map[string]struct{}                 // staged; namespaces that do not exist yet
	erased []lastseen.UserKey                  // staged; users who are forgotten, and perhaps set again

	// staged; the devices of users, by namespace and user. A namespace is in it once it has devices.
	devices map[string]map[string]deviceChange

	availabilities map[lastseen.UserKey]lastseen.AvailabilityState // staged; what others see
	hidden         map[lastseen.UserKey]Hidden                     // staged; zero for a hidden time that is deleted

	contacts map[lastseen.UserKey]ownedContacts // staged

	maxNamespaces int              // 0 for no limit
	now           lastseen.Instant // when changes are made, for feeds; 0 if the clock was not read yet
	trims         bool             // the changes are those of a Trim
}

// readClock returns the time by the store's clock. It is that of changes, unless they are staged.
func (t *transaction) readClock() lastseen.Instant {
	now := t.index.feeds.clock()
	if t.staged == nil {
		t.now = now
	}
	return now
}

func (t *transaction) get(namespace, user string) lastseen.State {
	if s, ok := t.staged[lastseen.UserKey{Namespace: namespace, User: user}]; ok {
		return s
	}
	e, _ := t.index.usersOf(namespace).get(user)
	return e.score.State()
}

func (t *transaction) set(namespace, user string, s lastseen.State) {
	t.log.Set(namespace, user, s)
	t.change(lastseen.UserKey{Namespace: namespace, User: user}, s)
}

// change changes a user's state; the zero state removes the user.
func (t *transaction) change(key lastseen.UserKey, s lastseen.State) {
	if t.staged == nil {
		t.make(key, s)
		return
	}
	t.staged[key] = s
}

// forget removes a user, and the user's availability.
func (t *transaction) forget(key lastseen.UserKey) {
	t.log.Forget(key.Namespace, key.User)
	t.logged(key.Namespace)
	if t.staged == nil {
		t.makeForget(key)
		return
	}
	t.erased = append(t.erased, key)
	delete(t.staged, key)
	if t.exists(key.Namespace) {
		t.staged[key] = lastseen.State{}
	}
	t.stageDevices(key.Namespace, key.User, deviceChange{})
	t.availabilities[key], t.hidden[key] = lastseen.AvailabilityState{}, Hidden{}
}

// trim removes a user, but not the user's availability.
func (t *transaction) trim(key lastseen.UserKey) {
	if t.hasAvailability(key) {
		t.log.Trim(key.Namespace, key.User)
	} else { // an older lastseen can read the file
		t.log.Forget(key.Namespace, key.User)
	}
	t.change(key, lastseen.State{})
}

// drop removes a namespace, and the availability in it.
func (t *transaction) drop(namespace string) {
	t.log.Drop(namespace)
	t.end(func() { t.index.drop(namespace) })
}

func (t *transaction) end(namespace func()) {
	if t.staged == nil {
		namespace()
		return
	}
	t.drops = append(t.drops, namespace)
}

// unlist removes a namespace, but not the availability in it.
func (t *transaction) unlist(namespace string) {
	t.log.Unlist(namespace)
	t.end(func() { t.index.unlist(namespace) })
}

func (t *transaction) exists(namespace string) bool {
	_, exists := t.index.namespaces.Get(namespace)
	_, added := t.adds[namespace]
	return exists || added
}

func (t *transaction) add(namespace string) {
	t.log.In(namespace)
	if t.staged == nil {
		t.index.add(namespace)
		return
	}
	t.adds[namespace] = struct{}{}
}

// ensure creates a namespace unless it exists or the limit is reached.
func (t *transaction) ensure(namespace string) error {
	if t.exists(namespace) {
		return nil
	}
	if n := t.index.namespaces.Len() + len(t.adds); t.maxNamespaces > 0 && n >= t.maxNamespaces {
		return fmt.Errorf("%w: %d", store.ErrNamespaceLimit, n)
	}
	t.add(namespace)
	return nil
}

func (t *transaction) apply() {
	for _, drop := range t.drops {
		drop()
	}
	for namespace := range t.adds {
		t.index.add(namespace)
	}
	for key, kept := range t.contacts { // before presences: what users do after a removal is not told before it
		t.makeContacts(key, kept)
	}
	for _, key := range t.erased { // in the feed, too, whatever the state is in the end
		t.makeForget(key)
	}
	for key, s := range t.staged {
		if c, ok := t.devices[key.Namespace][key.User]; ok {
			t.makeDevices(key, s, c)
		} else {
			t.make(key, s)
		}
	}
	for key, s := range t.availabilities {
		t.makeAvailability(key, s)
	}
	for key, h := range t.hidden {
		t.index.hide(key.Namespace, key.User, h)
	}
}
