package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	w.fails(codeInvalidCursor, http.MethodGet, "/other/changes?cursor="+cursorOf(first), "")
}

// TestPollsOfEveryone checks that those begin without users, and return many changes in parts.
func TestPollsOfEveryone(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/alice/ping", "")
	first := w.get("/chat/changes")
	require.Empty(t, statuses(first))
	w.post("/chat/pings", `{"pings":[{"user":"bob"},{"user":"carol"},{"user":"alice"},{"user":"dave"}]}`)
	cursor := cursorOf(first)
	w.polled("/chat/changes?limit=1000", cursor, map[string]string{"bob": "green", "carol": "green", "dave": "green"})
	var all []string
	for range 3 { // they are in memory now
		part := w.get("/chat/changes?limit=1&cursor=" + cursor)
		require.Len(t, statuses(part), 1)
		all, cursor = append(all, statuses(part)...), cursorOf(part)
		if more := len(all) < 3; more {
			require.Equal(t, true, part["more"])
			require.EqualValues(t, 0, part["poll_after_ms"])
		} else {
			require.Equal(t, false, part["more"])
		}
	}
	require.ElementsMatch(t, []string{"bob green", "carol green", "dave green"}, all)
	w.send(http.MethodDelete, "/chat/users/bob", "")
	found, _ := w.polled("/chat/changes?limit=1000", cursor, map[string]string{"bob": "grey"})
	require.Nil(t, found[0]["last_seen"], "forgotten")
}

// TestPollsByPost checks the parameters in the body.
func TestPollsByPost(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	first := w.post("/chat/changes", `{"users":["alice","bob"],"limit":10,"wait":"1s"}`)
	require.Equal(t, []string{"alice grey", "bob grey"}, statuses(first), "it does not wait")
	require.EqualValues(t, 125, first["poll_after_ms"])
	nobody := w.post("/chat/changes", `{"users":[]}`)
	require.Empty(t, statuses(nobody))
	w.post("/chat/users/alice/ping", "")
	everyone := w.post("/chat/changes", `{"wait":"30s","cursor":"`+cursorOf(nobody)+`"}`)
	require.Equal(t, []string{"alice green"}, statuses(everyone))
	require.Empty(t, statuses(w.post("/chat/changes", `{"users":[],"cursor":"`+cursorOf(nobody)+`"}`)))
	for body, want := range map[string]code{
		``: codeInvalidJSON, `{"users":"alice"}`: codeInvalidJSON, `{"cursor":["a"]}`: codeInvalidJSON,
		`{"limit":{}}`: codeInvalidJSON, `{"wait":true}`: codeInvalidJSON, `{"user":["alice"]}`: codeUnknownField,
		`{"users":[""]}`: codeInvalidUser, `{"cursor":""}`: codeInvalidCursor, `{"limit":"x"}`: codeInvalidParameter,
		`{"users":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`: codeTooManyItems,
	} {
		w.fails(want, http.MethodPost, "/chat/changes", body)
	}
	w.fails(codeUnknownParameter, http.MethodPost, "/chat/changes?limit=1", `{}`)
}

func TestInvalidPolls(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	for query, want := range map[string]code{
		"users=alice": codeUnknownParameter, "limit=0": codeInvalidParameter, "limit=1001": codeInvalidParameter,
		"wait=51s": codeInvalidDuration, "wait=-1s": codeInvalidDuration, "wait=x": codeInvalidDuration,
		"cursor=": codeInvalidCursor, "cursor=AAAA": codeInvalidCursor, "user=": codeInvalidUser,
		strings.Repeat("user=alice&", 101): codeTooManyItems, "as_of=1": codeUnknownParameter,
	} {
		w.fails(want, http.MethodGet, "/chat/changes?"+query, "")
		w.fails(want, http.MethodGet, "/chat/changes?"+query, "", "Accept: text/event-stream")
	}
	w.fails(codeInvalidCursor, http.MethodGet, "/chat/changes", "", "Accept: text/event-stream", "Last-Event-ID: x")
	w.get("/chat/changes?wait=0")
	w.get("/chat/changes?wait=0s")
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
	for _, accept := range []string{"*/*", "text/event-stream"} {
		w.fails(codeFeedUnavailable, http.MethodGet, "/chat/changes?user=alice", "", "Accept: "+accept)
	}
	w = newTestServer(t, fileStore(t), func(c *Config) {
		c.Feeds = feed.New(feed.Options{
			Settings: func(string) feed.Settings { return feed.Settings{Mode: feed.Off} },
		})
	})
	w.reload(func(c *Config) { c.Feeds = nil })
	w.fails(codeFeedUnavailable, http.MethodGet, "/chat/changes", "")
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
	w.fails(codeOverloaded, http.MethodGet, "/chat/changes?user=a&user=b&user=c&user=d", "")
}
