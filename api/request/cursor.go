package request

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"strings"

	"github.com/lastseen/lastseen/api/problem"
)

// A cursor contains the canonical query of a list and the last record of a page, so that servers keep no state. A
// checksum over this and the namespace seals it and detects damage and mix-ups. It is not a signature: a caller who
// forges a cursor gets what a query gets, since its content is checked like a query.

// cursorVersion is the first byte in every cursor. Cursors with another version are invalid.
const cursorVersion = 2

// checksumLen is the number of bytes of SHA-256 that seal a cursor.
const checksumLen = 8

var errCursor = errors.New("malformed")

// SealCursor returns the cursor of the content, bound to a list by its name.
func SealCursor(list string, content []byte) string {
	content = append([]byte{cursorVersion}, content...)
	return base64.RawURLEncoding.EncodeToString(append(checksum(list, content), content...))
}

// OpenListCursor opens a cursor that was sealed for the list with a canonical query, a NUL and a position, and returns
// the position. A cursor is hostile input. Parameters that the query q repeats must have the same values. The function
// read reads a query and returns it in its canonical form.
func OpenListCursor(list, cursor string, q Query, read func(Query) (string, error)) (position []byte, err error) {
	content, err := OpenCursor(list, cursor)
	if err != nil {
		return nil, ErrListCursor()
	}
	sealed, position, found := bytes.Cut(content, []byte{0})
	values, err := url.ParseQuery(string(sealed))
	if err != nil || !found {
		return nil, ErrListCursor()
	}
	if canonical, err := read(Query(values)); err != nil || canonical != string(sealed) {
		return nil, ErrListCursor()
	}
	maps.Copy(values, q)
	if repeated, err := read(Query(values)); err != nil || repeated != string(sealed) {
		return nil, problem.New(problem.InvalidCursor,
			"A parameter differs from the first page. With a cursor, only `limit` can change.")
	}
	return position, nil
}

// ErrListCursor returns the error of a cursor that no page of the list has.
func ErrListCursor() error {
	return problem.New(problem.InvalidCursor,
		"Invalid cursor for this list. Pass next_cursor unchanged, or omit it to start over.")
}

// OpenCursor returns the content of a cursor that was sealed for the list.
func OpenCursor(list, cursor string) ([]byte, error) {
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
