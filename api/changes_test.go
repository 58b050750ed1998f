package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestPolls goes through polls of some users: a snapshot, the changes since, and nothing.
func TestPolls(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/bob/ping", "")
	first := w.get("/chat/changes?user=alice&user=bob&user=alice")
	require.Equal(t, []string{"alice grey", "bob green"}, statuses(first), "each once, in the order of the request")
	require.Equal(t, false, first["reset"])
	require.Equal(t, false, first["more"])
	require.EqualValues(t, 4500, first["poll_after_ms"], "0.9 × 5 seconds")

	w.post("/chat/users/alice/ping", "")
	w.post("/chat/users/bob/leave", "")
	w.post("/chat/users/carol/ping", "")
	const path = "/chat/changes?user=alice&user=bob"
	found, cursor := w.polled(path, cursorOf(first), map[string]string{"alice": "green", "bob": "grey"})
	for _, u := range found {
		require.Nil(t, u["valid_until"], "until the feed says otherwise")
		require.NotNil(t, u["last_seen"])
		require.Equal(t, u["user"] == "bob", u["left"])
	}
	third := w.get(path + "&cursor=" + cursor)
	require.Empty(t, statuses(third))
	require.Equal(t, false, third["reset"])
	w.polled("/chat/changes?user=carol", cursorOf(first), map[string]string{"carol": "green"}) // it names no users
	w.fails(problem.InvalidCursor, "GET", "/other/changes?cursor="+cursorOf(first), "")
}

// TestPollsOfEveryone checks that those begin without users, and return many changes in parts.
func TestPollsOfEveryone(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/alice/ping", "")
	opened := w.get("/chat/changes")
	require.Empty(t, statuses(opened))
	w.post("/chat/pings", `{"pings":[{"user":"bob"},{"user":"carol"},{"user":"alice"},{"user":"dave"}]}`)
	cursor := cursorOf(opened)
	w.polled("/chat/changes?limit=1000", cursor, map[string]string{"bob": "green", "carol": "green", "dave": "green"})
	var all []string
	for range 3 { // they are in memory now
		part := w.get("/chat/changes?limit=1&cursor=" + cursor)
		require.Len(t, statuses(part), 1)
		all, cursor = append(all, statuses(part)...), cursorOf(part)
		require.Equal(t, len(all) < 3, part["more"])
		require.Equal(t, len(all) < 3, part["poll_after_ms"] == 0.)
	}
	require.ElementsMatch(t, []string{"bob green", "carol green", "dave green"}, all)
	w.send("DELETE", "/chat/users/bob", "")
	found, _ := w.polled("/chat/changes?limit=1000", cursor, map[string]string{"bob": "grey"})
	require.Nil(t, found[0]["last_seen"], "forgotten")
}

// TestPollsByPost checks the parameters in the body.
func TestPollsByPost(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/carol/ping", "") // the namespace exists
	opened := w.post("/chat/changes", `{"users":["alice","bob"],"limit":10,"wait":"1s"}`)
	require.Equal(t, []string{"alice grey", "bob grey"}, statuses(opened), "it does not wait")
	require.EqualValues(t, 125, opened["poll_after_ms"])
	nobody := w.post("/chat/changes", `{"users":[]}`)
	require.Empty(t, statuses(nobody))
	w.post("/chat/users/alice/ping", "")
	everyone := w.post("/chat/changes", `{"wait":"30s","cursor":"`+cursorOf(nobody)+`"}`)
	require.Equal(t, []string{"alice green"}, statuses(everyone))
	require.Empty(t, statuses(w.post("/chat/changes", `{"users":[],"cursor":"`+cursorOf(nobody)+`"}`)))
}

func TestInvalidPolls(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	for query, want := range map[string]problem.Code{
		"users=alice": problem.UnknownParameter, "limit=0": problem.InvalidParameter,
		"limit=1001": problem.InvalidParameter,
		"wait=51s":   problem.InvalidDuration, "wait=-1s": problem.InvalidDuration, "wait=x": problem.InvalidDuration,
		"cursor=": problem.InvalidCursor, "cursor=AAAA": problem.InvalidCursor, "user=": problem.InvalidUser,
		strings.Repeat("user=alice&", 101): problem.TooManyItems, "as_of=1": problem.UnknownParameter,
		"contacts_of=ann&user=bob": problem.InvalidParameter, "contacts_of=": problem.InvalidUser,
		"contacts_of=a%00":               problem.InvalidUser,
		"contacts_of=ann&contacts_of=bo": problem.InvalidParameter,
	} {
		w.fails(want, "GET", "/chat/changes?"+query, "")
		w.fails(want, "GET", "/chat/changes?"+query, "", acceptEvents)
	}
	w.fails(problem.InvalidCursor, "GET", "/chat/changes", "", acceptEvents, "Last-Event-ID: x")
	w.get("/chat/changes?wait=0")
	w.get("/chat/changes?wait=0s")
	for body, want := range map[string]problem.Code{
		``: problem.InvalidJSON, `{"users":"alice"}`: problem.InvalidJSON, `{"cursor":["a"]}`: problem.InvalidJSON,
		`{"limit":{}}`: problem.InvalidJSON, `{"wait":true}`: problem.InvalidJSON, `{"user":["alice"]}`: problem.UnknownField,
		`{"users":[""]}`: problem.InvalidUser, `{"cursor":""}`: problem.InvalidCursor, `{"limit":"x"}`: problem.InvalidParameter,
		`{"users":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`: problem.TooManyItems,
		`{"contacts_of":"ann","users":[]}`:                    problem.InvalidParameter, `{"contacts_of":""}`: problem.InvalidUser,
	} {
		w.fails(want, "POST", "/chat/changes", body)
	}
	w.fails(problem.UnknownParameter, "POST", "/chat/changes?limit=1", `{}`)
}

