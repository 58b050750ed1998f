package filestore

import (
	"fmt"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// errSyntax means that a run is not one that changes writes.
var errSyntax = fmt.Errorf("%w: malformed record", ErrDamaged)

// replay adds the changes of a run that matched its checksum to a log. After an error, what is in the log is not valid.
func replay(run []byte, to memstore.Log) error {
	r := reader{Reader: packed.Reader{Rest: run}, to: to}
	for len(r.Rest) > 0 {
		change := r.Rest[0]
		r.Rest = r.Rest[1:]
		r.replay(change)
	}
	if r.Failed {
		return errSyntax
	}
	return nil
}

// reader reads the changes of a run.
type reader struct {
	packed.Reader
	to        memstore.Log
	namespace string // of the changes that follow
	exists    bool   // there is such a namespace
}

// replay reads the rest of one change.
func (r *reader) replay(change byte) {
	switch {
	case change == changeNamespace:
		r.namespace, r.exists = r.String(), true
		r.to.In(r.namespace)
	case !r.exists:
		r.Fail()
	case change == changeDrop:
		r.to.Drop(r.namespace)
		r.exists = false
	case change == changeUnlist:
		r.to.Unlist(r.namespace)
		r.exists = false
	default:
		r.replayUser(change, r.String())
	}
}

// replayUser reads the rest of a change to a user.
func (r *reader) replayUser(change byte, user string) {
	switch change {
	case changeForget:
		r.to.Forget(r.namespace, user)
	case changeTrim:
		r.to.Trim(r.namespace, user)
	case changeState:
		r.to.Set(r.namespace, user, r.state())
	case changeDevices:
		r.replayDevices(user)
	case changeAvailability:
		availability := lastseen.AvailabilityState{Availability: r.availability(), Until: r.time(), Note: r.String()}
		r.to.SetAvailability(r.namespace, user, availability)
	case changeHidden:
		h := memstore.Hidden{
			HiddenTime: lastseen.HiddenTime{End: r.time(), Ended: r.Bool()}, Until: r.time(), Note: r.String(),
		}
		if h.End == 0 {
			h = memstore.Hidden{}
		}
		r.to.Hide(r.namespace, user, h)
	case changeContacts, changeUnused:
		r.replayContacts(user, change == changeContacts)
	default:
		r.Fail()
	}
}

// state reads a known state.
func (r *reader) state() lastseen.State {
	at := packed.Score(r.Instant())
	if at == 0 {
		r.Fail()
	}
	return at.State()
}

// replayDevices reads the state and the devices of a user, and the meta of records, which follows.
func (r *reader) replayDevices(user string) {
	s, d := r.state(), r.Devices()
	index := func(id string) int {
		return slices.IndexFunc(d.Records, func(r lastseen.DeviceRecord) bool { return r.ID == id })
	}
	for i, record := range d.Records {
		if index(record.ID) != i {
			r.Fail()
		}
	}
	var meta map[string]string
	for len(r.Rest) > 0 && r.Rest[0] == changeMeta {
		r.Rest = r.Rest[1:]
		id, text := r.String(), r.String()
		if index(id) < 0 {
			r.Fail()
		}
		if meta == nil {
			meta = map[string]string{}
		}
		meta[id] = text
	}
	r.to.SetDevices(r.namespace, user, s, d, meta)
}

// time reads an instant in range, or 0.
func (r *reader) time() lastseen.Instant {
	at := r.Instant()
	if at < 0 || at > lastseen.MaxInstant {
		r.Fail()
	}
	return at
}

// availability reads an availability that others see. It returns one of the constants, which takes no memory.
func (r *reader) availability() lastseen.Availability {
	others := []lastseen.Availability{"", lastseen.Away, lastseen.Busy}
	i := slices.Index(others, lastseen.Availability(r.String()))
	if i < 0 {
		r.Fail()
		return ""
	}
	return others[i]
}

// replayContacts reads a change to the contacts of an owner; with used, one that has the last use.
func (r *reader) replayContacts(owner string, used bool) {
	var at lastseen.Instant
	if used {
		at = r.time()
	}
	if owner == "" {
		r.Fail()
	}
	r.to.ChangeContacts(r.namespace, owner, at, r.contacts(), r.contacts())
}

// contacts reads contacts in bytewise order.
func (r *reader) contacts() []string {
	count := r.Uvarint()
	if count > store.MaxContacts {
		r.Fail()
		return nil
	}
	contacts := make([]string, count)
	for i := range contacts {
		contacts[i] = r.String()
		if i > 0 && contacts[i] <= contacts[i-1] {
			r.Fail()
			return nil
		}
	}
	return contacts
}
