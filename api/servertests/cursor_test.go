package servertests

import (
	"encoding/binary"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"eve"},{"user":"mallory"}]}`)
	list := w.Get("/chat/users?limit=1&status=green&offset=1&green=30s")
	require.Equal(t, []string{"eve"}, kit.Names(list))
	cursor := list["next_cursor"].(string)
	next := "/chat/users?cursor=" + cursor
	require.Equal(t, []string{"bob", "alice"}, kit.Names(w.Get(next)))
	for _, same := range []string{
		"&limit=1", "&status=green", "&status=green&status=green", "&offset=1", "&green=30",
		"&order=newest", "&as_of=1795176000", "&to=1795176000", "&from=0", "&yellow=5m",
	} {
		require.Equal(t, "bob", kit.Names(w.Get(next + same))[0], same)
	}
	for _, other := range []string{
		"&status=grey", "&status=green&status=grey", "&offset=2", "&green=31s", "&yellow=6m",
		"&order=oldest", "&as_of=1795176001", "&to=1795175999", "&from=1", "&green=abc", "&green=10m", "&offset=x",
	} {
		w.Fails(problem.InvalidCursor, "GET", next+other, "")
	}
	w.Fails(problem.InvalidParameter, "GET", next+"&cursor="+cursor, "")
	oldest := w.Get("/chat/users?limit=2&order=oldest")
	require.Equal(t, []string{"alice", "bob"}, kit.Names(oldest))
	rest := w.Get("/chat/users?cursor=" + oldest["next_cursor"].(string))
	require.Equal(t, []string{"eve", "mallory"}, kit.Names(rest), "the order is that of the first page")
}

// cursors returns valid cursors of three pages of each list, by list.
func cursors(w *apitest.Server) map[string][]string {
	w.T.Helper()
	found := map[string][]string{}
	for _, owner := range []string{"alice", "bob"} {
		w.Write("PUT", "/chat/users/"+owner+"/contacts", `{"users":["bob2","carol","dave","eve","frank"]}`)
	}
	w.Post("/chat/pings", `{"pings":[{"user":"bob2"},{"user":"carol"},{"user":"dave"},{"user":"eve"},{"user":"frank"}]}`)
	for _, list := range []string{
		"?limit=1", "/chat/users?limit=1", "/other/users?limit=1",
		"/chat/users?limit=1&order=oldest&status=green&status=grey&from=5",
		"/chat/users/alice/contacts?limit=1", "/chat/users/bob/contacts?limit=1&status=green",
	} {
		next := ""
		for range 3 {
			page := w.Get(list + next)
			cursor, more := page["next_cursor"].(string)
			require.True(w.T, more, list)
			found[list] = append(found[list], cursor)
			next = "&cursor=" + cursor
		}
	}
	return found
}

// TestForgedCursors checks that only an unchanged cursor is accepted, and only for its own list.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	w := apitest.NewLimitedServer(t)
	for _, namespace := range []string{"chat", "other", "third", "fourth"} {
		w.Post("/"+namespace+"/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"carol"},{"user":"dave"}]}`)
	}
	refuses := func(list, cursor string) {
		w.Fails(problem.InvalidCursor, "GET", list+"&cursor="+url.QueryEscape(cursor), "")
	}
	genuine := cursors(w)
	for list, cursors := range genuine {
		for i, forged := range kit.Forgeries(cursors[0]) {
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
	w := apitest.NewLimitedServer(t)
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	// content is a canonical query with some parameters changed (removed, if their new value is "-"), and a position.
	content := func(changes string, position ...byte) []byte {
		q := url.Values{"as_of": {kit.Now.String()}, "green": {"1m0s"}, "yellow": {"5m0s"}}
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
		return append(append([]byte(text[1:]), 0), position...)
	}
	position := func(at lastseen.Instant, user string) []byte {
		return append(binary.BigEndian.AppendUint64(nil, uint64(at)<<1), user...)
	}
	good, plain := position(kit.Now, "a"), content("")
	refused := [][]byte{
		{},
		plain[:len(plain)-1], content("", good[:7]...), append([]byte("%61"+string(plain[1:])), good...),
		append([]byte("a;b&"+string(plain)), good...), append([]byte("%&"+string(plain)), good...),
		content("from=1970-01-01T00:00:00.009Z&to=1970-01-01T00:00:00.008Z", position(8, "a")...),
		// beyond all time
		content("from=1970-01-01T00:00:00.009Z", position(8, "a")...), content("", position(1<<62, "a")...),
	}
	for _, query := range []string{
		"order=2", "status=blue", "status=grey&status=grey", "status=grey&status=green", // not in order
		"order=newest" /* the default */, "as_of=-", "green=-", "order=oldest&order=oldest", "user=a", "limit=1",
		"cursor=a", "=", "as_of=1795176000", "green=60s", "offset=%2B0" /* other forms */, "from=-1",
		"as_of=253402300800",
		"to=" + (kit.Now + 1).String() /* after as_of */, "green=2ms&yellow=1ms", "green=0s&yellow=0s",
		"yellow=100000h0m0s", "offset=1001", "offset=-1", "to=" + (kit.Now - 1).String(), /* before the position */
	} {
		refused = append(refused, content(query, good...))
	}
	for _, user := range []string{"", "..", "a\x00b", "a\xff", strings.Repeat("u", 257)} {
		refused = append(refused, content("", position(kit.Now, user)...))
	}
	for _, forged := range refused {
		r := w.Send("GET", "/chat/users?cursor="+kit.SealedCursor("chat", string(forged)), "")
		require.Equal(t, string(problem.InvalidCursor), r.JSON(t)["code"], "%q: %s", forged, r.Body)
	}
	valid := kit.SealedCursor("chat", string(content("", position(kit.Now, "bob")...)))
	require.Equal(t, []string{"alice"}, kit.Names(w.Get("/chat/users?cursor="+valid)),
		"who can compute the seal gets what a query gets")
	for _, version := range []byte{0, 1, 3} {
		cursor := kit.CursorOfVersion(version, "chat", string(content("", position(kit.Now, "bob")...)))
		w.Fails(problem.InvalidCursor, "GET", "/chat/users?cursor="+cursor, "")
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", "é", strings.Repeat("n", 65)} {
		w.Fails(problem.InvalidCursor, "GET", "?cursor="+kit.SealedCursor("/namespaces", name), "")
	}
}
