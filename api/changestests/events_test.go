package changestests

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// TestEventStream goes through a stream of some users: a snapshot, changes, and a stream that continues after it.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/users/alice/ping", "")
	r := w.Follow("GET", "/chat/changes?user=alice&user=bob", "")
	first := r.Changes()
	require.Equal(t, []string{"2000"}, r.Retry, "1 to 3 seconds, before the first event")
	require.Equal(t, "changes", first.Name)
	require.Equal(t, []string{"alice green", "bob grey"}, kit.Statuses(first.Data))
	require.Equal(t, first.ID, kit.CursorOf(first.Data))
	require.Equal(t, false, first.Data["more"])
	require.NotEmpty(t, first.Data["as_of"])

	w.Post("/chat/users/carol/ping", "") // not followed
	w.Post("/chat/users/bob/ping", "")
	second := r.Changes()
	require.Equal(t, []string{"bob green"}, kit.Statuses(second.Data))
	r.Closed()

	w.Post("/chat/users/bob/leave", "")
	// The header is that of a browser that connects again. Its URL has the cursor of the first time.
	r = w.Follow("POST", "/chat/changes", `{"users":["alice","bob"],"cursor":"`+first.ID+`"}`,
		"Last-Event-ID: "+second.ID)
	for {
		e, ok := r.Next()
		require.True(t, ok)
		if e.Name == "changes" { // ticks can precede it
			require.Equal(t, []string{"bob grey"}, kit.Statuses(e.Data))
			break
		}
		require.Equal(t, "tick", e.Name)
		require.Equal(t, e.ID, kit.CursorOf(e.Data))
	}
}

// TestPagesAreCharged: each page of everyone but the first counts as a request. A stream waits if they are too many.
func TestPagesAreCharged(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t, apitest.BehindProxy, func(c *api.Config) {
		c.Limits, c.Now = limit.Limits{Caller: 20}, time.Now // bursts of 100
	})
	const users = 130
	for i := range users {
		w.Post(fmt.Sprintf("/chat/users/u%d/ping", i), "")
	}
	begun := time.Now()
	r := w.Follow("GET", "/chat/changes?limit=1", "", kit.ForwardedFor("203.0.113.7"))
	for page := range users {
		e := r.Changes()
		require.Len(t, kit.Statuses(e.Data), 1)
		require.Equal(t, page < users-1, e.Data["more"])
	}
	require.Greater(t, time.Since(begun), (users-100)*time.Second/20-time.Second/2)
}

// TestPagesEnd: a stream that continues before a page without users sends it, since it is the last one.
func TestPagesEnd(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.Post("/chat/users/alice/ping", "")
	cursor := kit.CursorOf(w.Get("/chat/changes?snapshot=none"))
	content, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	position := string(content[11:]) // after a checksum, the version, and the numbers of positions and of bytes
	last := w.Follow("GET", "/chat/changes?status=yellow&cursor="+kit.PositionsCursor(store.Position(position), "scan:"), "").Changes()
	require.Empty(t, kit.Statuses(last.Data))
	require.Equal(t, false, last.Data["more"])
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
	r := w.Follow("POST", "/chat/changes", body)
	one, two := r.Changes(), r.Changes()
	require.Equal(t, "changes", one.Name)
	require.Equal(t, one.ID, kit.CursorOf(one.Data))
	require.Equal(t, true, one.Data["more"])
	require.Equal(t, "changes", two.Name)
	require.NotEmpty(t, two.ID)
	require.Equal(t, false, two.Data["more"])
	require.Equal(t, users, append(kit.Names(one.Data), kit.Names(two.Data)...))

	old := kit.PositionsCursor()
	w.Send("GET", "/chat/changes?cursor="+old, "").Is(t, http.StatusBadRequest)
	old = kit.PositionsCursor(append(positionsOf(t, two.ID), "of another store")...)
	for range 2 {
		r = w.Follow("POST", "/chat/changes", body, "Last-Event-ID: "+old)
		one, two = r.Changes(), r.Changes()
		require.Equal(t, "reset", one.Name)
		require.Equal(t, one.ID, kit.CursorOf(one.Data), "whoever continues from here gets a reset")
		require.Equal(t, "changes", two.Name, "in addition to the first part")
		require.Equal(t, users, append(kit.Names(one.Data), kit.Names(two.Data)...))
		r.Closed()
		old = one.ID
	}
	r = w.Follow("POST", "/chat/changes", body, "Last-Event-ID: "+two.ID)
	w.Post("/chat/users/7/ping", "")
	require.Equal(t, []string{"7 green"}, kit.Statuses(r.Changes().Data))
}

