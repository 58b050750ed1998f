package api

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEventStream goes through a stream of some users: a snapshot, changes, and a stream that continues after it.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/alice/ping", "")
	r := w.follow(http.MethodGet, "/chat/changes?user=alice&user=bob", "")
	first := r.changes()
	require.Equal(t, []string{"2000"}, r.retry, "1 to 3 seconds, before the first event")
	require.Equal(t, eventChanges, first.name)
	require.Equal(t, []string{"alice green", "bob grey"}, statuses(first.data))
	require.Equal(t, first.id, cursorOf(first.data))
	require.Equal(t, false, first.data["more"])
	require.NotEmpty(t, first.data["as_of"])

	w.post("/chat/users/carol/ping", "") // not followed
	w.post("/chat/users/bob/ping", "")
	second := r.changes()
	require.Equal(t, []string{"bob green"}, statuses(second.data))
	r.closed()

	w.post("/chat/users/bob/leave", "")
	// The header is that of a browser that connects again. Its URL has the cursor of the first time.
	r = w.follow(http.MethodPost, "/chat/changes", `{"users":["alice","bob"],"cursor":"`+first.id+`"}`,
		"Last-Event-ID: "+second.id)
	for {
		e, ok := r.next()
		require.True(t, ok)
		if e.name == eventChanges { // ticks can precede it
			require.Equal(t, []string{"bob grey"}, statuses(e.data))
			break
		}
		require.Equal(t, eventTick, e.name)
		require.Equal(t, e.id, cursorOf(e.data))
	}
}

// TestEventsOfEveryone checks that the stream begins with a place.
func TestEventsOfEveryone(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/alice/ping", "")
	r := w.follow(http.MethodGet, "/chat/changes", "")
	first := r.changes()
	require.Empty(t, statuses(first.data))
	require.NotEmpty(t, first.id)
	w.post("/chat/users/zoe/ping", "")
	require.Equal(t, []string{"zoe green"}, statuses(r.changes().data))
}

// TestLargeEvents checks that a snapshot and a reset of many users come in parts, and that a client which is cut off in
// between gets all of them again.
func TestLargeEvents(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	users := make([]string, 1000)
	for i := range users {
		users[i] = strconv.Itoa(i)
	}
	body := `{"users":["` + strings.Join(users, `","`) + `"]}`
	r := w.follow(http.MethodPost, "/chat/changes", body)
	one, two := r.changes(), r.changes()
	require.Equal(t, eventChanges, one.name)
	require.Empty(t, one.id, "there is nothing to continue from")
	require.NotContains(t, one.data, "cursor")
	require.Equal(t, true, one.data["more"])
	require.Equal(t, eventChanges, two.name)
	require.NotEmpty(t, two.id)
	require.Equal(t, false, two.data["more"])
	require.Equal(t, users, append(names(one.data), names(two.data)...))

	old := changesCursor("chat", nil)
	require.Equal(t, http.StatusBadRequest, w.send(http.MethodGet, "/chat/changes?cursor="+old, "").status)
	old = changesCursor("chat", append(placesOf(t, two.id), "of another store"))
	for range 2 {
		r = w.follow(http.MethodPost, "/chat/changes", body, "Last-Event-ID: "+old)
		one, two = r.changes(), r.changes()
		require.Equal(t, eventReset, one.name)
		require.Equal(t, old, one.id, "whoever continues from here gets a reset")
		require.Equal(t, old, cursorOf(one.data))
		require.Equal(t, eventChanges, two.name, "in addition to the first part")
		require.Equal(t, users, append(names(one.data), names(two.data)...))
		r.closed()
		old = one.id
	}
	r = w.follow(http.MethodPost, "/chat/changes", body, "Last-Event-ID: "+two.id)
	w.post("/chat/users/7/ping", "")
	require.Equal(t, []string{"7 green"}, statuses(r.changes().data))
}

// TestEventsAreNotKept checks the header for proxies, that the stream is not compressed, and that HEAD does not wait.
func TestEventsAreNotKept(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	for _, gzip := range []string{"gzip", "identity"} {
		r := w.send(http.MethodHead, "/chat/changes?user=alice&wait=50s", "", "Accept: text/event-stream",
			"Accept-Encoding: "+gzip)
		require.Equal(t, http.StatusOK, r.status)
		require.Equal(t, "no-store, no-transform", r.header.Get("Cache-Control"))
		require.Equal(t, "no", r.header.Get("X-Accel-Buffering"))
		require.Equal(t, "Accept", r.header.Get("Vary"))
		require.Empty(t, r.header.Get("Content-Encoding"))
	}
	r := w.send(http.MethodHead, "/chat/changes?user=alice&wait=50s", "")
	require.Equal(t, http.StatusOK, r.status)
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
}

// TestDrainEndsWaiting checks that a server that stops sends its streams away at different times and responds to long
// polls at once, and that both can still be opened.
func TestDrainEndsWaiting(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	r := w.follow(http.MethodGet, "/chat/changes?user=alice", "")
	first := r.changes()
	polled := make(chan testResponse)
	go func() { polled <- w.send(http.MethodGet, "/chat/changes?user=alice&wait=50s&cursor="+first.id, "") }()
	require.Eventually(t, func() bool { return w.config.Feeds.Stats().Watchers == 2 }, eventually, tick)
	w.config.Shared.Drain()
	_, more := r.next()
	require.False(t, more)
	require.Equal(t, []string{"2000", "5000"}, r.retry, "half of 10 seconds")
	response := (<-polled).json(t)
	require.Empty(t, statuses(response))
	require.EqualValues(t, 5000, response["poll_after_ms"])
	require.Eventually(t, func() bool { return w.config.Feeds.Stats().Watchers == 0 }, eventually, tick)

	r = w.follow(http.MethodGet, "/chat/changes?user=alice", "")
	require.Equal(t, []string{"alice grey"}, statuses(r.changes().data))
	_, more = r.next()
	require.False(t, more)
}

// TestReloadWhileOpening checks that a stream which the configuration before a reload has authorized is checked by the
// new one, also if the reload came before the stream began.
func TestReloadWhileOpening(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	before := w.handler.Load()
	w.reload(func(c *Config) { c.RefuseUnknown = true })
	w.handler.Store(before)
	r := w.follow(http.MethodGet, "/chat/changes?user=alice", "")
	require.Equal(t, []string{"alice grey"}, statuses(r.changes().data))
	_, ok := r.next()
	require.False(t, ok, "before the first tick")
}
