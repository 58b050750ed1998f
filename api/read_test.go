package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLookup(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":"2026-11-20T11:59:00Z"},{"user":"eve","at":"2026-11-20T11:55:00Z"}]}`)
		want := `{"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"users":[
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null},
			{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,"valid_until":"2026-11-20T12:01:00.000Z"},
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"eve","status":"grey","last_seen":"2026-11-20T11:55:00.000Z","left":false,"valid_until":null}]}`
		require.JSONEq(t, want, w.send(http.MethodPost, "/chat/lookup",
			`{"users":["bob","zoe","alice","bob","eve"]}`).body)
		require.JSONEq(t, want, w.send(http.MethodGet, "/chat/lookup?user=bob&user=zoe&user=alice&user=bob&user=eve",
			"").body)
		require.Empty(t, names(w.post("/chat/lookup", `{"users":[]}`)))
		require.Len(t, names(w.post("/chat/lookup", `{"users":[`+strings.Repeat(`"u",`, 999)+`"u"]}`)), 1000)
		require.Len(t, names(w.get("/chat/lookup?"+strings.Repeat("user=u&", 99)+"user=u")), 100)
	})
}

// TestEvaluation: as_of and thresholds come from the query; as_of does not travel back.
func TestEvaluation(t *testing.T) {
	w := newWorld(t, fileStore(t))
	w.post("/chat/users/alice/ping", `{"at":"2026-11-20T11:50:00Z"}`)
	for query, want := range map[string]string{
		"":                                   "grey",
		"?yellow=11m":                        "yellow",
		"?yellow=660":                        "yellow",
		"?green=600.001&yellow=1h":           "green",
		"?green=10m&yellow=1h":               "yellow",
		"?as_of=2026-11-20T11:50:59.999Z":    "green",
		"?as_of=2026-11-20T11:51:00Z":        "yellow",
		"?as_of=2026-11-20T11:54:59.999Z":    "yellow",
		"?as_of=2026-11-20T11:55:00Z":        "grey",
		"?as_of=2026-11-20T12:55:00%2B01:00": "grey",
		"?as_of=2026-11-20T10:00:00Z":        "green", // seen later: age 0
		"?_=1&utm_source=mail":               "grey",
	} {
		require.Equal(t, want, w.get("/chat/users/alice" + query)["status"], query)
	}
	require.Empty(t, names(w.get("/chat/users?as_of=2026-11-20T10:00:00Z")), "lists leave out who was seen later")
	require.EqualValues(t, 0, w.get("/chat/counts?as_of=2026-11-20T10:00:00Z")["total"])
}

// TestPathsAreDecodedOnce, and + is a space in a query only.
func TestPathsAreDecodedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		for path, user := range map[string]string{
			"a%2Fb": "a/b", "%2541": "%41", "a+b": "a+b", "a%20b": "a b", "%E2%82%AC": "€", "%2e%2e%2e": "...",
			"a:b@c": "a:b@c", "a%3Fb": "a?b", "...": "...", "%25": "%", "%2F": "/",
		} {
			require.Equal(t, user, w.post("/chat/users/"+path+"/ping", "")["user"], path)
			require.Equal(t, user, w.get("/chat/users/" + path)["user"], path)
			looked := w.get("/chat/lookup?user=" + url.QueryEscape(user))["users"].([]any)[0].(map[string]any)
			require.Equal(t, "green", looked["status"], path)
			require.Equal(t, user, looked["user"])
		}
		require.Equal(t, []string{"a b"}, names(w.get("/chat/lookup?user=a+b")))
	})
}

