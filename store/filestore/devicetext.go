package filestore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/lastseen/lastseen"
)

// The devices of a user, in the file and in memory:
//
//	devices = window left count record…      count of the records, at most lastseen.MaxDevices
//	record  = id kind since at idle gone
//	window  = milliseconds as uvarint;  left, since, at, idle = varint;  count = uvarint
//	id, kind = length as uvarint, bytes;  gone = one byte, 0 or 1
//
// Times are not relative to each other, so that the text of a user usually keeps its length: it then takes a slot that
// was freed.

// appendDevices appends devices to b.
func appendDevices(b []byte, d lastseen.Devices) []byte {
	b = binary.AppendUvarint(b, uint64(d.Window.Milliseconds()))
	b = binary.AppendVarint(b, int64(d.Left))
	b = binary.AppendUvarint(b, uint64(len(d.Records)))
	for _, r := range d.Records {
		b = appendString(b, r.ID)
		b = appendString(b, string(r.Kind))
		for _, t := range []lastseen.Instant{r.Since, r.At, r.IdleSince} {
			b = binary.AppendVarint(b, int64(t))
		}
		b = appendBool(b, r.Gone)
	}
	return b
}

func appendBool(b []byte, value bool) []byte {
	if value {
		return append(b, 1)
	}
	return append(b, 0)
}

// cutter reads values from the beginning of a text. Once a value is not there, it reads zeros.
type cutter struct {
	rest   []byte
	failed bool
}

func (c *cutter) fail() { c.rest, c.failed = nil, true }

func (c *cutter) uvarint() uint64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

func (c *cutter) instant() lastseen.Instant {
	n, size := binary.Varint(c.rest)
	if size <= 0 {
		c.fail()
		return 0
	}
	c.rest = c.rest[size:]
	return lastseen.Instant(n)
}

func (c *cutter) string() string {
	s, rest, ok := cutString(c.rest)
	if !ok {
		c.fail()
		return ""
	}
	c.rest = rest
	return s
}

func (c *cutter) bool() bool {
	if len(c.rest) == 0 || c.rest[0] > 1 {
		c.fail()
		return false
	}
	b := c.rest[0] == 1
	c.rest = c.rest[1:]
	return b
}

// kind reads a kind. It returns one of the constants if it is one, which takes no memory.
func (c *cutter) kind() lastseen.DeviceKind {
	text := c.string()
	for _, kind := range lastseen.DeviceKinds() {
		if text == string(kind) {
			return kind
		}
	}
	return lastseen.DeviceKind(text)
}

// devices reads what appendDevices wrote.
func (c *cutter) devices() (d lastseen.Devices) {
	window := c.uvarint()
	d.Left = c.instant()
	count := c.uvarint()
	if window > math.MaxInt64/uint64(time.Millisecond) || count > lastseen.MaxDevices {
		c.fail()
		return lastseen.Devices{}
	}
	d.Window = time.Duration(window) * time.Millisecond
	if count > 0 {
		d.Records = make([]lastseen.DeviceRecord, count)
	}
	for i := range d.Records {
		d.Records[i] = lastseen.DeviceRecord{
			ID: c.string(), Kind: c.kind(), Since: c.instant(), At: c.instant(), IdleSince: c.instant(), Gone: c.bool(),
		}
	}
	return d
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
