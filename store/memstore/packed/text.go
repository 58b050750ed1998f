// Package packed writes users, and what is known of them, as bytes: in memory, where millions of users have next to no
// pointers for the garbage collector, and in the data file.
package packed

import (
	"encoding/binary"
	"math"
	"slices"
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

// AppendDevices appends devices to b.
func AppendDevices(b []byte, d lastseen.Devices) []byte {
	b = binary.AppendUvarint(b, uint64(d.Window.Milliseconds()))
	b = binary.AppendVarint(b, int64(d.Left))
	b = binary.AppendUvarint(b, uint64(len(d.Records)))
	for _, r := range d.Records {
		b = AppendString(b, r.ID)
		b = AppendString(b, string(r.Kind))
		for _, t := range []lastseen.Instant{r.Since, r.At, r.IdleSince} {
			b = binary.AppendVarint(b, int64(t))
		}
		b = AppendBool(b, r.Gone)
	}
	return b
}

// Devices reads what AppendDevices wrote.
func (r *Reader) Devices() (d lastseen.Devices) {
	window := r.Uvarint()
	d.Left = r.Instant()
	count := r.Uvarint()
	if window > math.MaxInt64/uint64(time.Millisecond) || count > lastseen.MaxDevices {
		r.Fail()
		return lastseen.Devices{}
	}
	d.Window = time.Duration(window) * time.Millisecond
	if count > 0 {
		d.Records = make([]lastseen.DeviceRecord, count)
	}
	for i := range d.Records {
		d.Records[i] = lastseen.DeviceRecord{
			ID: r.String(), Kind: r.kind(), Since: r.Instant(), At: r.Instant(), IdleSince: r.Instant(), Gone: r.Bool(),
		}
	}
	return d
}

// kind reads a kind. It returns one of the constants if it is one, which takes no memory.
func (r *Reader) kind() lastseen.DeviceKind {
	kind := lastseen.DeviceKind(r.String())
	if i := slices.Index(lastseen.DeviceKinds(), kind); i >= 0 {
		return lastseen.DeviceKinds()[i]
	}
	return kind
}

// AppendString appends the length of a text as a uvarint, and the text.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendBool appends a byte that is 0 or 1.
func AppendBool(b []byte, value bool) []byte {
	if value {
		return append(b, 1)
	}
	return append(b, 0)
}

// Reader reads values from the beginning of Rest. Once a value is not there, it reads zeros.
type Reader struct {
	Rest   []byte
	Failed bool // a value was not there, or Fail was called
}

// Fail ends the text, because a value in it is not valid.
func (r *Reader) Fail() { r.Rest, r.Failed = nil, true }

// Uvarint reads a number that binary.AppendUvarint wrote.
func (r *Reader) Uvarint() uint64 {
	n, size := binary.Uvarint(r.Rest)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.Rest = r.Rest[size:]
	return n
}

// Instant reads a time that binary.AppendVarint wrote. It may be out of range.
func (r *Reader) Instant() lastseen.Instant {
	n, size := binary.Varint(r.Rest)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.Rest = r.Rest[size:]
	return lastseen.Instant(n)
}

// String reads what AppendString wrote, as a copy.
func (r *Reader) String() string {
	n, size := binary.Uvarint(r.Rest)
	if size <= 0 || n > uint64(len(r.Rest)-size) {
		r.Fail()
		return ""
	}
	end := size + int(n)
	s := string(r.Rest[size:end])
	r.Rest = r.Rest[end:]
	return s
}

// Bool reads what AppendBool wrote.
func (r *Reader) Bool() bool {
	if len(r.Rest) == 0 || r.Rest[0] > 1 {
		r.Fail()
		return false
	}
	b := r.Rest[0] == 1
	r.Rest = r.Rest[1:]
	return b
}

// Score is a known state as a number that orders it: the time of a user who is present, the negated time of a user who
// left.
type Score int64

// ScoreOf returns the score of a known state.
func ScoreOf(s lastseen.State) Score {
	if s.Left {
		return Score(-s.At)
	}
	return Score(s.At)
}

// State returns the state of a score, unknown for 0.
func (c Score) State() lastseen.State {
	if c < 0 {
		return lastseen.State{At: lastseen.Instant(-c), Left: true}
	}
	return lastseen.State{At: lastseen.Instant(c)}
}
