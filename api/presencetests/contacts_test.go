package presencetests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

const contactsPath = "/chat/users/alice/contacts"

func TestContacts(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for _, step := range []struct {
			method, body string
			want         []string
		}{
			{"PUT", `{"users":["carol","bob","carol","é"]}`, []string{"bob", "carol", "é"}},
			{"PATCH", `{"add":["dave","bob"],"remove":["carol","nobody"]}`, []string{"bob", "dave", "é"}},
			{"PATCH", `{"add":["x"],"remove":["x"]}`, []string{"bob", "dave", "é"}},
			{"PATCH", `{}`, []string{"bob", "dave", "é"}},
			{"PUT", `{"users":[]}`, []string{}},
			{"PUT", `{"users":["bob"]}`, []string{"bob"}},
			{"DELETE", "", []string{}},
			{"DELETE", "", []string{}},
		} {
			w.Write(step.method, contactsPath, step.body)
			require.Equal(t, step.want, kit.Names(w.Get(contactsPath)), step.body)
			require.Empty(t, kit.Names(w.Get("/chat/users/bob/contacts")), "a contact has a direction")
			require.Empty(t, kit.Names(w.Get("/other/users/alice/contacts")))
		}
		w.Write("PUT", contactsPath, `{"users":["bob"]}`)
		w.Write("DELETE", "/chat/users/alice", "")
		require.Empty(t, kit.Names(w.Get(contactsPath)), "with the user")
	})
}

// TestContactsPresence compares what a list of contacts shows with a lookup.
func TestContactsPresence(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		all := []string{"edge", "green", "grey", "left", "never", "yellow"}
		for user, ago := range map[string]int{"green": 59, "edge": 60, "yellow": 299, "grey": 300, "left": 0} {
			w.Post("/chat/users/"+user+"/ping", fmt.Sprintf(`{"at":%d}`, 1795176000-ago))
		}
		w.Post("/chat/users/left/leave", "")
		w.Post("/chat/users/stranger/ping", "")
		w.Write("PUT", contactsPath, `{"users":["`+strings.Join(all, `","`)+`"]}`)
		for _, query := range []string{"", "?as_of=1795175999", "?green=30s&yellow=1m"} {
			want := w.Get("/chat/lookup?user=" + strings.Join(all, "&user=") + strings.Replace(query, "?", "&", 1))
			want["next_cursor"] = nil
			require.Equal(t, want, w.Get(contactsPath+query), query)
		}
		for query, want := range map[string][]string{
			"?status=green": {"green"}, "?status=yellow": {"edge", "yellow"},
			"?status=grey":                      {"grey", "left", "never"},
			"?status=grey&status=green":         {"green", "grey", "left", "never"},
			"?status=yellow&green=1s&yellow=2s": {},
		} {
			require.Equal(t, want, kit.Names(w.Get(contactsPath+query)), query)
		}
	})
}

func contactPages(w *apitest.Server, query string, limit int) (pages [][]string) {
	w.T.Helper()
	for _, page := range pagesOf(w, fmt.Sprintf("%s?limit=%d%s", contactsPath, limit, query)) {
		pages = append(pages, kit.Names(page))
	}
	return pages
}

// pagesOf follows cursors from a path with a query and returns all pages.
func pagesOf(w *apitest.Server, path string, headers ...string) (pages []map[string]any) {
	w.T.Helper()
	next := ""
	for range store.MaxContacts + 2 {
		page := w.Get(path+next, headers...)
		pages = append(pages, page)
		cursor, more := page["next_cursor"].(string)
		if !more {
			return pages
		}
		next = "&cursor=" + cursor
	}
	w.T.Fatal("the list does not end")
	return nil
}

