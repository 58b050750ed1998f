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

// PlacesCursor returns the cursor of places in the changes feed of the namespace chat.
func PlacesCursor(places ...store.Place) string {
	content := binary.AppendUvarint(nil, uint64(len(places)))
	for _, place := range places {
		content = append(binary.AppendUvarint(content, uint64(len(place))), place...)
	}
	return SealedCursor("chat/changes", string(content))
}
