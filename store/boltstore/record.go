package boltstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/lastseen/lastseen"
)

// Log records and snapshot chunks are both a run of changes, sealed by a checksum:
//
//	sealed  = crc32c(key, changes) in 4 bytes, changes
//	change  = 'n' name          the changes that follow are to this namespace, which exists
//	        | 's' user score    the user's state is now this
//	        | 'f' user          the user is forgotten
//	        | 'd'               the namespace and everyone in it are gone
//	name, user = length as uvarint, bytes;  score = varint
//
// A change states what is, not what to do, so replaying a run twice ends as replaying it once.
const (
	changeNamespace = 'n'
	changeState     = 's'
	changeForget    = 'f'
	changeDrop      = 'd'
)

// changes is a run being written.
type changes struct {
	buf       []byte
	namespace string // of the last change
}

func (c *changes) in(namespace string) {
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

// replay applies a run.
func (c contents) replay(run []byte) error {
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

// castagnoli is the polynomial of CRC-32C, which processors compute by themselves.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// seal returns a run with its checksum in front. The key is part of the sum, so that a run found
// under another key is an error.
func seal(key, run []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli()), castagnoli(), run)
	sealed := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(run)), sum)
	return append(sealed, run...)
}

// unseal returns the run that was sealed under a key.
func unseal(key, sealed []byte) ([]byte, error) {
	if len(sealed) < 4 {
		return nil, errSyntax
	}
	run := sealed[4:]
	if crc32.Update(crc32.Checksum(key, castagnoli()), castagnoli(), run) != binary.BigEndian.Uint32(sealed) {
		return nil, errors.New("checksum does not match")
	}
	return run, nil
}