// TestEventsAreNotKept checks the header for proxies, that the stream is not compressed, and that HEAD does not wait.
func TestEventsAreNotKept(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	for _, gzip := range []string{"gzip", "identity"} {
		r := w.Send("HEAD", "/chat/changes?user=alice&wait=50s", "", "Accept: text/event-stream",
			"Accept-Encoding: "+gzip).Is(t, http.StatusOK)
		require.Equal(t, "no-store, no-transform", r.Header.Get("Cache-Control"))
		require.Equal(t, "no", r.Header.Get("X-Accel-Buffering"))
		require.Equal(t, "Accept", r.Header.Get("Vary"))
		require.Empty(t, r.Header.Get("Content-Encoding"))
	}
	r := w.Send("HEAD", "/chat/changes?user=alice&wait=50s", "").Is(t, http.StatusOK)
	require.Equal(t, "no-store", r.Header.Get("Cache-Control"))
}

// TestDrainEndsWaiting checks that a server that stops sends its streams away at different times and responds to long
// polls at once, and that both can still be opened.
func TestDrainEndsWaiting(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	r := w.Follow("GET", "/chat/changes?user=alice", "")
	first := r.Changes()
	polled := w.Later("GET", "/chat/changes?user=alice&wait=50s&cursor="+first.ID, "")
	kit.Await(t, func() bool { return w.Config.Feeds.Stats().Watchers == 2 })
	w.Config.Shared.Drain()
	_, more := r.Next()
	require.False(t, more)
	require.Equal(t, []string{"2000", "5000"}, r.Retry, "half of 10 seconds")
	response := (<-polled).JSON(t)
	require.Empty(t, kit.Statuses(response))
	require.EqualValues(t, 5000, response["poll_after_ms"])
	kit.Await(t, func() bool { return w.Config.Feeds.Stats().Watchers == 0 })

	r = w.Follow("GET", "/chat/changes?user=alice", "")
	require.Equal(t, []string{"alice grey"}, kit.Statuses(r.Changes().Data))
	_, more = r.Next()
	require.False(t, more)
}

// TestReloadWhileOpening checks that a stream which the configuration before a reload has authorized is checked by the
// new one, also if the reload came before the stream began.
func TestReloadWhileOpening(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	before := w.Handler.Load()
	w.Reload(func(c *api.Config) { c.RefuseUnknown = true })
	w.Handler.Store(before)
	r := w.Follow("GET", "/chat/changes?user=alice", "")
	require.Equal(t, []string{"alice grey"}, kit.Statuses(r.Changes().Data))
	_, ok := r.Next()
	require.False(t, ok, "before the first tick")
}

// positionsOf returns the positions that a cursor of changes has.
func positionsOf(t *testing.T, cursor string) []store.Position {
	t.Helper()
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	require.Greater(t, len(sealed), 9)
	positions, rest := []store.Position{}, sealed[9:] // after the checksum and the version
	cut := func() uint64 {
		n, size := binary.Uvarint(rest)
		require.Positive(t, size)
		rest = rest[size:]
		return n
	}
	for range cut() {
		length := cut()
		positions, rest = append(positions, store.Position(rest[:length])), rest[length:]
	}
	require.Empty(t, rest)
	return positions
}
