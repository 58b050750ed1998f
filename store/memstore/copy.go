package memstore

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
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

// Change calls a function with each user of a namespace of whom other tables keep something else than these, in no
// order, until it fails: after these changes, the other tables have the same. Nothing may use the tables meanwhile.
func (x *Tables) Change(other *Tables, namespace string, change func(store.KeptChange) error) error {
	now, was := x.index.usersOf(namespace), other.index.usersOf(namespace)
	err := now.everyone(func(user string) error {
		c := store.KeptChange{User: user, Was: was.kept(user), Now: now.kept(user)}
		if c.Was.Equal(c.Now) {
			return nil
		}
		return change(c)
	})
	if err != nil {
		return err
	}
	return was.everyone(func(user string) error {
		if gone := now.kept(user).Equal(store.Kept{}); !gone {
			return nil
		}
		return change(store.KeptChange{User: user, Was: was.kept(user)})
	})
}
