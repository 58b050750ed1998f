package api

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"eve"},{"user":"mallory"}]}`)
	list := w.get("/chat/users?limit=1&status=green&offset=1&green=30s")
	require.Equal(t, []string{"eve"}, names(list))
	cursor := list["next_cursor"].(string)
	next := "/chat/users?cursor=" + cursor
	require.Equal(t, []string{"bob", "alice"}, names(w.get(next)))
	for _, same := range []string{
		"&limit=1", "&status=green", "&status=green&status=green", "&offset=1", "&green=30",
		"&order=newest", "&as_of=1795176000", "&to=1795176000", "&from=0", "&yellow=5m",
	} {
		require.Equal(t, "bob", names(w.get(next + same))[0], same)
	}
	for _, other := range []string{
		"&status=grey", "&status=green&status=grey", "&offset=2", "&green=31s", "&yellow=6m",
		"&order=oldest", "&as_of=1795176001", "&to=1795175999", "&from=1", "&green=abc", "&green=10m", "&offset=x",
	} {
		w.fails(codeInvalidCursor, http.MethodGet, next+other, "")
	}
	w.fails(codeInvalidCursor, http.MethodGet, "/other/users?cursor="+cursor, "")
	w.fails(codeInvalidCursor, http.MethodGet, "?cursor="+cursor, "")
	w.fails(codeInvalidParameter, http.MethodGet, next+"&cursor="+cursor, "")
	for i := range cursor {
		w.fails(codeInvalidCursor, http.MethodGet, "/chat/users?cursor="+cursor[:i], "")
		for _, c := range "A_z9" {
			if byte(c) != cursor[i] {
				w.fails(codeInvalidCursor, http.MethodGet, "/chat/users?cursor="+cursor[:i]+string(c)+cursor[i+1:], "")
			}
		}
	}
}

// cursors returns valid cursors of three pages of each list, by list.
func (w *testServer) cursors() map[string][]string {
	w.t.Helper()
	found := map[string][]string{}
	for _, owner := range []string{"alice", "bob"} {
		w.write(http.MethodPut, "/chat/users/"+owner+"/contacts", `{"users":["bob2","carol","dave","eve","frank"]}`)
	}
	w.post("/chat/pings", `{"pings":[{"user":"bob2"},{"user":"carol"},{"user":"dave"},{"user":"eve"},{"user":"frank"}]}`)
	for _, list := range []string{
		"?limit=1", "/chat/users?limit=1", "/other/users?limit=1",
		"/chat/users?limit=1&order=oldest&status=green&status=grey&from=5",
		"/chat/users/alice/contacts?limit=1", "/chat/users/bob/contacts?limit=1&status=green",
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

// forgeries returns variants of a cursor: with one bit changed, with a byte more or less, or encoded differently.
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

// TestForgedCursors checks that only an unchanged cursor is accepted, and only for its own list.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	for _, namespace := range []string{"chat", "other", "third", "fourth"} {
		w.post("/"+namespace+"/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"carol"},{"user":"dave"}]}`)
	}
	refuses := func(list, cursor string) {
		w.fails(codeInvalidCursor, http.MethodGet, list+"&cursor="+url.QueryEscape(cursor), "")
	}
	genuine := w.cursors()
	for list, cursors := range genuine {
		for i, forged := range forgeries(cursors[0]) {
			if forged != cursors[0] && (testenv.Full() || i%9 == 0) {
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

// TestForgedCursorContents checks the content of cursors, because anyone can compute their checksum.
func TestForgedCursorContents(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	// content is a canonical query with some parameters changed (removed, if their new value is "-"), and a place.
	content := func(changes string, place ...byte) []byte {
		q := url.Values{"as_of": {testNow.String()}, "green": {"1m0s"}, "yellow": {"5m0s"}}
		changed, err := url.ParseQuery(changes)
		require.NoError(t, err)
		for name, values := range changed {
			if q[name] = values; values[0] == "-" {
				delete(q, name)
			}
		}
		// First the view, then everything else in the order of the reading.
		text := ""
		for _, name := range append([]string{"as_of", "green", "yellow"}, slices.Sorted(maps.Keys(q))...) {
			for _, value := range q[name] {
				text += "&" + url.QueryEscape(name) + "=" + strings.ReplaceAll(url.QueryEscape(value), "%3A", ":")
			}
			delete(q, name)
		}
		return append(append([]byte(text[1:]), 0), place...)
	}
	place := func(at lastseen.Instant, user string) []byte {
		return append(binary.BigEndian.AppendUint64(nil, uint64(at)<<1), user...)
	}
	good := place(testNow, "a")
	for what, forged := range map[string][]byte{
		"nothing":                 {},
		"no place":                content("")[:len(content(""))-1],
		"a place that ends early": content("", good[:7]...),
		"an order that is none":   content("order=2", good...),
		"a status that is none":   content("status=blue", good...),
		"a status twice":          content("status=grey&status=grey", good...),
		"statuses out of order":   content("status=grey&status=green", good...),
		"a default":               content("order=newest", good...),
		"a missing time":          content("as_of=-", good...),
		"a missing threshold":     content("green=-", good...),
		"a parameter twice":       content("order=oldest&order=oldest", good...),
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
		"to after as_of":          content("to="+(testNow+1).String(), good...),
		"green after yellow":      content("green=2ms&yellow=1ms", good...),
		"thresholds of nothing":   content("green=0s&yellow=0s", good...),
		"thresholds of ages":      content("yellow=100000h0m0s", good...),
		"a deep offset":           content("offset=1001", good...),
		"a negative offset":       content("offset=-1", good...),
		"a place before from":     content("from=1970-01-01T00:00:00.009Z", place(8, "a")...),
		"a place after to":        content("to="+(testNow-1).String(), good...),
		"a place beyond all time": content("", place(1<<62, "a")...),
		"no user":                 content("", place(testNow, "")...),
		"a user that is a path":   content("", place(testNow, "..")...),
		"a user with a NUL":       content("", place(testNow, "a\x00b")...),
		"a user that is no text":  content("", place(testNow, "a\xff")...),
		"a user too long":         content("", place(testNow, strings.Repeat("u", 257))...),
	} {
		cursor := sealCursor("chat", forged)
		r := w.send(http.MethodGet, "/chat/users?cursor="+cursor, "")
		require.Equal(t, string(codeInvalidCursor), r.json(t)["code"], "%s: %s", what, r.body)
	}
	valid := sealCursor("chat", content("", place(testNow, "bob")...))
	require.Equal(t, []string{"alice"}, names(w.get("/chat/users?cursor="+valid)),
		"who can compute the seal gets what a query gets")
	for _, version := range []byte{0, 1, cursorVersion + 1} {
		other := append([]byte{version}, content("", place(testNow, "bob")...)...)
		cursor := base64.RawURLEncoding.EncodeToString(append(checksum("chat", other), other...))
		w.fails(codeInvalidCursor, http.MethodGet, "/chat/users?cursor="+cursor, "")
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", "é", strings.Repeat("n", 65)} {
		w.fails(codeInvalidCursor, http.MethodGet, "?cursor="+sealCursor(namespaceList, []byte(name)), "")
	}
}

// FuzzCursor checks that an accepted cursor has valid parameters, and that they encode to the same cursor.
func FuzzCursor(f *testing.F) {
	p, err := readListParams(query{
		"from": {"0.005"}, "to": {"1795175999"}, "offset": {"3"}, "order": {"oldest"}, "status": {"grey", "green"},
	}, view{testNow, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, testNow})
	require.NoError(f, err)
	f.Add([]byte(p.cursor("chat", store.Record{User: "alice", State: lastseen.State{At: 7, Left: true}})), false)
	content, err := openCursor("chat", p.cursor("chat", store.Record{User: "a", State: lastseen.State{At: 7}}))
	require.NoError(f, err)
	f.Add(content, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		cursor := string(data)
		if seal { // a forger can compute the checksum
			cursor = sealCursor("chat", data)
		}
		p, last, err := openListCursor("chat", cursor, query{"limit": {"7"}, "cursor": {cursor}})
		if err != nil {
			require.Equal(t, codeInvalidCursor, requireProblem(t, err).code)
			return
		}
		requireValid(t, p)
		require.NoError(t, lastseen.CheckUser(last.User))
		require.True(t, p.from <= last.At && last.At <= p.to)
		require.Equal(t, cursor, p.cursor("chat", *last))
	})
}
