package api

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
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
		w.fails(problem.InvalidCursor, "GET", next+other, "")
	}
	w.fails(problem.InvalidParameter, "GET", next+"&cursor="+cursor, "")
}

// cursors returns valid cursors of three pages of each list, by list.
func (w *testServer) cursors() map[string][]string {
	w.t.Helper()
	found := map[string][]string{}
	for _, owner := range []string{"alice", "bob"} {
		w.write("PUT", "/chat/users/"+owner+"/contacts", `{"users":["bob2","carol","dave","eve","frank"]}`)
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
	return append(forged, cursor+"A", cursor+"=", cursor+"==", cursor+"\n", " "+cursor, cursor+"\x00", cursor+cursor,
		strings.Repeat(cursor, 100), strings.ToUpper(cursor),
		base64.StdEncoding.EncodeToString(content), base64.RawURLEncoding.EncodeToString(append(content, 0)),
		fmt.Sprintf("%x", content))
}

// TestForgedCursors checks that only an unchanged cursor is accepted, and only for its own list.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	w := newLimitedServer(t)
	for _, namespace := range []string{"chat", "other", "third", "fourth"} {
		w.post("/"+namespace+"/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"carol"},{"user":"dave"}]}`)
	}
	refuses := func(list, cursor string) {
		w.fails(problem.InvalidCursor, "GET", list+"&cursor="+url.QueryEscape(cursor), "")
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
	good, plain := place(testNow, "a"), content("")
	refused := [][]byte{
		{},
		plain[:len(plain)-1], content("", good[:7]...), append([]byte("%61"+string(plain[1:])), good...),
		append([]byte("a;b&"+string(plain)), good...), append([]byte("%&"+string(plain)), good...),
		content("from=1970-01-01T00:00:00.009Z&to=1970-01-01T00:00:00.008Z", place(8, "a")...),
		// beyond all time
		content("from=1970-01-01T00:00:00.009Z", place(8, "a")...), content("", place(1<<62, "a")...),
	}
	for _, query := range []string{
		"order=2", "status=blue", "status=grey&status=grey", "status=grey&status=green", // not in order
		"order=newest" /* the default */, "as_of=-", "green=-", "order=oldest&order=oldest", "user=a", "limit=1",
		"cursor=a", "=", "as_of=1795176000", "green=60s", "offset=%2B0" /* other forms */, "from=-1",
		"as_of=253402300800",
		"to=" + (testNow + 1).String() /* after as_of */, "green=2ms&yellow=1ms", "green=0s&yellow=0s",
		"yellow=100000h0m0s", "offset=1001", "offset=-1", "to=" + (testNow - 1).String(), /* before the place */
	} {
		refused = append(refused, content(query, good...))
	}
	for _, user := range []string{"", "..", "a\x00b", "a\xff", strings.Repeat("u", 257)} {
		refused = append(refused, content("", place(testNow, user)...))
	}
	for _, forged := range refused {
		r := w.send("GET", "/chat/users?cursor="+sealCursor("chat", forged), "")
		require.Equal(t, string(problem.InvalidCursor), r.json(t)["code"], "%q: %s", forged, r.body)
	}
	valid := sealCursor("chat", content("", place(testNow, "bob")...))
	require.Equal(t, []string{"alice"}, names(w.get("/chat/users?cursor="+valid)),
		"who can compute the seal gets what a query gets")
	for _, version := range []byte{0, 1, cursorVersion + 1} {
		other := append([]byte{version}, content("", place(testNow, "bob")...)...)
		cursor := base64.RawURLEncoding.EncodeToString(append(checksum("chat", other), other...))
		w.fails(problem.InvalidCursor, "GET", "/chat/users?cursor="+cursor, "")
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", "é", strings.Repeat("n", 65)} {
		w.fails(problem.InvalidCursor, "GET", "?cursor="+sealCursor(namespaceList, []byte(name)), "")
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
			require.Equal(t, problem.InvalidCursor, requireProblem(t, err).Code)
			return
		}
		requireValid(t, p)
		require.NoError(t, lastseen.CheckUser(last.User))
		require.True(t, p.from <= last.At && last.At <= p.to)
		require.Equal(t, cursor, p.cursor("chat", *last))
	})
}
