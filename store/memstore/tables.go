package memstore

import (
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// Tables hold the data of a store. A [Journal] fills them, and makes writes to them.
type Tables struct {
	options Options
	clock   *clock.Clock // never without a reading

	mu     sync.RWMutex
	index  index       // guarded by mu
	direct transaction // of the write in progress; kept here to save an allocation; guarded by mu
	closed bool        // guarded by mu
}

// Load fills empty tables, before their store is used, with the changes that a function passes to a log.
func (x *Tables) Load(read func(Log) error) error {
	if err := x.Fill(read); err != nil {
		return err
	}
	x.sort()
	return nil
}

// Fill is Load for tables that no store uses: their users have no order until there is a Snapshot, which saves half of
// the time.
func (x *Tables) Fill(read func(Log) error) error { return read(&loader{x: &x.index}) }

// sort makes the order of users where there is none.
func (x *Tables) sort() {
	x.index.namespaces.Scan(func(_ string, n *namespace) bool {
		if n.order == nil {
			n.sort()
		}
		return true
	})
}

// Size returns the number of users in all namespaces, and about how many bytes all data takes in a journal.
func (x *Tables) Size() (users, bytes int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.index.users, x.index.live
}

// Snapshot returns all data as it is now. It can be read without a lock until the next Snapshot.
func (x *Tables) Snapshot() Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sort()
	return x.index.freeze()
}

func (x *Tables) readClock() lastseen.Instant {
	_ = x.clock.Refresh(func() (time.Time, error) { return x.options.Now(), nil }) // Now cannot fail
	at, _ := x.clock.Now()
	return at
}

// loader is the log that fills an index. Namespaces are not sorted yet.
type loader struct {
	x    *index
	n    *namespace // of the last change; nil for none
	name string     // of the same
}

// in returns a namespace, which exists from then on.
func (l *loader) in(name string) *namespace {
	if l.n == nil || l.name != name {
		l.n, l.name = l.x.add(name), name
		l.n.order = nil
	}
	return l.n
}

func (l *loader) In(namespace string)                          { l.in(namespace) }
func (l *loader) Set(namespace, user string, s lastseen.State) { l.x.setIn(l.in(namespace), user, s) }

func (l *loader) Trim(namespace, user string) { l.Set(namespace, user, lastseen.State{}) }

func (l *loader) SetDevices(
	namespace, user string, s lastseen.State, d lastseen.Devices, meta map[string]string,
) {
	l.Set(namespace, user, s)
	l.x.change(namespace, func(u *users) { u.setDevices(user, d, meta) })
}

func (l *loader) Forget(namespace, user string) {
	l.in(namespace)
	l.x.forget(namespace, user)
}

func (l *loader) SetAvailability(namespace, user string, s lastseen.AvailabilityState) {
	l.in(namespace)
	l.x.setAvailability(namespace, user, s)
}

func (l *loader) Hide(namespace, user string, h Hidden) {
	l.in(namespace)
	l.x.hide(namespace, user, h)
}

func (l *loader) ChangeContacts(namespace, owner string, used lastseen.Instant, add, remove []string) {
	kept := l.in(namespace).users.contacts.of(owner)
	if used != 0 {
		kept.used = used
	}
	kept.list = kept.list.change(add, remove)
	l.x.change(namespace, func(u *users) { u.setContacts(owner, kept) })
}

func (l *loader) Drop(namespace string) {
	l.x.drop(namespace)
	l.n = nil
}

func (l *loader) Unlist(namespace string) {
	l.in(namespace)
	l.x.unlist(namespace)
	l.n = nil
}

// Snapshot is all data of tables at one time.
type Snapshot []frozen

// frozen is a namespace in a snapshot.
type frozen struct {
	name         string
	names        *packed.Names
	order        *btree.BTreeG[entry] // nil for a namespace that does not exist
	devices      *deviceTable         // nil for none
	availability *availabilityTable   // nil for none
	contacts     *contactTable        // nil for none
}

// freeze returns all namespaces as they are now, to be read without a lock until the next freeze.
func (x *index) freeze() Snapshot {
	all := make(Snapshot, 0, x.namespaces.Len()+x.unlisted.Len())
	x.namespaces.Scan(func(name string, n *namespace) bool {
		all = append(all, frozen{
			name, n.users.names.Freeze(), n.order.Copy(), n.users.devices.freeze(), n.users.availability.freeze(),
			n.users.contacts.freeze(),
		})
		return true
	})
	x.unlisted.Scan(func(name string, u *users) bool {
		all = append(all, frozen{name: name, availability: u.availability.freeze()})
		return true
	})
	return all
}

// Write adds all namespaces, including empty ones, and what is in them to a log. It calls next after each user and each
// namespace. Once next returns false, it ends, and what is in the log is not complete.
func (s Snapshot) Write(log Log, next func() bool) {
	more := true
	written := func() bool {
		more = more && next()
		return more
	}
	for _, f := range s {
		log.In(f.name)
		f.scan(log, written)
		if !written() {
			return
		}
	}
}

// scan adds a namespace to a log, and calls written after each change. Once that returns false, little more is added.
func (f *frozen) scan(log Log, written func() bool) {
	if f.order != nil {
		f.order.Scan(func(e entry) bool {
			f.write(log, e)
			return written()
		})
	}
	f.availability.scan(log, f.name, written)
	f.contacts.scan(log, f.name, written)
	if f.order == nil {
		log.Unlist(f.name)
	}
}

// write adds a user to a log.
func (f *frozen) write(log Log, e entry) {
	user, state := string(f.names.At(e.name)), e.score.State()
	if f.devices == nil {
		log.Set(f.name, user, state)
		return
	}
	d, meta := f.devices.readWithMeta(e.name)
	if isZero(d) {
		log.Set(f.name, user, state)
		return
	}
	log.SetDevices(f.name, user, state, d, meta)
}
