package api

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// cursors returns real cursors of three pages of each list, by the list.
func (w *world) cursors() map[string][]string {
	w.t.Helper()
	found := map[string][]string{}
	for _, list := range []string{
		"?limit=1", "/chat/users?limit=1", "/other/users?limit=1", "/chat/users?limit=1&order=oldest&status=green&status=grey&from=5",
	} {
		next := ""
		for range 3 {
			page := w.get(list + next)
			cursor, more := page["next_cursor"].(string)
			require.True(w.t, more, list)
			found[list] = append(found[list], cursor)
			next = "&cursor=" + cursor
		}
	}
	return found
}

// forgeries returns everything that differs from a cursor by a bit, by a byte more or less, or by how it is
// encoded.
func forgeries(cursor string) (forged []string) {
	for i := range len(cursor) {
		for bit := range 8 {
			forged = append(forged, cursor[:i]+string([]byte{cursor[i] ^ 1<<bit})+cursor[i+1:])
		}
		forged = append(forged, cursor[:i], cursor[i+1:], cursor[:i]+"A"+cursor[i:], cursor[:i]+"\n"+cursor[i:], cursor[:i]+"\r"+cursor[i:])
	}
	content, _ := base64.RawURLEncoding.DecodeString(cursor)
	for i := range content {
		for bit := range 8 {
			content[i] ^= 1 << bit
			forged = append(forged, base64.RawURLEncoding.EncodeToString(content))
			content[i] ^= 1 << bit
		}
	}
	return append(forged,
		cursor+"A", cursor+"=", cursor+"==", cursor+"\n", " "+cursor, cursor+"\x00", cursor+cursor, strings.Repeat(cursor, 500), strings.ToUpper(cursor),
		base64.StdEncoding.EncodeToString(content), base64.RawURLEncoding.EncodeToString(append(content, 0)), fmt.Sprintf("%x", content),
	)
}

// TestForgedCursors: nothing but a cursor as it was is one, and only where it comes from.
func TestForgedCursors(t *testing.T) {
	w := newLimitedWorld(t)
	for _, namespace := range []string{"chat", "other", "third", "fourth"} {
		w.post("/"+namespace+"/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"carol"},{"user":"dave"}]}`)
	}
	refuses := func(list, cursor string) {
		w.fails(codeInvalidCursor, http.MethodGet, list+"&cursor="+url.QueryEscape(cursor), "")
	}
	genuine := w.cursors()
	for list, cursors := range genuine {
		for _, forged := range forgeries(cursors[0]) {
			if forged != cursors[0] {
				refuses(list, forged)
			}
		}
		for other, cursors := range genuine {
			if path := func(list string) string { return strings.SplitN(list, "?", 2)[0] }; path(other) != path(list) {
				for _, cursor := range cursors {
					refuses(list, cursor)
				}
			}
		}
	}
}

// TestSealedForgeries: a cursor is sealed by a checksum that anyone can compute, so what is in it has to make sense
// besides.
func TestSealedForgeries(t *testing.T) {
	w := newLimitedWorld(t)
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	content := func(head [4]byte, user string, numbers ...uint64) []byte {
		b := head[:]
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return append(b, user...)
	}
	good := [4]byte{cursorVersion, byte(store.Newest), 0, 0}
	const at = uint64(noon)
	for what, forged := range map[string][]byte{
		"nothing":                {},
		"another version":        content([4]byte{cursorVersion + 1, 0, 0, 0}, "a", at, 0, at, 1, 2, 0, at),
		"no such order":          content([4]byte{cursorVersion, 2, 0, 0}, "a", at, 0, at, 1, 2, 0, at),
		"no such status":         content([4]byte{cursorVersion, 0, 8, 0}, "a", at, 0, at, 1, 2, 0, at),
		"neither left nor not":   content([4]byte{cursorVersion, 0, 0, 2}, "a", at, 0, at, 1, 2, 0, at),
		"numbers that end early": content(good, "", at, 0, at, 1, 2, 0),
		"a number without end":   append(content(good, "", at, 0, at, 1, 2, 0), strings.Repeat("\xff", 1000)...),
		"a negative number":      content(good, "a", at, 1<<63, at, 1, 2, 0, at),
		"beyond the year 9999":   content(good, "a", 1<<50, 0, at, 1, 2, 0, at),
		"from after to":          content(good, "a", at, 9, 8, 1, 2, 0, 8),
		"to after as_of":         content(good, "a", at, 0, at+1, 1, 2, 0, at),
		"green after yellow":     content(good, "a", at, 0, at, 2, 1, 0, at),
		"thresholds of nothing":  content(good, "a", at, 0, at, 0, 0, 0, at),
		"thresholds of ages":     content(good, "a", at, 0, at, 1, at, 0, at),
		"a deep offset":          content(good, "a", at, 0, at, 1, 2, 1001, at),
		"a place before from":    content(good, "a", at, 9, at, 1, 2, 0, 8),
		"a place after to":       content(good, "a", at, 0, at-1, 1, 2, 0, at),
		"no user":                content(good, "", at, 0, at, 1, 2, 0, at),
		"a user that is a path":  content(good, "..", at, 0, at, 1, 2, 0, at),
		"a user with a NUL":      content(good, "a\x00b", at, 0, at, 1, 2, 0, at),
		"a user that is no text": content(good, "a\xff", at, 0, at, 1, 2, 0, at),
		"a user too long":        content(good, strings.Repeat("u", 257), at, 0, at, 1, 2, 0, at),
	} {
		cursor := sealCursor("chat", forged)
		r := w.send(http.MethodGet, "/chat/users?cursor="+cursor, "")
		require.Equal(t, string(codeInvalidCursor), r.json(t)["code"], "%s: %s", what, r.body)
	}
	sound := sealCursor("chat", content(good, "bob", at, 0, at, 1, 2, 0, at))
	require.Equal(t, []string{"alice"}, names(w.get("/chat/users?cursor="+sound)), "who can compute the seal gets what a query gets")
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", "é", strings.Repeat("n", 65)} {
		w.fails(codeInvalidCursor, http.MethodGet, "?cursor="+sealCursor(namespacesScope, []byte(name)), "")
	}
}
