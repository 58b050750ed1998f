package changestests

import (
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
	"github.com/lastseen/lastseen/store/feed"
)

// TestPolls goes through polls of some users: a snapshot, the changes since, and nothing.
func TestPolls(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/users/bob/ping", "")
	first := w.Get("/chat/changes?user=alice&user=bob&user=alice")
	require.Equal(t, []string{"alice grey", "bob green"}, kit.Statuses(first), "each once, in the order of the request")
	require.Equal(t, false, first["reset"])
	require.Equal(t, false, first["more"])
	require.EqualValues(t, 4500, first["poll_after_ms"], "0.9 × 5 seconds")

	w.Post("/chat/users/alice/ping", "")
	w.Post("/chat/users/bob/leave", "")
	w.Post("/chat/users/carol/ping", "")
	const path = "/chat/changes?user=alice&user=bob"
	found, cursor := w.Polled(path, kit.CursorOf(first), map[string]string{"alice": "green", "bob": "grey"})
	for _, u := range found {
		require.Nil(t, u["valid_until"], "until the feed says otherwise")
		require.NotNil(t, u["last_seen"])
		require.Equal(t, u["user"] == "bob", u["left"])
	}
	third := w.Get(path + "&cursor=" + cursor)
	require.Empty(t, kit.Statuses(third))
	require.Equal(t, false, third["reset"])
	w.Polled("/chat/changes?user=carol", kit.CursorOf(first), map[string]string{"carol": "green"}) // it names no users
	w.Fails(problem.InvalidCursor, "GET", "/other/changes?cursor="+kit.CursorOf(first), "")
}

// TestPollsOfEveryone checks that those return many changes in parts.
func TestPollsOfEveryone(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/users/alice/ping", "")
	opened := w.Get("/chat/changes")
	require.Equal(t, []string{"alice green"}, kit.Statuses(opened))
	w.Post("/chat/pings", `{"pings":[{"user":"bob"},{"user":"carol"},{"user":"alice"},{"user":"dave"}]}`)
	cursor := kit.CursorOf(opened)
	w.Polled("/chat/changes?limit=1000", cursor, map[string]string{"bob": "green", "carol": "green", "dave": "green"})
	var all []string
	for range 3 { // they are in memory now
		part := w.Get("/chat/changes?limit=1&cursor=" + cursor)
		require.Len(t, kit.Statuses(part), 1)
		all, cursor = append(all, kit.Statuses(part)...), kit.CursorOf(part)
		require.Equal(t, len(all) < 3, part["more"])
		require.Equal(t, len(all) < 3, part["poll_after_ms"] == 0.)
	}
	require.ElementsMatch(t, []string{"bob green", "carol green", "dave green"}, all)
	w.Send("DELETE", "/chat/users/bob", "")
	found, _ := w.Polled("/chat/changes?limit=1000", cursor, map[string]string{"bob": "grey"})
	require.Nil(t, found[0]["last_seen"], "forgotten")
}

// TestPollsByPost checks the parameters in the body.
func TestPollsByPost(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/users/carol/ping", "") // the namespace exists
	opened := w.Post("/chat/changes", `{"users":["alice","bob"],"limit":10,"wait":"1s"}`)
	require.Equal(t, []string{"alice grey", "bob grey"}, kit.Statuses(opened), "it does not wait")
	require.EqualValues(t, 125, opened["poll_after_ms"])
	nobody := w.Post("/chat/changes", `{"users":[]}`)
	require.Empty(t, kit.Statuses(nobody))
	w.Post("/chat/users/alice/ping", "")
	everyone := w.Post("/chat/changes", `{"wait":"30s","cursor":"`+kit.CursorOf(nobody)+`"}`)
	require.Equal(t, []string{"alice green"}, kit.Statuses(everyone))
	require.Empty(t, kit.Statuses(w.Post("/chat/changes", `{"users":[],"cursor":"`+kit.CursorOf(nobody)+`"}`)))
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
		"contacts_of=a%00": problem.InvalidUser, "status=blue": problem.InvalidParameter,
		"snapshot=x": problem.InvalidParameter, "snapshot=none&user=bob": problem.InvalidParameter,
		"status=green&contacts_of=ann":   problem.InvalidParameter,
		"contacts_of=ann&contacts_of=bo": problem.InvalidParameter,
	} {
		w.Fails(want, "GET", "/chat/changes?"+query, "")
		w.Fails(want, "GET", "/chat/changes?"+query, "", kit.AcceptEvents)
	}
	w.Fails(problem.InvalidCursor, "GET", "/chat/changes", "", kit.AcceptEvents, "Last-Event-ID: x")
	w.Get("/chat/changes?wait=0")
	w.Get("/chat/changes?wait=0s")
	for body, want := range map[string]problem.Code{
		``: problem.InvalidJSON, `{"users":"alice"}`: problem.InvalidJSON, `{"cursor":["a"]}`: problem.InvalidJSON,
		`{"limit":{}}`: problem.InvalidJSON, `{"wait":true}`: problem.InvalidJSON, `{"user":["alice"]}`: problem.UnknownField,
		`{"users":[""]}`: problem.InvalidUser, `{"cursor":""}`: problem.InvalidCursor, `{"limit":"x"}`: problem.InvalidParameter,
		`{"users":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`: problem.TooManyItems,
		`{"snapshot":"x"}`: problem.InvalidParameter, `{"status":["green"],"users":[]}`: problem.InvalidParameter,
		`{"contacts_of":"ann","users":[]}`: problem.InvalidParameter, `{"contacts_of":""}`: problem.InvalidUser,
	} {
		w.Fails(want, "POST", "/chat/changes", body)
	}
	w.Fails(problem.UnknownParameter, "POST", "/chat/changes?limit=1", `{}`)
}

