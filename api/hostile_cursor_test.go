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

	"github.com/lastseen/lastseen"
)

// cursors returns real cursors of three pages of each list, by the list.
func (w *world) cursors() map[string][]string {
	w.t.Helper()
	found := map[string][]string{}
	for _, list := range []string{
		"?limit=1", "/chat/users?limit=1", "/other/users?limit=1",
		"/chat/users?limit=1&order=oldest&status=green&status=grey&from=5",
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
		forged = append(forged, cursor[:i], cursor[i+1:], cursor[:i]+"A"+cursor[i:], cursor[:i]+"\n"+cursor[i:],
			cursor[:i]+"\r"+cursor[i:])
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
		cursor+"A", cursor+"=", cursor+"==", cursor+"\n", " "+cursor, cursor+"\x00", cursor+cursor,
		strings.Repeat(cursor, 100), strings.ToUpper(cursor),
		base64.StdEncoding.EncodeToString(content), base64.RawURLEncoding.EncodeToString(append(content, 0)),
		fmt.Sprintf("%x", content),
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
	// content is a canonical query with some parameters changed (removed, if their new value is "-"), and a place.
	content := func(changes string, place ...byte) []byte {
		q := url.Values{
			"as_of": {noon.String()}, "from": {lastseen.Instant(0).String()}, "to": {noon.String()}, "green": {"1m0s"},
			"yellow": {"5m0s"},
			"offset": {"0"}, "order": {"newest"},
		}
		changed, err := url.ParseQuery(changes)
		require.NoError(t, err)
		for name, values := range changed {
			if q[name] = values; values[0] == "-" {
				delete(q, name)
			}
		}
		return append(append([]byte(q.Encode()), 0), place...)
	}
	place := func(at lastseen.Instant, user string) []byte {
		return append(binary.BigEndian.AppendUint64(nil, uint64(at)<<1), user...)
	}
	good := place(noon, "a")
	for what, forged := range map[string][]byte{
		"nothing":                 {},
		"no place":                content("")[:len(content(""))-1],
		"a place that ends early": content("", good[:7]...),
		"an order that is none":   content("order=2", good...),
		"a status that is none":   content("status=blue", good...),
		"a status twice":          content("status=grey&status=grey", good...),
		"statuses out of order":   content("status=grey&status=green", good...),
		"a missing order":         content("order=-", good...),
		"a missing time":          content("as_of=-", good...),
		"a missing threshold":     content("green=-", good...),
		"a parameter twice":       content("order=newest&order=newest", good...),
		"a parameter of no list":  content("user=a", good...),
		"a limit":                 content("limit=1", good...),
		"a cursor":                content("cursor=a", good...),
		"an empty parameter":      content("=", good...),
		"another form of a time":  content("as_of=1795176000", good...),
		"another form of an age":  content("green=60s", good...),
		"another form of a count": content("offset=%2B0", good...),
		"another encoding":        append([]byte("%61"+string(content("")[1:])), good...),
		"a semicolon":             append([]byte("a;b&"+string(content(""))), good...),
		"a bad escape":            append([]byte("%&"+string(content(""))), good...),
		"a negative time":         content("from=-1", good...),
		"beyond the year 9999":    content("as_of=253402300800", good...),
		"from after to": content("from=1970-01-01T00:00:00.009Z&to=1970-01-01T00:00:00.008Z",
			place(8, "a")...),
		"to after as_of":          content("to="+(noon+1).String(), good...),
		"green after yellow":      content("green=2ms&yellow=1ms", good...),
		"thresholds of nothing":   content("green=0s&yellow=0s", good...),
		"thresholds of ages":      content("yellow=100000h0m0s", good...),
		"a deep offset":           content("offset=1001", good...),
		"a negative offset":       content("offset=-1", good...),
		"a place before from":     content("from=1970-01-01T00:00:00.009Z", place(8, "a")...),
		"a place after to":        content("to="+(noon-1).String(), good...),
		"a place beyond all time": content("", place(1<<62, "a")...),
		"no user":                 content("", place(noon, "")...),
		"a user that is a path":   content("", place(noon, "..")...),
		"a user with a NUL":       content("", place(noon, "a\x00b")...),
		"a user that is no text":  content("", place(noon, "a\xff")...),
		"a user too long":         content("", place(noon, strings.Repeat("u", 257))...),
	} {
		cursor := sealCursor("chat", forged)
		r := w.send(http.MethodGet, "/chat/users?cursor="+cursor, "")
		require.Equal(t, string(codeInvalidCursor), r.json(t)["code"], "%s: %s", what, r.body)
	}
	valid := sealCursor("chat", content("", place(noon, "bob")...))
	require.Equal(t, []string{"alice"}, names(w.get("/chat/users?cursor="+valid)),
		"who can compute the seal gets what a query gets")
	for _, version := range []byte{0, 1, cursorVersion + 1} {
		other := append([]byte{version}, content("", place(noon, "bob")...)...)
		cursor := base64.RawURLEncoding.EncodeToString(append(checksum("chat", other), other...))
		w.fails(codeInvalidCursor, http.MethodGet, "/chat/users?cursor="+cursor, "")
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", "é", strings.Repeat("n", 65)} {
		w.fails(codeInvalidCursor, http.MethodGet, "?cursor="+sealCursor(namespaceList, []byte(name)), "")
	}
}