// TestUnknownPlaces checks that a cursor with places that no store has given, such as those of another store or of long
// ago, is a reset, with all users followed.
func TestUnknownPlaces(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/alice/ping", "")
	for _, places := range [][]store.Place{{""}, {"x"}, {"x", "y"}, {"abc-1"}, slices.Repeat([]store.Place{"1-0:1"}, 64)} {
		cursor := changesCursor("chat", places)
		r := w.get("/chat/changes?user=alice&user=bob&cursor=" + cursor)
		require.Equal(t, true, r["reset"], places)
		require.Equal(t, []string{"alice green", "bob grey"}, statuses(r))
		after := w.get("/chat/changes?user=alice&user=bob&cursor=" + cursorOf(r))
		require.Equal(t, false, after["reset"])
		require.Empty(t, statuses(after))
		r = w.get("/chat/changes?cursor=" + cursor)
		require.Equal(t, true, r["reset"], "everyone")
		require.Empty(t, statuses(r))
	}
}

// TestNoFeed checks the response for a namespace that has no feed.
func TestNoFeed(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t, func(c *Config) { c.Settings.Changes = feed.Off })
	for _, accept := range []string{"Accept: */*", acceptEvents} {
		w.fails(problem.FeedUnavailable, "GET", "/chat/changes?user=alice", "", accept)
	}
	w.reload(func(c *Config) { c.Feeds = nil })
	w.fails(problem.FeedUnavailable, "GET", "/chat/changes", "")
}

// TestTooManyWatches checks that a server that follows as many users as it can refuses more, and that those of requests
// that ended do not count.
func TestTooManyWatches(t *testing.T) {
	t.Parallel()
	s := fileStore(t)
	w := newTestServer(t, s, live(s), func(c *Config) { c.Feeds = followedUpTo(t, s, c.Settings, 3) })
	for range 5 {
		w.get("/chat/changes?user=a&user=b&user=c")
	}
	w.fails(problem.Overloaded, "GET", "/chat/changes?user=a&user=b&user=c&user=d", "")
}

// TestChangesMetrics checks that requests that wait are counted apart from others while they do, and that the lag of a
// change that a client waited for is observed.
func TestChangesMetrics(t *testing.T) {
	s := fileStore(t)
	require.NoError(t, s.Register(t.Context(), []string{"chat"}))
	w, registry := newMeteredServer(t, s, live(s))
	r := w.follow("GET", "/chat/changes?user=alice", "")
	first := r.changes()
	polled := w.later("GET", "/chat/changes?user=alice&wait=50s&cursor="+first.id, "")
	waiting := func() bool {
		open := samples(t, registry, "lastseen_changes_streams")
		return open["long_poll"] == 1 && open["sse"] == 1 &&
			samples(t, registry, "lastseen_http_requests_in_progress")[""] == 0
	}
	await(t, waiting)
	w.post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, statuses(r.changes().data))
	require.Equal(t, http.StatusOK, (<-polled).status)
	r.closed()
	await(t, func() bool {
		return len(samples(t, registry, "lastseen_changes_streams")) == 0 &&
			samples(t, registry, "lastseen_changes_delivery_lag_seconds")[""] == 2
	})
}

// chargedServer limits an address to 20 requests at once, or half of them for users.
func chargedServer(t *testing.T) *testServer {
	t.Helper()
	return newLiveServer(t, behindProxy, func(c *Config) { c.Limits = limit.Limits{Caller: 4} })
}

// TestWatchesAreCharged checks that users who are followed from the beginning count as requests, and contacts do, and
// that those of a request that continues do not. A cursor that proves nothing does not help: anyone can make one.
func TestWatchesAreCharged(t *testing.T) {
	t.Parallel()
	w := chargedServer(t)
	require.NoError(t, w.store.SetContacts(t.Context(), "chat", "ann", strings.Split("abcdefghijkl", "")))
	reset := "&cursor=" + changesCursor("chat", []store.Place{"x"})
	const twelve = "/chat/changes?user=a&user=b&user=c&user=d&user=e&user=f&user=g&user=h&user=i&user=j&user=k&user=l"
	for i, path := range []string{twelve, "/chat/changes?contacts_of=ann"} {
		caller, other := from(fmt.Sprintf("203.0.113.%d", i)), from(fmt.Sprintf("198.51.100.%d", i))
		opened := w.send("GET", path, "", caller).is(t, http.StatusOK, "half of a burst").json(t)
		w.fails(problem.RateLimited, "GET", path, "", caller)
		w.fails(problem.RateLimited, "GET", path+reset, "", caller)
		for range 3 {
			w.send("GET", path+"&cursor="+cursorOf(opened), "", other).is(t, http.StatusOK)
		}
	}
	waited := "&cursor=" + changesCursor("chat", []store.Place{"-"})
	for i, header := range []string{"Accept: */*", acceptEvents} {
		for k, made := range []string{reset, waited} {
			caller := from(fmt.Sprintf("192.0.2.%d", 2*i+k))
			w.send("HEAD", twelve+made, "", caller, header).is(t, http.StatusOK)
			w.fails(problem.RateLimited, "GET", twelve+made, "", caller, header)
			w.fails(problem.RateLimited, "GET", twelve+made+"&wait=1s", "", caller, header)
		}
	}
}