// TestUnknownPositions checks that a cursor with positions that no store has given, such as those of another store or
// of long ago, is a reset, with all users followed.
func TestUnknownPositions(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/users/alice/ping", "")
	for _, positions := range [][]store.Position{{""}, {"x"}, {"x", "y"}, {"abc-1"}, slices.Repeat([]store.Position{"1-0:1"}, 64)} {
		cursor := kit.PositionsCursor(positions...)
		r := w.Get("/chat/changes?user=alice&user=bob&cursor=" + cursor)
		require.Equal(t, true, r["reset"], positions)
		require.Equal(t, []string{"alice green", "bob grey"}, kit.Statuses(r))
		after := w.Get("/chat/changes?user=alice&user=bob&cursor=" + kit.CursorOf(r))
		require.Equal(t, false, after["reset"])
		require.Empty(t, kit.Statuses(after))
		r = w.Get("/chat/changes?cursor=" + cursor)
		require.Equal(t, true, r["reset"], "everyone")
		require.Equal(t, []string{"alice green"}, kit.Statuses(r))
	}
}

// TestNoFeed checks the response for a namespace that has no feed.
func TestNoFeed(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t, func(c *api.Config) { c.Settings.Changes = feed.Off })
	for _, accept := range []string{"Accept: */*", kit.AcceptEvents} {
		w.Fails(problem.FeedUnavailable, "GET", "/chat/changes?user=alice", "", accept)
	}
	w.Reload(func(c *api.Config) { c.Feeds = nil })
	w.Fails(problem.FeedUnavailable, "GET", "/chat/changes", "")
}

// TestChangesMetrics checks that requests that wait are counted apart from others while they do, and that the lag of a
// change that a client waited for is observed.
func TestChangesMetrics(t *testing.T) {
	s := kit.FileStore(t)
	require.NoError(t, s.Register(t.Context(), []string{"chat"}))
	w, registry := apitest.NewMeteredServer(t, s, apitest.WithStoreTime(s))
	r := w.Follow("GET", "/chat/changes?user=alice", "")
	first := r.Changes()
	polled := w.Later("GET", "/chat/changes?user=alice&wait=50s&cursor="+first.ID, "")
	waiting := func() bool {
		open := kit.Samples(t, registry, "lastseen_changes_streams")
		return open["long_poll"] == 1 && open["sse"] == 1 &&
			kit.Samples(t, registry, "lastseen_http_requests_in_progress")[""] == 0
	}
	kit.Await(t, waiting)
	w.Post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, kit.Statuses(r.Changes().Data))
	require.Equal(t, http.StatusOK, (<-polled).Status)
	r.Closed()
	kit.Await(t, func() bool {
		return len(kit.Samples(t, registry, "lastseen_changes_streams")) == 0 &&
			kit.Samples(t, registry, "lastseen_changes_delivery_lag_seconds")[""] == 2
	})
}

// chargedServer limits an address to 20 requests at once, or half of them for users.
func chargedServer(t *testing.T) *apitest.Server {
	t.Helper()
	return newLiveServer(t, apitest.BehindProxy, func(c *api.Config) { c.Limits = limit.Limits{Caller: 4} })
}

