package memstore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// This file copies all that is kept to other stores, and from them.

// Keep adds to a log what is kept of a user of whom nothing is kept yet. Contacts can come in a call of their own.
func Keep(log Log, namespace, user string, k store.Kept) {
	switch {
	case !isZero(k.Devices):
		log.SetDevices(namespace, user, k.State, k.Devices, k.Meta)
	case k.State.Known():
		log.Set(namespace, user, k.State)
	}
	if k.Availability != (lastseen.AvailabilityState{}) {
		log.SetAvailability(namespace, user, k.Availability)
	}
	if k.Hidden != (store.KeptHidden{}) {
		log.Hide(namespace, user, Hidden(k.Hidden))
	}
	if len(k.Contacts) > 0 {
		log.ChangeContacts(namespace, user, k.Used, k.Contacts, nil)
	}
}

// kept returns all that is kept of a user.
func (u *users) kept(user string) (k store.Kept) {
	if e, known := u.get(user); known {
		k.State = e.score.State()
	}
	var metas []string
	k.Devices, metas = u.devicesOf(user)
	for i, text := range metas {
		if text == "" {
			continue
		}
		if k.Meta == nil {
			k.Meta = map[string]string{}
		}
		k.Meta[k.Devices.Records[i].ID] = text
	}
	k.Availability = u.availability.availabilityOf(user)
	k.Hidden = store.KeptHidden(u.availability.hiddenOf(user))
	if contacts := u.contacts.of(user); contacts.list != "" {
		k.Contacts, k.Used = contacts.list.all(), contacts.used
	}
	return k
}

// everyone calls a function with each user of whom something is kept, in no order, until it fails.
func (u *users) everyone(visit func(user string) error) error {
	for _, e := range u.all() {
		if err := visit(u.name(e)); err != nil {
			return err
		}
	}
	others := map[string]struct{}{}
	note := func(user string) bool {
		if _, known := u.get(user); !known {
			others[user] = struct{}{}
		}
		return true
	}
	if u.availability != nil {
		u.availability.availabilities.Scan(func(user string, _ *lastseen.AvailabilityState) bool { return note(user) })
		u.availability.hidden.Scan(func(user string, _ *Hidden) bool { return note(user) })
	}
	if u.contacts != nil {
		u.contacts.lists.Scan(func(user string, _ ownedContacts) bool { return note(user) })
	}
	for user := range others {
		if err := visit(user); err != nil {
			return err
		}
	}
	return nil
}

// Names returns the namespaces that exist, and those that do not although something is kept in them, in order.
func (x *Tables) Names() (listed, unlisted []string) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.index.namespaces.Keys(), x.index.unlisted.Keys()
}

// Export calls a function with all that is kept of each user, in no order, and with "" for each namespace that exists,
// until it fails. Nothing may change the tables meanwhile.
func (x *Tables) Export(keep func(namespace, user string, k store.Kept) error) error {
	for _, name := range x.index.namespaces.Keys() {
		if err := keep(name, "", store.Kept{}); err != nil {
			return err
		}
		u := x.index.usersOf(name)
		if err := u.everyone(func(user string) error { return keep(name, user, u.kept(user)) }); err != nil {
			return err
		}
	}
	return nil
}

// Compare calls a function with each user of whom another store keeps something else than these tables, in no order,
// until it fails: after these changes, it keeps the same. It is given what exports the other store, which may name a
// user twice. Compare returns the namespaces that exist there and not here, whose users it leaves out, and those that
// exist here alone. Nothing may change the tables meanwhile.
func (x *Tables) Compare(
	export func(keep func(namespace, user string, k store.Kept) error) error,
	change func(namespace string, c store.KeptChange) error,
) (surplus, missing []string, err error) {
	same := map[string]*found{}
	for _, name := range append(x.index.namespaces.Keys(), x.index.unlisted.Keys()...) {
		same[name] = &found{
			users: x.index.usersOf(name), known: map[packed.Ref]struct{}{}, others: map[string]struct{}{},
		}
	}
	err = export(func(name, user string, was store.Kept) error {
		f := same[name]
		switch {
		case user == "" && (f == nil || f.users.unlisted):
			surplus = append(surplus, name)
			return nil
		case user == "":
			f.named = true
			return nil
		case f == nil, f.users.unlisted, f.add(user):
			return nil
		}
		if now := f.users.kept(user); !now.Equal(was) {
			return change(name, store.KeptChange{User: user, Was: was, Now: now})
		}
		return nil
	})
	for name, f := range same {
		if err != nil {
			return nil, nil, err
		}
		if !f.named && !f.users.unlisted {
			missing = append(missing, name)
		}
		err = f.users.everyone(func(user string) error {
			if f.add(user) {
				return nil
			}
			return change(name, store.KeptChange{User: user, Now: f.users.kept(user)})
		})
	}
	return surplus, missing, err
}

// found are the users of a namespace whom another store named.
type found struct {
	users  *users
	named  bool                    // the namespace exists there
	known  map[packed.Ref]struct{} // those who have a state here
	others map[string]struct{}
}

// add adds a user, and reports whether that was added before.
func (f *found) add(user string) bool {
	if e, known := f.users.get(user); known {
		n := len(f.known)
		f.known[e.name] = struct{}{}
		return len(f.known) == n
	}
	n := len(f.others)
	f.others[user] = struct{}{}
	return len(f.others) == n
}
