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
//	        | 'm' user id meta        a client said this about the device of the user's record, if there is one
//	        | 'f' user                the user and their devices are deleted
//	        | 'd'                     the namespace and all its users are deleted
//	name, user, id, meta = length as uvarint, bytes;  score = varint
//
// A change states a result, not an operation, so replaying a run twice has the same result as replaying it once.
const (
	changeNamespace = 'n'
	changeState     = 's'
	changeDevices   = 'v'
	changeMeta      = 'm'
	changeForget    = 'f'
	changeDrop      = 'd'
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

// setDevices adds a user's state and devices, and then what clients said about some of them, by the ID of the record.
func (c *changes) setDevices(namespace, user string, s lastseen.State, d lastseen.Devices, meta map[string]string) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeDevices), user)
	c.buf = binary.AppendVarint(c.buf, int64(scoreOf(s)))
	c.buf = appendDevices(c.buf, d)
	for id, text := range meta {
		c.in(namespace)
		c.buf = appendString(append(c.buf, changeMeta), user)
		c.buf = appendString(appendString(c.buf, id), text)
	}
}

func (c *changes) drop(namespace string) {
	c.in(namespace)
	c.buf = append(c.buf, changeDrop)
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
	var name string
	for rest := (cutter{rest: run}); len(rest.rest) > 0; {
		change := rest.rest[0]
		rest.rest = rest.rest[1:]
		if change == changeDrop && c[name] != nil {
			delete(c, name)
			continue
		}
		text := rest.string()
		if rest.failed || change != changeNamespace && c[name] == nil {
			return errSyntax
		}
		switch change {
		case changeNamespace:
			name = text
			if c[name] == nil {
				c[name] = newUsers()
			}
		default:
			if !c[name].replay(change, text, &rest) {
				return errSyntax
			}
		}
	}
	return nil
}

// replay applies a change to one user, and returns false if it is not valid.
func (u *users) replay(change byte, user string, rest *cutter) bool {
	switch change {
	case changeForget:
		u.remove(user)
	case changeState, changeDevices:
		at := score(rest.instant())
		if at == 0 {
			return false
		}
		var d lastseen.Devices
		if change == changeDevices {
			d = rest.devices()
		}
		if rest.failed {
			return false
		}
		u.set(user, at)
		if change == changeDevices {
			u.setDevices(user, d, nil)
		}
	case changeMeta:
		id, meta := rest.string(), rest.string()
		if rest.failed {
			return false
		}
		d, _ := u.devicesOf(user)
		u.setDevices(user, d, map[string]string{id: meta})
	default:
		return false
	}
	return true
}

// cutString returns the string at the beginning of a run and what follows it; false if there is none.
func cutString(run []byte) (s string, rest []byte, ok bool) {
	n, size := binary.Uvarint(run)
	if size <= 0 || n > uint64(len(run)-size) {
		return "", nil, false
	}
	end := size + int(n)
	return string(run[size:end]), run[end:], true
}