// TestWatchesAreCharged checks that users who are followed from the beginning count as requests, and contacts do, and
// that those of a request that continues do not. A cursor that proves nothing does not help: anyone can make one.
func TestWatchesAreCharged(t *testing.T) {
	t.Parallel()
	w := chargedServer(t)
	require.NoError(t, w.Store.SetContacts(t.Context(), "chat", "ann", strings.Split("abcdefghijkl", "")))
	reset := "&cursor=" + kit.PositionsCursor("x")
	const twelve = "/chat/changes?user=a&user=b&user=c&user=d&user=e&user=f&user=g&user=h&user=i&user=j&user=k&user=l"
	for i, path := range []string{twelve, "/chat/changes?contacts_of=ann"} {
		caller, other := kit.ForwardedFor(fmt.Sprintf("203.0.113.%d", i)), kit.ForwardedFor(fmt.Sprintf("198.51.100.%d", i))
		opened := w.Send("GET", path, "", caller).Is(t, http.StatusOK, "half of a burst").JSON(t)
		w.Fails(problem.RateLimited, "GET", path, "", caller)
		w.Fails(problem.RateLimited, "GET", path+reset, "", caller)
		for range 3 {
			w.Send("GET", path+"&cursor="+kit.CursorOf(opened), "", other).Is(t, http.StatusOK)
		}
	}
	waited := "&cursor=" + kit.PositionsCursor("-")
	for i, header := range []string{"Accept: */*", kit.AcceptEvents} {
		for k, made := range []string{reset, waited} {
			caller := kit.ForwardedFor(fmt.Sprintf("192.0.2.%d", 2*i+k))
			w.Send("HEAD", twelve+made, "", caller, header).Is(t, http.StatusOK)
			w.Fails(problem.RateLimited, "GET", twelve+made, "", caller, header)
			w.Fails(problem.RateLimited, "GET", twelve+made+"&wait=1s", "", caller, header)
		}
	}
}

// TestFirstLeave: a client learns that a user left whom nobody had seen before, also if the user came and left again
// within one response. Responses omit who ends as they began.
func TestFirstLeave(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Reload(func(c *api.Config) { apitest.WithStoreTime(c.Store)(c) })
		cursor := kit.CursorOf(w.Get("/chat/changes?user=alice"))
		for _, event := range []string{"leave", "ping", "leave"} {
			w.Post("/chat/users/alice/"+event, "")
		}
		changed := w.Get("/chat/changes?user=alice&wait=10s&cursor=" + cursor)
		require.Equal(t, []string{"alice"}, kit.Names(changed))
		require.Equal(t, true, changed["users"].([]any)[0].(map[string]any)["left"])
	})
}

// TestSnapshotOfEveryone: the first response to a client that follows everyone begins pages of all users, which the
// changes are part of.
func TestSnapshotOfEveryone(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		w.Reload(func(c *api.Config) { apitest.WithStoreTime(c.Store)(c) })
		all := map[string]string{}
		for i := range 300 { // more than Redis returns at once
			user := fmt.Sprint("u", i)
			all[user] = "green"
			w.Post("/chat/users/"+user+"/ping", "")
		}
		found := map[string]string{}
		// take applies responses until one has no more.
		take := func() (cursor string) {
			for r := w.Get("/chat/changes?limit=100"); ; r = w.Get("/chat/changes?limit=100&cursor=" + cursor) {
				for _, u := range kit.Statuses(r) {
					user, _, _ := strings.Cut(u, " ") // the clocks of Redis and of the test differ
					found[user] = "green"
				}
				if cursor = kit.CursorOf(r); r["more"] == false {
					return cursor
				}
				w.Post("/chat/users/late/ping", "")
			}
		}
		cursor := take()
		delete(found, "late")
		require.Equal(t, all, found)
		w.Post("/chat/users/later/leave", "")
		r := w.Get("/chat/changes?wait=10s&cursor=" + cursor)
		require.Equal(t, []string{"later grey"}, kit.Statuses(r))
		require.Equal(t, false, r["reset"])
	})
}

// TestSnapshotWithStatuses: the snapshot of everyone has only users with the statuses that are asked for, or nobody.
func TestSnapshotWithStatuses(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	w.Post("/chat/users/bob/leave", "")
	require.Equal(t, []string{"bob grey"}, kit.Statuses(w.Get("/chat/changes?status=grey")))
	both := w.Post("/chat/changes", `{"status":["green","grey"],"limit":1}`)
	require.ElementsMatch(t, []string{"alice green", "bob grey"}, kit.Statuses(both), "at once, since they are few")
	require.Equal(t, false, both["more"])
	none := w.Post("/chat/changes", `{"snapshot":"none"}`)
	require.Empty(t, kit.Statuses(none))
	require.Equal(t, false, none["more"])
	w.Post("/chat/users/bob/ping", "")
	w.Polled("/chat/changes?status=grey", kit.CursorOf(none), map[string]string{"bob": "green"})
}
