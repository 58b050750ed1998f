package subscription

import (
	"encoding/binary"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

const (
	maxCursor    = 16 << 10 // bytes of text; more than those of any store
	maxPositions = 64 + 1   // shards of a namespace, and the position of a scan
)

// Cursor returns the cursor of positions in the changes feed of a namespace. It names no users.
func Cursor(namespace string, positions []store.Position) string {
	content := binary.AppendUvarint(nil, uint64(len(positions)))
	for _, position := range positions {
		content = append(binary.AppendUvarint(content, uint64(len(position))), position...)
	}
	return request.SealCursor(cursorName(namespace), content)
}

// PartCursor returns the cursor of all parts of a batch but the last. It leads to a reset: a client that was cut off in
// between cannot continue from before the batch, since what is undone until it comes back is not sent.
func PartCursor(namespace string) string { return Cursor(namespace, []store.Position{"part"}) }

// OpenCursor returns the positions in a cursor, which is hostile input. The store checks the positions themselves: to a
// position that it does not know, it responds with a reset.
func OpenCursor(namespace, cursor string) ([]store.Position, error) {
	if len(cursor) <= maxCursor {
		content, err := request.OpenCursor(cursorName(namespace), cursor)
		if positions, ok := cutPositions(content); ok && err == nil {
			return positions, nil
		}
	}
	return nil, problem.New(problem.InvalidCursor, "Invalid cursor for the changes of this namespace. Pass the cursor "+
		"of a response unchanged, or omit it to start over.")
}

func cutPositions(content []byte) ([]store.Position, bool) {
	count, content, ok := cutUvarint(content)
	if !ok || count == 0 || count > maxPositions {
		return nil, false
	}
	positions := make([]store.Position, count)
	for i := range positions {
		length, rest, ok := cutUvarint(content)
		if !ok || length > uint64(len(rest)) {
			return nil, false
		}
		positions[i], content = store.Position(rest[:length]), rest[length:]
	}
	return positions, len(content) == 0
}

func cutUvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

// cursorName is what cursors of changes are bound to. It differs from the name of every list, since no namespace
// contains a slash.
func cursorName(namespace string) string { return namespace + "/changes" }