// TestContactsPages: a page is full unless it is the last one, which is empty only if the list is, whatever the filter.
func TestContactsPages(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	var all, odd []string
	var pings []store.PresenceEvent
	for i := range store.MaxContacts {
		user := fmt.Sprintf("u%04d", i)
		if all = append(all, user); i%1000 == 999 {
			odd = append(odd, user)
			pings = append(pings, store.PresenceEvent{User: user, At: kit.Now})
		}
	}
	_, err := w.Store.Ping(context.Background(), "chat", pings)
	require.NoError(t, err)
	w.Write("PUT", contactsPath, `{"users":["`+strings.Join(all, `","`)+`"]}`)
	for _, size := range []int{999, 1000} {
		pages := contactPages(w, "", size)
		require.Equal(t, all, slices.Concat(pages...))
		require.Equal(t, slices.Collect(slices.Chunk(all, size)), pages)
	}
	for size, want := range map[int]int{1: 5, 2: 3, 4: 2, 5: 1, 6: 1} {
		pages := contactPages(w, "&status=green", size)
		require.Equal(t, odd, slices.Concat(pages...))
		require.Len(t, pages, want)
	}
	require.Equal(t, [][]string{{}}, contactPages(w, "&status=yellow", 1))
	w.Write("PATCH", contactsPath, `{"add":["`+strings.Join(all[1:], `","`)+`","u9999"],"remove":["u0000"]}`)
	w.Fails(problem.TooManyContacts, "PATCH", contactsPath, `{"add":["bob"]}`)
	w.Fails(problem.TooManyItems, "PUT", contactsPath, `{"users":["u","`+strings.Join(all, `","`)+`"]}`)
	w.Fails(problem.TooManyItems, "PATCH", contactsPath, `{"remove":["u","`+strings.Join(all, `","`)+`"]}`)
}

// TestContactsCursor: a cursor continues the list that it is from, and no other.
func TestContactsCursor(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, owner := range []string{"alice", "alic", "bob"} {
		w.Write("PUT", "/chat/users/"+owner+"/contacts", `{"users":["a","b","c","d"]}`)
	}
	w.Post("/chat/pings", `{"pings":[{"user":"a"},{"user":"c"},{"user":"d"}]}`)
	page := w.Get(contactsPath + "?limit=1&status=green&green=30s")
	require.Equal(t, []string{"a"}, kit.Names(page))
	cursor := page["next_cursor"].(string)
	next := contactsPath + "?cursor=" + cursor
	w.Store.Pass(1000)
	for _, same := range []string{"", "&limit=50", "&status=green", "&green=30", "&yellow=5m", "&as_of=1795176000"} {
		page := w.Get(next + same)
		require.Equal(t, []string{"c", "d"}, kit.Names(page), same)
		require.Equal(t, "2026-11-20T12:00:00.000Z", page["as_of"], "the first page fixes it")
	}
	w.Write("PATCH", contactsPath, `{"remove":["a","c"]}`)
	require.Equal(t, []string{"d"}, kit.Names(w.Get(next)), "the position need not exist")
	refused := []string{"/chat/users/alic/contacts?cursor=" + cursor}
	for _, other := range []string{"&status=grey", "&green=31s", "&yellow=6m", "&as_of=1795176001", "&green=abc"} {
		refused = append(refused, next+other)
	}
	for _, content := range []string{
		"", "\x00", "a", "\x00a", "as_of=1&green=1s&yellow=2s", "as_of=1&green=1s&yellow=2s\x00",
		"as_of=1&green=1s&yellow=2s\x00\x01", "green=1s\x00a",
	} {
		refused = append(refused, contactsPath+"?cursor="+kit.SealedCursor("chat\x00alice", content))
	}
	for _, path := range refused { // see also TestForgedCursors
		w.Fails(problem.InvalidCursor, "GET", path, "")
	}
}

// TestContactsInCall: a list can have only contacts who are in a call, or only those who are not.
func TestContactsInCall(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, &sayingStore{kit.FileStore(t), map[string]store.Details{
		"a": {InCallUntil: kit.Now + 1}, "b": {InCallUntil: kit.Now}, "c": {InCallUntil: kit.Now + 1}, "e": {IdleSince: 1},
	}})
	w.Write("PUT", contactsPath, `{"users":["a","b","c","d","e"]}`)
	w.Post("/chat/pings", `{"pings":[{"user":"a"},{"user":"b"},{"user":"e"}]}`) // c is grey
	for query, want := range map[string][]string{
		"": {"a", "b", "c", "d", "e"}, "?in_call=true": {"a"}, "?in_call=false": {"b", "c", "d", "e"},
		"?in_call=false&status=green": {"b", "e"}, "?in_call=true&status=grey": {},
	} {
		require.Equal(t, want, kit.Names(w.Get(contactsPath+query)), query)
	}
	page := w.Get(contactsPath + "?in_call=false&limit=1")
	require.Equal(t, []string{"b"}, kit.Names(page))
	next := contactsPath + "?cursor=" + page["next_cursor"].(string)
	require.Equal(t, []string{"c", "d", "e"}, kit.Names(w.Get(next)))
	require.Equal(t, []string{"c", "d", "e"}, kit.Names(w.Get(next+"&in_call=false")))
	w.Fails(problem.InvalidCursor, "GET", next+"&in_call=true", "")
	for _, value := range []string{"", "1", "TRUE", "true&in_call=true"} {
		w.Fails(problem.InvalidParameter, "GET", contactsPath+"?in_call="+value, "")
	}
}

