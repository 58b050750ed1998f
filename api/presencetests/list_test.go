package presencetests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/internal/testenv"
)

func TestList(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for i, user := range []string{"now", "green", "edge", "yellow", "grey"} {
			ago := []int{0, 59, 60, 299, 300}[i]
			w.Post("/chat/users/"+user+"/ping", fmt.Sprintf(`{"at":%d}`, 1795176000-ago))
		}
		w.Post("/chat/users/left/ping", "")
		w.Post("/chat/users/left/leave", "")
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
			require.Equal(t, want, kit.Names(w.Get("/chat/users"+query)), query)
		}
		require.JSONEq(t, `{"as_of":"2026-11-20T12:00:00.000Z","green":2,"yellow":2,"grey":2,"total":6}`,
			w.Send("GET", "/chat/counts", "").Body)
		require.JSONEq(t, `{"as_of":"2026-11-20T12:00:00.000Z","green":1,"yellow":1,"grey":0,"total":2}`,
			w.Send("GET", "/chat/counts?from=1795175940&to=1795175941", "").Body)
	})
}

// TestListIsAsOfNewestUser checks that a list includes a user whose time is a little ahead, but that a user from a
// wrong clock's future does not move the list's time.
func TestListIsAsOfNewestUser(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Post("/chat/users/ahead/ping", `{"at":1795176004}`)
		list := w.Get("/chat/users")
		require.Equal(t, []string{"ahead"}, kit.Names(list))
		require.Equal(t, "2026-11-20T12:00:04.000Z", list["as_of"])
		require.EqualValues(t, 1, w.Get("/chat/counts")["green"])
		w.Store.Pass(-60_000) // the clock was set back
		list = w.Get("/chat/users")
		require.Equal(t, "2026-11-20T11:59:05.000Z", list["as_of"])
		require.Empty(t, kit.Names(list))
	})
}

// TestListPages follows cursors with changing page sizes while users ping. Users that do not ping are listed once.
func TestListPages(t *testing.T) {
	t.Parallel()
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		var items []string
		for i := range 300 {
			items = append(items, fmt.Sprintf(`{"user":"u%03d","at":%d}`, i, 1795175000+i/50))
		}
		w.Post("/chat/pings", `{"pings":[`+strings.Join(items, ",")+`]}`)
		for _, order := range []string{"newest", "oldest"} {
			listed := map[string]int{}
			first := "status=grey&order=" + order + "&from=1795170000"
			query := first + "&limit=7"
			for page := 0; ; page++ {
				list := w.Get("/chat/users?" + query)
				for _, user := range kit.Names(list) {
					listed[user]++
				}
				require.Equal(t, "2026-11-20T12:00:00.000Z", list["as_of"], "the first page fixes it")
				if list["next_cursor"] == nil {
					break
				}
				w.Post(fmt.Sprintf("/chat/users/u%03d/ping", page*3%300/3*3), "")
				w.Post(fmt.Sprintf("/chat/users/new%d/ping", page), "")
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
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":"2026-11-20T11:59:00Z"},{"user":"eve","at":"2026-11-20T11:55:00Z"}]}`)
		want := `{"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"users":[
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null},
			{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,"valid_until":"2026-11-20T12:01:00.000Z"},
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"eve","status":"grey","last_seen":"2026-11-20T11:55:00.000Z","left":false,"valid_until":null}]}`
		require.JSONEq(t, want, w.Send("POST", "/chat/lookup", `{"users":["bob","zoe","alice","bob","eve"]}`).Body)
		require.JSONEq(t, want, w.Send("GET", "/chat/lookup?user=bob&user=zoe&user=alice&user=bob&user=eve", "").Body)
		require.Empty(t, kit.Names(w.Post("/chat/lookup", `{"users":[]}`)))
		require.Len(t, kit.Names(w.Post("/chat/lookup", `{"users":[`+strings.Repeat(`"u",`, 999)+`"u"]}`)), 1000)
		require.Len(t, kit.Names(w.Get("/chat/lookup?"+strings.Repeat("user=u&", 99)+"user=u")), 100)
	})
}

