package changestests

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
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
	require.Empty(t, one.ID, "there is nothing to continue from")
	require.NotContains(t, one.Data, "cursor")
	require.Equal(t, true, one.Data["more"])
	require.Equal(t, "changes", two.Name)
	require.NotEmpty(t, two.ID)
	require.Equal(t, false, two.Data["more"])
	require.Equal(t, users, append(kit.Names(one.Data), kit.Names(two.Data)...))

	old := kit.PlacesCursor()
	w.Send("GET", "/chat/changes?cursor="+old, "").Is(t, http.StatusBadRequest)
	old = kit.PlacesCursor(append(placesOf(t, two.ID), "of another store")...)
	for range 2 {
		r = w.Follow("POST", "/chat/changes", body, "Last-Event-ID: "+old)
		one, two = r.Changes(), r.Changes()
		require.Equal(t, "reset", one.Name)
		require.Equal(t, old, one.ID, "whoever continues from here gets a reset")
		require.Equal(t, old, kit.CursorOf(one.Data))
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

// knowledge is what a client knows about users. It notes changes that are none.
type knowledge struct {
	mu      sync.Mutex
	users   map[string]string
	repeats []string
	resets  int
}

// apply applies a response or the data of an event.
func (k *knowledge) apply(data map[string]any, reset bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if reset {
		k.resets++
	}
	for _, u := range data["users"].([]any) {
		u := u.(map[string]any)
		user, shown := u["user"].(string), fmt.Sprint(u["status"], u["left"])
		if k.users[user] == shown && !reset {
			k.repeats = append(k.repeats, user+" "+shown)
		}
		k.users[user] = shown
	}
}

func (k *knowledge) is(want map[string]string) bool {
	return kit.Locked(&k.mu, func() bool { return maps.Equal(k.users, want) })
}

// walker is a client that follows users by all transports on all servers, and is cut off at random.
type walker struct {
	knowledge
	t       *testing.T
	random  *rand.Rand
	servers []*apitest.Server
	query   string
	cursor  string
}

// step uses one transport on one server for a while.
func (w *walker) step() {
	ctx, cut := context.WithTimeout(context.Background(), time.Duration(w.random.IntN(300))*time.Millisecond)
	defer cut()
	server := w.servers[w.random.IntN(len(w.servers))]
	switch w.random.IntN(3) {
	case 0:
		w.fetch(context.Background(), server, "") // not cut off
	case 1:
		w.fetch(ctx, server, "&wait=1s")
	default:
		w.fetch(ctx, server, "", kit.AcceptEvents, "Last-Event-ID: "+w.cursor)
	}
}

// fetch applies a response, or some events of a stream.
func (w *walker) fetch(ctx context.Context, server *apitest.Server, more string, headers ...string) {
	url := server.URL + "/v1/namespaces/chat/changes?" + w.query + "&cursor=" + w.cursor + more
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(w.t, err)
	kit.AddHeaders(request.Header, headers)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	if headers == nil {
		var r map[string]any
		if json.NewDecoder(response.Body).Decode(&r) == nil {
			w.apply(r, r["reset"].(bool))
			w.cursor = kit.CursorOf(r)
		}
		return
	}
	events := kit.NewEventReader(w.t, response.Body)
	for range 1 + w.random.IntN(4) {
		e, ok := events.Next()
		if !ok {
			return
		}
		if e.Name != "tick" {
			w.apply(e.Data, e.Name == "reset")
		}
		w.cursor = e.ID
	}
}

// TestWalk checks that a client which moves between transports and servers at random, and is cut off, misses no change
// and sees none twice, as one that never leaves.
func TestWalk(t *testing.T) {
	t.Parallel()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		s := kit.FileStore(t)
		walk(t, s, s)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		url := redistest.Start(t)
		walk(t, kit.RedisStore(t, url, kit.Sharded), kit.RedisStore(t, url, kit.Sharded))
	})
}

// walk walks over a server for each of the stores, which are one or have the same data.
func walk(t *testing.T, stores ...store.Store) {
	t.Helper()
	require.NoError(t, stores[0].Register(t.Context(), []string{"chat"}))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &walker{t: t, random: rand.New(rand.NewPCG(seed, 0)), knowledge: knowledge{users: map[string]string{}}}
	for _, s := range stores {
		w.servers = append(w.servers, apitest.NewServer(t, s, apitest.WithStoreTime(s), func(c *api.Config) {
			c.Settings.Thresholds = lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour} // no decays
		}))
	}
	users := strings.Fields("alice bob carol dave eve")
	w.query = "user=" + strings.Join(users, "&user=")
	first := w.servers[0].Get("/chat/changes?" + w.query)
	w.apply(first, false)
	w.cursor = kit.CursorOf(first)

	stays := &knowledge{users: map[string]string{}}
	events := w.servers[0].Follow("GET", "/chat/changes?"+w.query, "")
	stays.apply(events.Changes().Data, false)
	go func() {
		for e, ok := events.Next(); ok; e, ok = events.Next() {
			if e.Name != "tick" {
				stays.apply(e.Data, e.Name == "reset")
			}
		}
	}()
	for range 60 {
		for range w.random.IntN(4) {
			server, user := w.servers[w.random.IntN(len(w.servers))], users[w.random.IntN(len(users))]
			server.Post("/chat/users/"+user+[]string{"/ping", "/leave"}[w.random.IntN(2)], "")
		}
		w.step()
	}
	want := map[string]string{}
	for _, u := range w.servers[0].Get("/chat/lookup?" + w.query)["users"].([]any) {
		u := u.(map[string]any)
		want[u["user"].(string)] = fmt.Sprint(u["status"], u["left"])
	}
	for _, server := range slices.Concat(w.servers, w.servers) { // until it has everything
		kit.Await(t, func() bool {
			w.fetch(context.Background(), server, "")
			return w.is(want)
		})
	}
	kit.Await(t, func() bool { return stays.is(want) })
	events.Closed()
	for _, k := range []*knowledge{&w.knowledge, stays} {
		k.mu.Lock()
		require.Zero(t, k.resets, "nothing was lost")
		require.Empty(t, k.repeats)
		k.mu.Unlock()
	}
}

// placesOf returns the places that a cursor of changes has.
func placesOf(t *testing.T, cursor string) []store.Place {
	t.Helper()
	sealed, err := base64.RawURLEncoding.DecodeString(cursor)
	require.NoError(t, err)
	require.Greater(t, len(sealed), 9)
	places, rest := []store.Place{}, sealed[9:] // after the checksum and the version
	cut := func() uint64 {
		n, size := binary.Uvarint(rest)
		require.Positive(t, size)
		rest = rest[size:]
		return n
	}
	for range cut() {
		length := cut()
		places, rest = append(places, store.Place(rest[:length])), rest[length:]
	}
	require.Empty(t, rest)
	return places
}
