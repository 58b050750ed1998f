package presencetests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
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
