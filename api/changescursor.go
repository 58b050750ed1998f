package api

import (
	"encoding/binary"

	"github.com/lastseen/lastseen/store"
)

const (
	maxChangesCursor = 16 << 10 // bytes of text; more than those of any store
	maxPlaces        = 64       // shards of a namespace
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
		return nil, newError(codeInvalidCursor,
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
