package api

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"net/url"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// A cursor contains the canonical query of a list and the last record of a page, so that servers keep no state. A
// checksum over this and the namespace seals it and detects damage and mix-ups. It is not a signature: a caller who
// forges a cursor gets what a query gets, since its content is checked like a query.

// cursorVersion is the first byte in every cursor. Cursors with another version are invalid.
const cursorVersion = 2

// checksumLen is the number of bytes of SHA-256 that seal a cursor.
const checksumLen = 8

var errCursor = errors.New("malformed")

// cursor returns the cursor of the page after the given record.
func (p listParams) cursor(namespace string, last store.Record) string {
	place := uint64(last.At) << 1
	if last.Left {
		place |= 1
	}
	content := []byte(p.canonical + "\x00")
	content = binary.BigEndian.AppendUint64(content, place)
	return sealCursor(namespace, append(content, last.User...))
}

// openListCursor returns the parameters of the list and the record in a cursor, which is hostile input. Parameters that
// the query repeats must have the same values.
func openListCursor(namespace, cursor string, q query) (listParams, *store.Record, error) {
	p, after, err := parseListCursor(namespace, cursor)
	if err != nil {
		return p, nil, errListCursor()
	}
	return p, &after, checkRepeated(p.canonical, q, func(q query) (string, error) {
		repeated, err := readListParams(q, view{})
		return repeated.canonical, err
	})
}

// checkRepeated returns an error unless the parameters that a query repeats have the values of the canonical query in a
// cursor. canonicalOf reads a query, and returns it in its canonical form.
func checkRepeated(canonical string, q query, canonicalOf func(query) (string, error)) error {
	merged, _ := url.ParseQuery(canonical) // never fails: it was read from the cursor
	maps.Copy(merged, q)
	repeated, err := canonicalOf(query(merged))
	if err != nil || repeated != canonical {
		return problem.New(problem.InvalidCursor,
			"A parameter differs from the first page. With a cursor, only `limit` can change.")
	}
	return nil
}

// errListCursor is the error of a cursor that no page of the list has.
func errListCursor() error {
	return problem.New(problem.InvalidCursor,
		"Invalid cursor for this list. Pass next_cursor unchanged, or omit it to start over.")
}

func parseListCursor(namespace, cursor string) (p listParams, last store.Record, err error) {
	content, err := openCursor(namespace, cursor)
	if err != nil {
		return p, last, err
	}
	canonical, place, _ := bytes.Cut(content, []byte{0})
	values, err := url.ParseQuery(string(canonical))
	if err != nil || len(place) < 8 {
		return p, last, errCursor
	}
	if p, err = readListParams(query(values), view{}); err != nil {
		return p, last, err
	}
	n := binary.BigEndian.Uint64(place)
	last = store.Record{User: string(place[8:]), State: lastseen.State{At: lastseen.Instant(n >> 1), Left: n&1 == 1}}
	if p.canonical != string(canonical) || last.At < p.from || last.At > p.to {
		return p, last, errCursor
	}
	return p, last, lastseen.CheckStoredUser(last.User)
}

// sealCursor returns the cursor of the content, bound to a list by its name.
func sealCursor(list string, content []byte) string {
	content = append([]byte{cursorVersion}, content...)
	return base64.RawURLEncoding.EncodeToString(append(checksum(list, content), content...))
}

// openCursor returns the content of a cursor that was sealed for the list.
func openCursor(list, cursor string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= checksumLen || strings.ContainsAny(cursor, "\r\n") { // the decoder ignores these
		return nil, errCursor
	}
	content := b[checksumLen:]
	if subtle.ConstantTimeCompare(checksum(list, content), b[:checksumLen]) != 1 || content[0] != cursorVersion {
		return nil, errCursor
	}
	return content[1:], nil
}

func checksum(list string, content []byte) []byte {
	sum := sha256.Sum256(append([]byte(list+"\x00"), content...)) // no name contains a NUL
	return sum[:checksumLen]
}

const (
	maxChangesCursor = 16 << 10 // bytes of text; more than those of any store
	maxPlaces        = 64 + 1   // shards of a namespace, and the place of a scan
)

// changesCursor returns the cursor of places in the changes feed of a namespace. It names no users.
func changesCursor(namespace string, places []store.Place) string {
	content := binary.AppendUvarint(nil, uint64(len(places)))
	for _, place := range places {
		content = append(binary.AppendUvarint(content, uint64(len(place))), place...)
	}
	return sealCursor(changesList(namespace), content)
}

// openChangesCursor returns the places in a cursor, which is hostile input. The store checks the places themselves: to
// a place that it does not know, it responds with a reset.
func openChangesCursor(namespace, cursor string) ([]store.Place, error) {
	places, err := parseChangesCursor(namespace, cursor)
	if err != nil {
		return nil, problem.New(problem.InvalidCursor,
			"Invalid cursor for the changes of this namespace. Pass the cursor of a response unchanged, or omit it to "+
				"start over.")
	}
	return places, nil
}

func parseChangesCursor(namespace, cursor string) ([]store.Place, error) {
	if len(cursor) > maxChangesCursor {
		return nil, errCursor
	}
	content, err := openCursor(changesList(namespace), cursor)
	if err != nil {
		return nil, err
	}
	count, content, ok := cutUvarint(content)
	if !ok || count == 0 || count > maxPlaces {
		return nil, errCursor
	}
	places := make([]store.Place, count)
	for i := range places {
		length, rest, ok := cutUvarint(content)
		if !ok || length > uint64(len(rest)) {
			return nil, errCursor
		}
		places[i], content = store.Place(rest[:length]), rest[length:]
	}
	if len(content) > 0 {
		return nil, errCursor
	}
	return places, nil
}

func cutUvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

// changesList is what cursors of changes are bound to. It differs from the name of every list, since no namespace
// contains a slash.
func changesList(namespace string) string { return namespace + "/changes" }
