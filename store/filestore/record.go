package filestore

import (
	"encoding/binary"
	"fmt"

	"github.com/lastseen/lastseen"
)

// The payload of a record is a run of changes:
//
//	change  = 'n' name          the changes that follow are to this namespace, which exists
//	        | 's' user score    the user's state is now this
//	        | 'f' user          the user is deleted
//	        | 'd'               the namespace and all its users are deleted
//	name, user = length as uvarint, bytes;  score = varint
//
// A change states a result, not an operation, so replaying a run twice has the same result as replaying it once.
const (
	changeNamespace = 'n'
	changeState     = 's'
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
	for len(run) > 0 {
		change := run[0]
		run = run[1:]
		if change == changeDrop && c[name] != nil {
			delete(c, name)
			continue
		}
		text, rest, ok := cutString(run)
		if !ok || change != changeNamespace && c[name] == nil {
			return errSyntax
		}
		run = rest
		switch change {
		case changeNamespace:
			name = text
			if c[name] == nil {
				c[name] = newUsers()
			}
		case changeForget:
			c[name].remove(text)
		case changeState:
			n, size := binary.Varint(run)
			if size <= 0 || n == 0 {
				return errSyntax
			}
			run = run[size:]
			c[name].set(text, score(n))
		default:
			return errSyntax
		}
	}
	return nil
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
