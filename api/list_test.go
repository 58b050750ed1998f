package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

func TestList(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
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
			"?limit=2&offset=3":                     {"edge", "yellow"}, "?offset=6": {},
			"?to=1795175999.999":                {"green", "edge", "yellow", "grey"},
			"?green=1s&yellow=2s&status=yellow": {},
		} {
			require.Equal(t, want, names(w.get("/chat/users"+query)), query)
		}
		require.JSONEq(t, `{"as_of":"2026-11-20T12:00:00.000Z","green":2,"yellow":2,"grey":2,"total":6}`,
			w.send("GET", "/chat/counts", "").body)
		require.JSONEq(t, `{"as_of":"2026-11-20T12:00:00.000Z","green":1,"yellow":1,"grey":0,"total":2}`,
			w.send("GET", "/chat/counts?from=1795175940&to=1795175941", "").body)
	})
}

// TestListIsAsOfNewestUser checks that a list includes a user whose time is a little ahead, but that a user from a
// wrong clock's future does not move the list's time.
func TestListIsAsOfNewestUser(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/users/ahead/ping", `{"at":1795176004}`)
		list := w.get("/chat/users")
		require.Equal(t, []string{"ahead"}, names(list))
		require.Equal(t, "2026-11-20T12:00:04.000Z", list["as_of"])
		require.EqualValues(t, 1, w.get("/chat/counts")["green"])
		w.store.pass(-60_000) // the clock was set back
		list = w.get("/chat/users")
		require.Equal(t, "2026-11-20T11:59:05.000Z", list["as_of"])
		require.Empty(t, names(list))
	})
}

// TestListPages follows cursors with changing page sizes while users ping. Users that do not ping are listed once.
func TestListPages(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	eachStore(t, func(t *testing.T, w *testServer) {
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

func TestLookup(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":"2026-11-20T11:59:00Z"},{"user":"eve","at":"2026-11-20T11:55:00Z"}]}`)
		want := `{"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"users":[
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null},
			{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,"valid_until":"2026-11-20T12:01:00.000Z"},
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"eve","status":"grey","last_seen":"2026-11-20T11:55:00.000Z","left":false,"valid_until":null}]}`
		require.JSONEq(t, want, w.send("POST", "/chat/lookup", `{"users":["bob","zoe","alice","bob","eve"]}`).body)
		require.JSONEq(t, want, w.send("GET", "/chat/lookup?user=bob&user=zoe&user=alice&user=bob&user=eve", "").body)
		require.Empty(t, names(w.post("/chat/lookup", `{"users":[]}`)))
		require.Len(t, names(w.post("/chat/lookup", `{"users":[`+strings.Repeat(`"u",`, 999)+`"u"]}`)), 1000)
		require.Len(t, names(w.get("/chat/lookup?"+strings.Repeat("user=u&", 99)+"user=u")), 100)
	})
}

// TestCommaHint checks the hint for `user=a,b`, which names one user with a valid ID. If that user was never seen,
// the response explains how to look up several. Other responses have no hint.
func TestCommaHint(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"Doe, Jane"}]}`)
	const want = `was looked up as one user and was never seen. To look up several users, repeat the parameter: user=a&user=b.`
	for query, hint := range map[string]any{
		"user=alice,bob": `"alice,bob" ` + want, "user=alice&user=bob%2Ccarol": `"bob,carol" ` + want,
		"user=a,b&user=c,d": `"a,b" ` + want, "user=alice&user=zoe": nil, "user=Doe,+Jane": nil,
		"user=Doe,+Jane&user=zoe&user=alice": nil,
	} {
		found := w.get("/chat/lookup?" + query)
		require.Equal(t, hint, found["hint"], query)
		_, there := found["hint"]
		require.Equal(t, hint != nil, there, query)
	}
	require.NotContains(t, w.post("/chat/lookup", `{"users":["alice,bob"]}`), "hint", "an array leaves no doubt")

	tag := w.send("GET", "/chat/lookup?user=a,b", "").header.Get("ETag")
	w.post("/chat/users/a%2Cb/ping", "")
	seen := w.get("/chat/lookup?user=a,b", "If-None-Match: "+tag)
	require.NotContains(t, seen, "hint", "seen since")
	long := fmt.Sprintf("%0255d,", 0)
	require.Less(t, len(w.get("/chat/lookup?user=" + long)["hint"].(string)), 200, "bounded")
}

func TestDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"a/b"},{"user":"c"}]}`)
		for _, user := range []string{"alice", "a%2Fb", "nobody"} {
			w.send("DELETE", "/chat/users/"+user, "").is(t, http.StatusNoContent)
		}
		require.Equal(t, []string{"c"}, names(w.get("/chat/users")))
		w.send("DELETE", "/chat?confirm=chat", "").is(t, http.StatusNoContent)
		w.send("DELETE", "/chat?confirm=chat", "").is(t, http.StatusNoContent)
		require.Zero(t, w.total("chat"))
		require.Empty(t, w.get("")["namespaces"])
	})
}

// TestPathsAreDecodedOnce also checks that + is a space in a query only.
func TestPathsAreDecodedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		for path, user := range map[string]string{
			"a%2Fb": "a/b", "%2541": "%41", "a+b": "a+b", "a%20b": "a b", "%E2%82%AC": "€", "%2e%2e%2e": "...",
			"a:b@c": "a:b@c", "a%3Fb": "a?b", "...": "...", "%25": "%", "%2F": "/",
		} {
			require.Equal(t, user, w.post("/chat/users/"+path+"/ping", "")["user"], path)
			require.Equal(t, user, w.get("/chat/users/" + path)["user"], path)
			looked := firstOf(w.get("/chat/lookup?user="+url.QueryEscape(user)), "users")
			require.Equal(t, "green", looked["status"], path)
			require.Equal(t, user, looked["user"])
		}
		require.Equal(t, []string{"a b"}, names(w.get("/chat/lookup?user=a+b")))
	})
}

// TestTranscript is the example that the project started from: times in Unix seconds.
func TestTranscript(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		for _, ping := range []struct {
			user string
			at   int
		}{{"alice", 100123}, {"bob", 100135}, {"eve", 100141}, {"mallory", 100143}, {"timmy", 100163}, {
			"eve",
			100178,
		}} {
			w.post("/presence/users/"+ping.user+"/ping", fmt.Sprintf(`{"at":%d}`, ping.at))
		}
		list := w.get("/presence/users?from=100137&to=100197&as_of=100197")
		require.Equal(t, []string{"eve", "timmy", "mallory"}, names(list))
		for _, u := range list["users"].([]any) {
			require.Equal(t, "green", u.(map[string]any)["status"])
		}
		require.Nil(t, list["next_cursor"])
		require.Equal(t, "yellow", w.get("/presence/users/bob?as_of=100197")["status"])
		zoe := w.send("GET", "/presence/users/zoe?as_of=100197", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null,
			"as_of":"1970-01-02T03:49:57.000Z","green_ms":60000,"yellow_ms":300000}`, zoe.body)
	})
}
