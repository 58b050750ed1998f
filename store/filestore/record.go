package filestore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lastseen/lastseen"
)

// The payload of a record is a run of changes:
//
//	change  = 'n' name          the changes that follow are to this namespace, which exists
//	        | 's' user score    the user's state is now this
//	        | 'f' user          the user is forgotten
//	        | 'd'               the namespace and all its users are deleted
//	name, user = length as uvarint, bytes;  score = varint
//
// A change states what is, not what to do, so replaying a run twice has the same result as replaying it once.
const (
	changeNamespace = 'n'
	changeState     = 's'
	changeForget    = 'f'
	changeDrop      = 'd'
)

// changes is a run being written. A long one is cut into parts, each of which can be replayed by itself.
type changes struct {
	parts     [][]byte // all but the last
	buf       []byte   // the last part
	namespace string   // of the last change
}

// maxPart is the length from which on a part is complete. It is less than maxPayload by more than one change.
const maxPart = 8 << 20

// empty reports whether there is no change.
func (c *changes) empty() bool { return len(c.parts) == 0 && len(c.buf) == 0 }

// all returns the parts of the run.
func (c *changes) all() [][]byte {
	if len(c.buf) == 0 {
		return c.parts
	}
	return append(c.parts, c.buf)
}

// in begins a change to a namespace.
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

// set adds a user's state; the zero state forgets the user.
func (c *changes) set(namespace, user string, s lastseen.State) {
	c.in(namespace)
	if !s.Known() {
		c.buf = appendString(append(c.buf, changeForget), user)
		return
	}
	c.buf = appendString(append(c.buf, changeState), user)
	c.buf = binary.AppendVarint(c.buf, int64(scoreOf(s)))
}

// drop adds the end of a namespace.
func (c *changes) drop(namespace string) {
	c.in(namespace)
	c.buf = append(c.buf, changeDrop)
	c.namespace = "" // whatever follows names its namespace again, which brings it back
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// contents is what replaying runs leads to.
type contents map[string]*users

// errSyntax is the error of a run that nobody wrote.
var errSyntax = errors.New("malformed record")

// replay applies a run that matched its checksum. If it is malformed nevertheless, the file is damaged.
func (c contents) replay(run []byte) error {
	if err := c.replayAll(run); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

func (c contents) replayAll(run []byte) error {
	r := reader{run}
	var name string
	for len(r.rest) > 0 {
		kind := r.rest[0]
		r.rest = r.rest[1:]
		if kind == changeNamespace {
			text, err := r.text()
			if err != nil {
				return err
			}
			name = text
			if c[name] == nil {
				c[name] = newUsers()
			}
			continue
		}
		if err := c.replayIn(name, kind, &r); err != nil {
			return err
		}
	}
	return nil
}

// replayIn applies one change to a namespace.
func (c contents) replayIn(name string, kind byte, r *reader) error {
	users := c[name]
	if users == nil {
		return errSyntax
	}
	if kind == changeDrop {
		delete(c, name)
		return nil
	}
	user, err := r.text()
	switch {
	case err != nil:
		return err
	case kind == changeForget:
		users.remove(user)
		return nil
	case kind != changeState:
		return errSyntax
	}
	n, size := binary.Varint(r.rest)
	if size <= 0 || n == 0 {
		return errSyntax
	}
	r.rest = r.rest[size:]
	users.set(user, score(n))
	return nil
}

// reader takes a run apart.
type reader struct{ rest []byte }

func (r *reader) text() (string, error) {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)-size) {
		return "", errSyntax
	}
	text := string(r.rest[size : size+int(n)])
	r.rest = r.rest[size+int(n):]
	return text, nil
}
