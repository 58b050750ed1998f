package filestore

import (
	"encoding/binary"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// The payload of a record is a run of changes:
//
//	change  = 'n' name                the changes that follow are to this namespace, which exists
//	        | 's' user score          the user's state is now this; their devices stay
//	        | 'v' user score devices  the user's state and devices are now these; see [packed.AppendDevices]
//	        | 'm' id meta             the meta of a record is now this; of the user of the 'v' directly before
//	        | 'f' user                the user and their devices are deleted, and the user's availability
//	        | 't' user                the user and their devices are deleted; the user's availability stays
//	        | 'd'                     the namespace and all its users are deleted, and their availability
//	        | 'e'                     the namespace and all its users are deleted; their availability stays
//	        | 'a' user availability until note  what others see of it is now this; empty for nothing
//	        | 'h' user end ended until note     the user's hidden time and private availability are now this;
//	                                            an end of 0 deletes both
//	        | 'u' owner used added removed      these contacts were added to the list of the owner, and then these
//	                                            removed; the last use that is known of the owner is now this
//	        | 'c' owner added removed           the same; the last use stays. No version writes it any longer
//	name, user, id, meta, availability, note, owner = length as uvarint, bytes;  score = varint
//	until, end, used = varint, 0 for none;  ended = one byte, 0 or 1: the user sets another availability at the end
//	added, removed = count as uvarint, at most store.MaxContacts, and so many IDs in bytewise order
//
// A change states a result, not an operation, so replaying a run twice has the same result as replaying it once. A list
// of contacts as a whole would make each small change to a long list a long one.
const (
	changeNamespace    = 'n'
	changeState        = 's'
	changeDevices      = 'v'
	changeMeta         = 'm'
	changeForget       = 'f'
	changeTrim         = 't'
	changeDrop         = 'd'
	changeUnlist       = 'e'
	changeAvailability = 'a'
	changeHidden       = 'h'
	changeContacts     = 'u'
	changeUnused       = 'c' // contacts without a last use
)

// changes is a run being written. A long run is split into parts, each of which can be replayed by itself. It is the
// [memstore.Log] of what is written.
type changes struct {
	parts     [][]byte // all but the last part
	buf       []byte   // the last part
	namespace string   // of the last change
	users     int      // changes to users; several to one user count as often
	version   uint32   // the lowest one that has all of these kinds of changes
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

// In starts a change to a namespace.
func (c *changes) In(namespace string) {
	if len(c.buf) >= maxPart {
		c.parts, c.buf = append(c.parts, c.buf), nil
	}
	if len(c.buf) > 0 && c.namespace == namespace {
		return
	}
	c.namespace = namespace
	c.buf = append(c.buf, changeNamespace)
	c.buf = packed.AppendString(c.buf, namespace)
}

// in starts a change to a user, of a kind that a version has.
func (c *changes) in(namespace string, change byte, version uint32, user string) {
	c.In(namespace)
	c.users++
	c.version = max(c.version, version)
	c.buf = packed.AppendString(append(c.buf, change), user)
}

func (c *changes) Set(namespace, user string, s lastseen.State) {
	c.in(namespace, changeState, version1, user)
	c.buf = binary.AppendVarint(c.buf, int64(packed.ScoreOf(s)))
}

func (c *changes) SetDevices(namespace, user string, s lastseen.State, d lastseen.Devices, meta map[string]string) {
	c.in(namespace, changeDevices, version2, user)
	c.buf = binary.AppendVarint(c.buf, int64(packed.ScoreOf(s)))
	c.buf = packed.AppendDevices(c.buf, d)
	for id, text := range meta {
		c.buf = packed.AppendString(packed.AppendString(append(c.buf, changeMeta), id), text)
	}
}

func (c *changes) Forget(namespace, user string) { c.in(namespace, changeForget, version1, user) }
func (c *changes) Trim(namespace, user string)   { c.in(namespace, changeTrim, version3, user) }
func (c *changes) Drop(namespace string)         { c.remove(namespace, changeDrop, version1) }
func (c *changes) Unlist(namespace string)       { c.remove(namespace, changeUnlist, version3) }

func (c *changes) remove(namespace string, change byte, version uint32) {
	c.In(namespace)
	c.version = max(c.version, version)
	c.buf = append(c.buf, change)
	c.namespace = "" // the next change names its namespace again, which creates it
}

func (c *changes) SetAvailability(namespace, user string, s lastseen.AvailabilityState) {
	c.in(namespace, changeAvailability, version3, user)
	c.buf = packed.AppendString(c.buf, string(s.Availability))
	c.buf = binary.AppendVarint(c.buf, int64(s.Until))
	c.buf = packed.AppendString(c.buf, s.Note)
}

func (c *changes) Hide(namespace, user string, h memstore.Hidden) {
	c.in(namespace, changeHidden, version3, user)
	c.buf = binary.AppendVarint(c.buf, int64(h.End))
	c.buf = packed.AppendBool(c.buf, h.Ended)
	c.buf = binary.AppendVarint(c.buf, int64(h.Until))
	c.buf = packed.AppendString(c.buf, h.Note)
}

func (c *changes) ChangeContacts(namespace, owner string, used lastseen.Instant, add, remove []string) {
	c.in(namespace, changeContacts, version3, owner)
	c.buf = binary.AppendVarint(c.buf, int64(used))
	for _, contacts := range [][]string{add, remove} {
		c.buf = binary.AppendUvarint(c.buf, uint64(len(contacts)))
		for _, contact := range contacts {
			c.buf = packed.AppendString(c.buf, contact)
		}
	}
}
