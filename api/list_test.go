package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// TestListIsAsOfNewestUser checks that a list includes a user whose time is a little ahead, but that a user from a
// wrong clock's future does not move the list's time.
func TestListIsAsOfNewestUser(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
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

// TestListPages follows cursors with changing page sizes while users ping. Users that do not ping are listed once.
func TestListPages(t *testing.T) {
	t.Parallel()
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