func TestRounds(t *testing.T) {
	var r rounds
	r.next() // before the first use
	first := r.current()
	require.NoError(t, first.Err())
	require.Same(t, first, r.current())
	r.next()
	require.Error(t, first.Err())
	require.NoError(t, r.current().Err())
}

// TestWatchCounts checks that a user with a token follows at most 5,000 users over all requests, and that nothing is
// kept of users who follow none.
func TestWatchCounts(t *testing.T) {
	var w watchCounts
	alice := &auth.Caller{Kind: auth.ByToken, Issuer: "issuer", Name: "alice"}
	first, err := w.take(alice, 3000)
	require.NoError(t, err)
	second, err := w.take(alice, store.MaxWatched-3000)
	require.NoError(t, err)
	_, err = w.take(alice, 1)
	requireCode(t, problem.RateLimited, err)
	for _, other := range []*auth.Caller{
		{Kind: auth.ByToken, Issuer: "another", Name: "alice"}, {Kind: auth.ByToken, Issuer: "issuer", Name: "bob"},
	} {
		giveBack, err := w.take(other, store.MaxWatched)
		require.NoError(t, err)
		giveBack()
	}
	for _, unlimited := range []*auth.Caller{nil, {Kind: auth.Anonymous}, {Kind: auth.ByKey, Name: "service"}} {
		for range 3 {
			_, err := w.take(unlimited, store.MaxWatched)
			require.NoError(t, err)
		}
	}
	require.Len(t, w.counts, 1)
	first()
	third, err := w.take(alice, 3000)
	require.NoError(t, err)
	second()
	third()
	require.Empty(t, w.counts)
}

// TestFirstLeave: a client learns that a user left whom nobody had seen before, also if the user came and left again
// within one response. Responses omit who ends as they began.
func TestFirstLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.reload(func(c *Config) { live(c.Store)(c) })
		cursor := cursorOf(w.get("/chat/changes?user=alice"))
		for _, event := range []string{"leave", "ping", "leave"} {
			w.post("/chat/users/alice/"+event, "")
		}
		changed := w.get("/chat/changes?user=alice&wait=10s&cursor=" + cursor)
		require.Equal(t, []string{"alice"}, names(changed))
		require.Equal(t, true, changed["users"].([]any)[0].(map[string]any)["left"])
	})
}

// TestWalkOfEveryone walks as docs/changes.md says while users ping: everyone is found, also those who move past the
// end of the list, or further back in it by a ping that arrives late.
func TestWalkOfEveryone(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.reload(func(c *Config) { live(c.Store)(c) })
		ping := func(user string, age float64) {
			w.post("/chat/users/"+user+"/ping", fmt.Sprintf(`{"at":%f}`, float64(testNow)/1000-age))
		}
		var all []string
		for i := range 9 {
			all = append(all, fmt.Sprint("u", i))
			ping(all[i], float64(20-i))
		}
		cursor := cursorOf(w.get("/chat/changes"))
		found := map[string]bool{}
		// list reads a list page by page, and returns the time of the first page, after which something happens.
		list := func(query string, happens func()) string {
			w.store.pass(10)
			page := w.get("/chat/users?status=green&status=yellow&order=oldest&limit=3" + query)
			first := page["as_of"].(string)
			for pages := 1; ; pages++ {
				for _, user := range names(page) {
					found[user] = true
				}
				next, more := page["next_cursor"].(string)
				if !more {
					return first
				}
				if pages == 1 {
					w.store.pass(10)
					happens()
				}
				page = w.get("/chat/users?limit=3&cursor=" + next)
			}
		}
		first := list("", func() {
			ping("u4", 12.5) // late
			for _, user := range []string{"u3", "u5", "u6", "u7"} {
				w.post("/chat/users/"+user+"/ping", "")
			}
		})
		require.ElementsMatch(t, strings.Fields("u0 u1 u2 u4 u8"), slices.Collect(maps.Keys(found)), "one list is not enough")
		second := list("&from="+first, func() { w.post("/chat/users/u7/ping", "") }) // it has two pages
		list("&from="+second, func() { t.Error("the list has another page") })
		require.ElementsMatch(t, all, slices.Collect(maps.Keys(found)))
		require.Empty(t, names(w.get("/chat/changes?cursor="+cursor)), "they were green, and are")
	})
}
