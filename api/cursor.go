package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// A cursor remembers a walk and the last record listed, so that no server has to. It is sealed with
// a checksum over the namespace, too, which tells damage and mix-ups. It is no signature: a caller who
// forges one gets no further than with query parameters, since everything in it is checked like them.

// cursorVersion begins every cursor; other layouts begin otherwise.
const cursorVersion = 1

// checksumLen is how many bytes of SHA-256 seal a cursor.
const checksumLen = 8

var errCursor = errors.New("malformed")

// cursor returns what goes on after the given record.
func (w walk) cursor(namespace string, last store.Record) string {
	b := []byte{cursorVersion, byte(w.order), statusBits(w.statuses), leftBit(last.Left)}
	for _, n := range []int64{
		int64(w.asOf), int64(w.from), int64(w.to),
		w.thresholds.Green.Milliseconds(), w.thresholds.Yellow.Milliseconds(),
		int64(w.offset), int64(last.At),
	} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return sealCursor(namespace, append(b, last.User...))
}

// parseCursor reads a cursor as the untrusted input it is.
func parseCursor(namespace, cursor string) (walk, store.Record, error) {
	fail := func() (walk, store.Record, error) {
		return walk{}, store.Record{}, newError(codeInvalidCursor,
			"Invalid cursor for this list. Pass next_cursor unchanged, or omit it to start over.")
	}
	b, err := openCursor(namespace, cursor)
	if err != nil || len(b) < 4 || b[0] != cursorVersion || b[1] > 1 || b[2] > 7 || b[3] > 1 {
		return fail()
	}
	numbers, user, err := uvarints(b[4:], 7)
	if err != nil {
		return fail()
	}
	w := walk{
		order: store.Order(b[1]), statuses: statusesOf(b[2]),
		asOf: lastseen.Instant(numbers[0]), from: lastseen.Instant(numbers[1]), to: lastseen.Instant(numbers[2]),
		thresholds: lastseen.Thresholds{
			Green:  time.Duration(numbers[3]) * time.Millisecond,
			Yellow: time.Duration(numbers[4]) * time.Millisecond,
		},
		offset: int(numbers[5]),
	}
	last := store.Record{User: string(user), State: lastseen.State{At: lastseen.Instant(numbers[6]), Left: b[3] == 1}}
	if !w.sound() || last.At < w.from || last.At > w.to || lastseen.CheckUser(last.User) != nil {
		return fail()
	}
	return w, last, nil
}

// sound reports whether a walk could have come from a query.
func (w walk) sound() bool {
	return w.from <= w.to && w.to <= w.asOf && w.asOf <= lastseen.MaxInstant &&
		w.thresholds.Validate() == nil && w.offset <= maxLimit
}

// uvarints reads n numbers, each at most MaxInstant, and returns what follows.
func uvarints(b []byte, n int) (numbers []int64, rest []byte, err error) {
	for range n {
		number, size := binary.Uvarint(b)
		if size <= 0 || number > uint64(lastseen.MaxInstant) {
			return nil, nil, errCursor
		}
		numbers, b = append(numbers, int64(number)), b[size:]
	}
	return numbers, b, nil
}

// statusBits packs statuses into one bit each; none means all.
func statusBits(statuses []lastseen.Status) (bits byte) {
	for i, status := range lastseen.Statuses() {
		if slices.Contains(statuses, status) {
			bits |= 1 << i
		}
	}
	return bits
}

// statusesOf is the inverse of statusBits: sorted, as a query's are.
func statusesOf(bits byte) (statuses []lastseen.Status) {
	for i, status := range lastseen.Statuses() {
		if bits&(1<<i) != 0 {
			statuses = append(statuses, status)
		}
	}
	slices.Sort(statuses)
	return statuses
}

func leftBit(left bool) byte {
	if left {
		return 1
	}
	return 0
}

// sealCursor makes a cursor of its content, bound to what it is for.
func sealCursor(scope string, content []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(checksum(scope, content), content...))
}

// openCursor returns the content of a cursor that was made for the same.
func openCursor(scope, cursor string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < checksumLen || strings.ContainsAny(cursor, "\r\n") { // which the decoder passes over
		return nil, errCursor
	}
	content := b[checksumLen:]
	if subtle.ConstantTimeCompare(checksum(scope, content), b[:checksumLen]) != 1 {
		return nil, errCursor
	}
	return content, nil
}

func checksum(scope string, content []byte) []byte {
	h := sha256.New()
	h.Write([]byte(scope)) // never fails: see hash.Hash
	h.Write([]byte{0})     // no scope contains it
	h.Write(content)
	return h.Sum(nil)[:checksumLen]
}
