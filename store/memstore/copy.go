package memstore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// This file copies all that is kept to other stores, and from them.

// Keep adds a user to a log that has nothing about the user yet.
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
	if k.Hidden != (Hidden{}) {
		log.Hide(namespace, user, k.Hidden)
	}
	if len(k.Contacts) > 0 {
		log.ChangeContacts(namespace, user, k.Used, k.Contacts, nil)
	}
}

// kept returns all that is kept of a user, given the user's entry, if there is one.
func (u *users) kept(user string, e entry, known bool) (k store.Kept) {
	if known {
		k.State = e.score.State()
	}
	if known && u.devices != nil {
		k.Devices, k.Meta = u.devices.readWithMeta(e.name)
	}
	k.Availability = u.availability.availabilityOf(user)
	k.Hidden = u.availability.hiddenOf(user)
	if contacts := u.contacts.of(user); contacts.list != "" {
		k.Contacts, k.Used = contacts.list.all(), contacts.used
	}
	return k
}

// everyone calls a function with all that is kept of each user, in no order, until it fails. It leaves out those who
// are in a set of others.
func (u *users) everyone(out *found, visit func(user string, k store.Kept) error) error {
	if out.known.Len() < u.len() {
		for _, e := range u.all() {
			if user := u.name(e); out.known.Add(e.name) {
				if err := visit(user, u.kept(user, e, true)); err != nil {
					return err
				}
			}
		}
	}
	var unseen []string
	note := func(user string) bool {
		if _, known := u.get(user); !known && out.addOther(user) {
			unseen = append(unseen, user)
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
	for _, user := range unseen {
		if err := visit(user, u.kept(user, entry{}, false)); err != nil {
			return err
		}
	}
	return nil
}

// found are users of a namespace. The zero value has none.
type found struct {
	known  packed.Refs // those who have a state
	others map[string]struct{}
}

// addOther adds a user without a state, and reports whether there was none of that name.
func (f *found) addOther(user string) bool {
	if f.others == nil {
		f.others = map[string]struct{}{}
	}
	n := len(f.others)
	f.others[user] = struct{}{}
	return len(f.others) > n
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
	listed, unlisted := x.Names()
	for i, name := range append(listed, unlisted...) {
		if i < len(listed) {
			if err := keep(name, "", store.Kept{}); err != nil {
				return err
			}
		}
		all := func(user string, k store.Kept) error { return keep(name, user, k) }
		if err := x.index.usersOf(name).everyone(new(found), all); err != nil {
			return err
		}
	}
	return nil
}

// Compare calls change with each user whose data in another store is different, in no order, until change fails. With
// all of these changes, the other store has the same data as these tables. The function export reads the other store
// and may name a user twice. Compare returns the namespaces that exist only there, whose users it leaves out, and those
// that exist only here. Nothing may change the tables meanwhile.
func (x *Tables) Compare(
	export func(keep func(namespace, user string, k store.Kept) error) error,
	change func(namespace string, c store.KeptChange) error,
) (surplus, missing []string, err error) {
	all := map[string]*compared{}
	listed, unlisted := x.Names()
	for _, name := range append(listed, unlisted...) {
		all[name] = &compared{users: x.index.usersOf(name)}
	}
	err = export(func(name, user string, was store.Kept) error {
		c := all[name]
		switch {
		case user == "" && (c == nil || c.users.unlisted):
			surplus = append(surplus, name)
			return nil
		case user == "":
			c.named = true
			return nil
		case c == nil:
			return nil
		}
		e, known := c.users.get(user)
		if known && !c.known.Add(e.name) || !known && !c.addOther(user) {
			return nil
		}
		if now := c.users.kept(user, e, known); !now.Equal(was) {
			return change(name, store.KeptChange{User: user, Was: was, Now: now})
		}
		return nil
	})
	for name, c := range all {
		if err != nil {
			return nil, nil, err
		}
		if !c.named && !c.users.unlisted {
			missing = append(missing, name)
		}
		err = c.users.everyone(&c.found, func(user string, k store.Kept) error {
			return change(name, store.KeptChange{User: user, Now: k})
		})
	}
	return surplus, missing, err
}

// compared is a namespace that is compared with one of another store.
type compared struct {
	users *users
	named bool // it exists there
	found
}