func TestList(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		for i, user := range []string{"now", "green", "edge", "yellow", "grey"} {
			ago := []int{0, 59, 60, 299, 300}[i]
			w.post("/chat/users/"+user+"/ping", fmt.Sprintf(`{"at":%d}`, 1795176000-ago))
		}
		w.post("/chat/users/left/ping", "")
		w.post("/chat/users/left/leave", "")
		for query, want := range map[string][]string{
			"":                                      {"left", "now", "green", "edge", "yellow", "grey"},
			"?order=oldest":                         {"grey", "yellow", "edge", "green", "now", "left"},
			"?status=green":                         {"now", "green"},
			"?status=yellow":                        {"edge", "yellow"},
			"?status=grey":                          {"left", "grey"},
			"?status=grey&status=green&status=grey": {"left", "now", "green", "grey"},
			"?from=1795175940&to=1795175941":        {"green", "edge"},
			"?limit=2":                              {"left", "now"},
			"?limit=2&offset=3":                     {"edge", "yellow"},
			"?offset=6":                             {},
			"?to=1795175999.999":                    {"green", "edge", "yellow", "grey"},
			"?green=1s&yellow=2s&status=yellow":     {},
		} {
			require.Equal(t, want, names(w.get("/chat/users"+query)), query)
		}
		require.JSONEq(t, `{"as_of":"2026-11-20T12:00:00.000Z","green":2,"yellow":2,"grey":2,"total":6}`,
			w.send(http.MethodGet, "/chat/counts", "").body)
		require.JSONEq(t, `{"as_of":"2026-11-20T12:00:00.000Z","green":1,"yellow":1,"grey":0,"total":2}`,
			w.send(http.MethodGet, "/chat/counts?from=1795175940&to=1795175941", "").body)
	})
}

// TestListIsAsOfTheNewest: someone stamped ahead is not missing, but nobody from a broken clock's
// future moves the list's time.
func TestListIsAsOfTheNewest(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.post("/chat/users/ahead/ping", `{"at":1795176004}`)
		list := w.get("/chat/users")
		require.Equal(t, []string{"ahead"}, names(list))
		require.Equal(t, "2026-11-20T12:00:04.000Z", list["as_of"])
		require.EqualValues(t, 1, w.get("/chat/counts")["green"])
		w.store.now -= 60_000 // the clock was set back
		list = w.get("/chat/users")
		require.Equal(t, "2026-11-20T11:59:05.000Z", list["as_of"])
		require.Empty(t, names(list))
	})
}

// TestWalk walks with cursors, page sizes changing, while others move; those who stay are listed once.
func TestWalk(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		var items []string
		for i := range 300 {
			items = append(items, fmt.Sprintf(`{"user":"u%03d","at":%d}`, i, 1795175000+i/50))
		}
		w.post("/chat/pings", `{"pings":[`+strings.Join(items, ",")+`]}`)
		for _, order := range []string{"newest", "oldest"} {
			listed := map[string]int{}
			first := "status=grey&order=" + order + "&from=1795170000"
			query := first + "&limit=7"
			for page := 0; ; page++ {
				list := w.get("/chat/users?" + query)
				for _, user := range names(list) {
					listed[user]++
				}
				require.Equal(t, "2026-11-20T12:00:00.000Z", list["as_of"], "the first page fixes it")
				if list["next_cursor"] == nil {
					break
				}
				w.post(fmt.Sprintf("/chat/users/u%03d/ping", page*3%300/3*3), "")
				w.post(fmt.Sprintf("/chat/users/new%d/ping", page), "")
				query = fmt.Sprintf("limit=%d&cursor=%s", 1+page%9, list["next_cursor"])
				if page%2 == 0 {
					query += "&" + first + "&as_of=" + list["as_of"].(string)
				}
			}
			for i := range 300 {
				if i%3 != 0 {
					require.Equal(t, 1, listed[fmt.Sprintf("u%03d", i)], "u%03d, %s first", i, order)
				}
			}
		}
	})
}

func TestCursors(t *testing.T) {
	w := newWorld(t, fileStore(t))
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

func TestNamespaces(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		var want []string
		for i := range 12 {
			name := fmt.Sprintf("room-%02d", i)
			want = append(want, name)
			w.post("/"+name+"/users/alice/ping", "")
		}
		var got []string
		for query := "?limit=5"; ; {
			page := w.get(query)
			for _, n := range page["namespaces"].([]any) {
				got = append(got, n.(map[string]any)["namespace"].(string))
				require.Equal(t, "2026-11-20T12:00:00.000Z", n.(map[string]any)["last_ping"])
			}
			if page["next_cursor"] == nil {
				break
			}
			query = "?limit=5&cursor=" + page["next_cursor"].(string)
		}
		require.Equal(t, want, got)
		require.True(t, slices.IsSorted(got))
		w.send(http.MethodDelete, "/room-00/users/alice", "")
		require.Nil(t, w.get("?limit=1")["namespaces"].([]any)[0].(map[string]any)["last_ping"])
		require.JSONEq(t, `{"namespace":"unused","green_ms":60000,"yellow_ms":300000,"ping_interval_ms":30000,
			"retention_ms":null,"shards":1}`, w.send(http.MethodGet, "/unused", "").body)
	})
}
