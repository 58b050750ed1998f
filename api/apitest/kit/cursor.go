package kit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/lastseen/lastseen/store"
)

// SealedCursor returns the cursor of a content, bound to a list by its name. Clients can make one, too.
func SealedCursor(list, content string) string { return CursorOfVersion(2, list, content) }

// CursorOfVersion is SealedCursor with another version.
func CursorOfVersion(version byte, list, content string) string {
	versioned := append([]byte{version}, content...)
	sum := sha256.Sum256(append([]byte(list+"\x00"), versioned...))
	return base64.RawURLEncoding.EncodeToString(append(sum[:8], versioned...))
}

// PositionsCursor returns the cursor of positions in the changes feed of the namespace chat.
func PositionsCursor(positions ...store.Position) string {
	content := binary.AppendUvarint(nil, uint64(len(positions)))
	for _, position := range positions {
		content = append(binary.AppendUvarint(content, uint64(len(position))), position...)
	}
	return SealedCursor("chat/changes", string(content))
}