// TestCommaHint checks the hint for `user=a,b`, which names one user with a valid ID. If that user was never seen,
// the response explains how to look up several. Other responses have no hint.
func TestCommaHint(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"Doe, Jane"}]}`)
	const want = `was looked up as one user and was never seen. To look up several users, repeat the parameter: user=a&user=b.`
	for query, hint := range map[string]any{
		"user=alice,bob": `"alice,bob" ` + want, "user=alice&user=bob%2Ccarol": `"bob,carol" ` + want,
		"user=a,b&user=c,d": `"a,b" ` + want, "user=alice&user=zoe": nil, "user=Doe,+Jane": nil,
		"user=Doe,+Jane&user=zoe&user=alice": nil,
	} {
		found := w.Get("/chat/lookup?" + query)
		require.Equal(t, hint, found["hint"], query)
		_, there := found["hint"]
		require.Equal(t, hint != nil, there, query)
	}
	require.NotContains(t, w.Post("/chat/lookup", `{"users":["alice,bob"]}`), "hint", "an array leaves no doubt")

	tag := w.Send("GET", "/chat/lookup?user=a,b", "").Header.Get("ETag")
	w.Post("/chat/users/a%2Cb/ping", "")
	seen := w.Get("/chat/lookup?user=a,b", "If-None-Match: "+tag)
	require.NotContains(t, seen, "hint", "seen since")
	long := fmt.Sprintf("%0255d,", 0)
	require.Less(t, len(w.Get("/chat/lookup?user=" + long)["hint"].(string)), 200, "bounded")
}

func TestDelete(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"a/b"},{"user":"c"}]}`)
		for _, user := range []string{"alice", "a%2Fb", "nobody"} {
			w.Send("DELETE", "/chat/users/"+user, "").Is(t, http.StatusNoContent)
		}
		require.Equal(t, []string{"c"}, kit.Names(w.Get("/chat/users")))
		w.Send("DELETE", "/chat?confirm=chat", "").Is(t, http.StatusNoContent)
		w.Send("DELETE", "/chat?confirm=chat", "").Is(t, http.StatusNoContent)
		require.Zero(t, w.Total("chat"))
		require.Empty(t, w.Get("")["namespaces"])
	})
}

// TestPathsAreDecodedOnce also checks that + is a space in a query only.
func TestPathsAreDecodedOnce(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for path, user := range map[string]string{
			"a%2Fb": "a/b", "%2541": "%41", "a+b": "a+b", "a%20b": "a b", "%E2%82%AC": "€", "%2e%2e%2e": "...",
			"a:b@c": "a:b@c", "a%3Fb": "a?b", "...": "...", "%25": "%", "%2F": "/",
		} {
			require.Equal(t, user, w.Post("/chat/users/"+path+"/ping", "")["user"], path)
			require.Equal(t, user, w.Get("/chat/users/" + path)["user"], path)
			looked := kit.FirstOf(w.Get("/chat/lookup?user="+url.QueryEscape(user)), "users")
			require.Equal(t, "green", looked["status"], path)
			require.Equal(t, user, looked["user"])
		}
		require.Equal(t, []string{"a b"}, kit.Names(w.Get("/chat/lookup?user=a+b")))
	})
}

// TestTranscript is the example that the project started from: times in Unix seconds.
func TestTranscript(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for _, ping := range []struct {
			user string
			at   int
		}{{"alice", 100123}, {"bob", 100135}, {"eve", 100141}, {"mallory", 100143}, {"timmy", 100163}, {
			"eve",
			100178,
		}} {
			w.Post("/presence/users/"+ping.user+"/ping", fmt.Sprintf(`{"at":%d}`, ping.at))
		}
		list := w.Get("/presence/users?from=100137&to=100197&as_of=100197")
		require.Equal(t, []string{"eve", "timmy", "mallory"}, kit.Names(list))
		for _, u := range list["users"].([]any) {
			require.Equal(t, "green", u.(map[string]any)["status"])
		}
		require.Nil(t, list["next_cursor"])
		require.Equal(t, "yellow", w.Get("/presence/users/bob?as_of=100197")["status"])
		zoe := w.Send("GET", "/presence/users/zoe?as_of=100197", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null,
			"as_of":"1970-01-02T03:49:57.000Z","green_ms":60000,"yellow_ms":300000}`, zoe.Body)
	})
}
