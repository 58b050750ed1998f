package filestore

import (
	"encoding/binary"
	"fmt"

	"github.com/lastseen/lastseen"
)

// The payload of a record is a run of changes:
//
//	change  = 'n' name                the changes that follow are to this namespace, which exists
//	        | 's' user score          the user's state is now this; their devices stay
//	        | 'v' user score devices  the user's state and devices are now these; see devicetext.go
//	        | 'm' id meta             the meta of a record is now this; of the user of the last 'v'
//	        | 'f' user                the user and their devices are deleted, and what the user said
//	        | 't' user                the user and their devices are deleted; what the user said stays
//	        | 'd'                     the namespace and all its users are deleted, and what they said
//	        | 'e'                     the namespace and all its users are deleted; what they said stays
//	        | 'a' …, 'h' …            what a user says; see peoplerecord.go
//	        | 'u' …, 'c' …            the contacts of a user; see contacts.go
//	name, user, id, meta = length as uvarint, bytes;  score = varint
//
// A change states a result, not an operation, so replaying a run twice has the same result as replaying it once.
const (
	changeNamespace = 'n'
	changeState     = 's'
	changeDevices   = 'v'
	changeMeta      = 'm'
	changeForget    = 'f'
	changeTrim      = 't'
	changeDrop      = 'd'
	changeUnlist    = 'e'
	changeSaid      = 'a'
	changeHidden    = 'h'
	changeContacts  = 'u'
	changeUnused    = 'c' // contacts without a last use
)

// changes is a run being written. A long run is split into parts, each of which can be replayed by itself.
type changes struct {
	parts     [][]byte // all but the last part
	buf       []byte   // the last part
	namespace string   // of the last change
	users     int      // changes to users; several to one user count as often
}

// maxPart is the length at which a part is complete. It is less than maxPayload by more than one change.
const maxPart = 8 << 20

func (c *changes) empty() bool { return len(c.parts) == 0 && len(c.buf) == 0 }

func (c *changes) all() [][]byte {
	if len(c.buf) == 0 {
		return c.parts
	}
	return append(c.parts, c.buf)
}

// in starts a change to a namespace.
func (c *changes) in(namespace string) {
	if len(c.buf) >= maxPart {
		c.parts, c.buf = append(c.parts, c.buf), nil
	}
	if len(c.buf) > 0 && c.namespace == namespace {
		return
	}
	c.namespace = namespace
	c.buf = append(c.buf, changeNamespace)
	c.buf = appendString(c.buf, namespace)
}

// set adds a user's state; the zero state deletes the user.
func (c *changes) set(namespace, user string, s lastseen.State) {
	c.in(namespace)
	c.users++
	if !s.Known() {
		c.buf = appendString(append(c.buf, changeForget), user)
		return
	}
	c.buf = appendString(append(c.buf, changeState), user)
	c.buf = binary.AppendVarint(c.buf, int64(scoreOf(s)))
}

// setDevices adds a user's state and devices, and the meta of some of them, by the ID of the record.
func (c *changes) setDevices(namespace, user string, s lastseen.State, d lastseen.Devices, meta map[string]string) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeDevices), user)
	c.buf = binary.AppendVarint(c.buf, int64(scoreOf(s)))
	c.buf = appendDevices(c.buf, d)
	for id, text := range meta {
		c.buf = appendString(appendString(append(c.buf, changeMeta), id), text)
	}
}

// trim deletes a user, but not what the user said.
func (c *changes) trim(namespace, user string) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeTrim), user)
}

func (c *changes) drop(namespace string) { c.remove(namespace, changeDrop) }

// unlist deletes a namespace and its users, but not what they said.
func (c *changes) unlist(namespace string) { c.remove(namespace, changeUnlist) }

func (c *changes) remove(namespace string, change byte) {
	c.in(namespace)
	c.buf = append(c.buf, change)
	c.namespace = "" // the next change names its namespace again, which creates it
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// contents is the result of replaying runs: the users of each namespace.
type contents map[string]*users

// errSyntax means that a run is not one that changes writes.
var errSyntax = fmt.Errorf("%w: malformed record", ErrDamaged)

// replay applies a run that matched its checksum.
func (c contents) replay(run []byte) error {
	var name, user string // user is that of the last changeDevices
	for rest := (cutter{rest: run}); len(rest.rest) > 0; {
		change := rest.rest[0]
		rest.rest = rest.rest[1:]
		if c[name] != nil && c.remove(name, change) {
			continue
		}
		text := rest.string()
		if rest.failed || change != changeNamespace && c[name] == nil {
			return errSyntax
		}
		switch change {
		case changeNamespace:
			name, user = text, ""
			if c[name] == nil {
				c[name] = newUsers()
			}
			c[name].unlisted = false
		case changeForget:
			c[name].forget(text)
		case changeTrim:
			c[name].remove(text)
		case changeSaid:
			c[name].replaySaid(text, &rest)
		case changeHidden:
			c[name].replayHidden(text, &rest)
		case changeContacts, changeUnused:
			c[name].replayContacts(text, change == changeContacts, &rest)
		case changeState:
			c[name].replayState(text, &rest)
		case changeDevices:
			user = text
			c[name].replayDevices(text, &rest)
		case changeMeta:
			c[name].replayMeta(user, text, &rest)
		default:
			return errSyntax
		}
		if rest.failed {
			return errSyntax
		}
	}
	return nil
}

// remove applies a change to a whole namespace; false if it is not one.
func (c contents) remove(namespace string, change byte) bool {
	switch change {
	case changeDrop:
		delete(c, namespace)
	case changeUnlist:
		c[namespace] = c[namespace].unlist()
		c[namespace].unlisted = true
	default:
		return false
	}
	return true
}

func (u *users) replayState(user string, rest *cutter) {
	at := score(rest.instant())
	if at == 0 {
		rest.fail()
		return
	}
	u.set(user, at)
}

func (u *users) replayDevices(user string, rest *cutter) {
	at, d := score(rest.instant()), rest.devices()
	twice := false
	for i, r := range d.Records {
		twice = twice || indexOf(d.Records[:i], r.ID) >= 0
	}
	if at == 0 || twice || rest.failed {
		rest.fail()
		return
	}
	u.set(user, at)
	u.setDevices(user, d, nil)
}

func (u *users) replayMeta(user, record string, rest *cutter) {
	d, _ := u.devicesOf(user)
	meta := rest.string()
	if rest.failed || indexOf(d.Records, record) < 0 {
		rest.fail()
		return
	}
	u.setDevices(user, d, map[string]string{record: meta})
}