func TestInvalidContacts(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Write("PUT", contactsPath, `{"users":["bob"]}`)
	for method, bad := range map[string]map[problem.Code][]string{
		"PUT": {
			problem.InvalidJSON: {"", "{}", `{"users":null}`, `{"users":"bob"}`, `{"users":[7]}`},
			problem.InvalidUser: {
				`{"users":[null]}`, `{"users":["carol",""]}`, `{"users":["carol","a\u0000b"]}`, `{"users":["carol","alice"]}`,
			},
			problem.UnknownField: {`{"users":["carol"],"add":["dave"]}`},
			problem.BodyTooLarge: {`{"users":["` + strings.Repeat("u", kit.MaxLookupBody) + `"]}`},
		},
		"PATCH": {
			problem.InvalidJSON: {"", `{"add":null}`}, problem.InvalidUser: {`{"add":["carol"],"remove":[""]}`, `{"add":["alice"]}`},
			problem.UnknownField: {`{"users":["carol"]}`},
		},
	} {
		for want, bodies := range bad {
			for _, body := range bodies {
				w.Fails(want, method, contactsPath, body)
			}
		}
	}
	r := w.Fails(problem.InvalidUser, "PUT", contactsPath, `{"users":["carol","alice"]}`)
	require.Contains(t, r["detail"], "index 1: A user cannot be their own contact.")
	require.Equal(t, []string{"bob"}, kit.Names(w.Get(contactsPath)), "nothing had an effect")
	for query, want := range map[string]problem.Code{
		"?status=online": problem.InvalidParameter, "?limit=0": problem.InvalidParameter,
		"?limit=1001":   problem.InvalidParameter,
		"?order=newest": problem.UnknownParameter, "?as_of=soon": problem.InvalidTime,
		"?green=10m": problem.InvalidThresholds,
		"?green=0":   problem.InvalidDuration,
	} {
		w.Fails(want, "GET", contactsPath+query, "")
	}
}

// TestContactsAreCharged: each 500 contacts that a change names count as a request.
func TestContactsAreCharged(t *testing.T) {
	t.Parallel()
	for method, field := range map[string]string{"PUT": "users", "PATCH": "remove"} {
		w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy,
			func(c *api.Config) { c.Limits = limit.Limits{Caller: 4} })
		for named, cost := range map[int]int{500: 1, 501: 2, 2500: 5, 5000: 10} {
			body := fmt.Sprintf(`{%q:["u%s"]}`, field, strings.Repeat(`","u`, named-1))
			address := kit.ForwardedFor(fmt.Sprint("203.0.113.", cost))
			w.Send(method, contactsPath, body, address).Is(t, http.StatusNoContent)
			for range 20 - cost { // a burst is of 20
				w.Send("GET", contactsPath, "", address).Is(t, http.StatusOK)
			}
			w.Fails(problem.RateLimited, "GET", contactsPath, "", address)
		}
		w.Send(method, contactsPath, `{"unknown":[]}`, kit.ForwardedFor("203.0.113.99")).Is(t, http.StatusBadRequest)
	}
}

// TestContactsAreChargedAsLookups: each thousand contacts that a filter reads count as a request.
func TestContactsAreChargedAsLookups(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy,
		func(c *api.Config) { c.Limits = limit.Limits{Caller: 2} })
	ids := make([]string, store.MaxContacts)
	for i := range ids {
		ids[i] = fmt.Sprintf("u%04d", i)
	}
	require.NoError(t, w.Store.SetContacts(context.Background(), "chat", "alice", ids))
	for range 10 { // a burst is of 10
		w.Send("GET", contactsPath, "", kit.ForwardedFor("203.0.113.7")).Is(t, http.StatusOK)
	}
	w.Fails(problem.RateLimited, "GET", contactsPath, "", kit.ForwardedFor("203.0.113.7"))
	const filtered = contactsPath + "?status=green"
	w.Send("GET", filtered, "", kit.ForwardedFor("203.0.113.8")).Is(t, http.StatusOK)
	for range 4 {
		w.Send("GET", contactsPath, "", kit.ForwardedFor("203.0.113.8")).Is(t, http.StatusOK)
	}
	w.Fails(problem.RateLimited, "GET", filtered, "", kit.ForwardedFor("203.0.113.8"))
}
