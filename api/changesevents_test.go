package api

import (
	"context"
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
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestEventStream goes through a stream of some users: a snapshot, changes, and a stream that continues after it.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	w.post("/chat/users/alice/ping", "")
	r := w.follow("GET", "/chat/changes?user=alice&user=bob", "")
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
	r = w.follow("POST", "/chat/changes", `{"users":["alice","bob"],"cursor":"`+first.id+`"}`,
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
	r := w.follow("POST", "/chat/changes", body)
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
	w.send("GET", "/chat/changes?cursor="+old, "").is(t, http.StatusBadRequest)
	old = changesCursor("chat", append(placesOf(t, two.id), "of another store"))
	for range 2 {
		r = w.follow("POST", "/chat/changes", body, "Last-Event-ID: "+old)
		one, two = r.changes(), r.changes()
		require.Equal(t, eventReset, one.name)
		require.Equal(t, old, one.id, "whoever continues from here gets a reset")
		require.Equal(t, old, cursorOf(one.data))
		require.Equal(t, eventChanges, two.name, "in addition to the first part")
		require.Equal(t, users, append(names(one.data), names(two.data)...))
		r.closed()
		old = one.id
	}
	r = w.follow("POST", "/chat/changes", body, "Last-Event-ID: "+two.id)
	w.post("/chat/users/7/ping", "")
	require.Equal(t, []string{"7 green"}, statuses(r.changes().data))
}

// TestEventsAreNotKept checks the header for proxies, that the stream is not compressed, and that HEAD does not wait.
func TestEventsAreNotKept(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	for _, gzip := range []string{"gzip", "identity"} {
		r := w.send("HEAD", "/chat/changes?user=alice&wait=50s", "", "Accept: text/event-stream",
			"Accept-Encoding: "+gzip).is(t, http.StatusOK)
		require.Equal(t, "no-store, no-transform", r.header.Get("Cache-Control"))
		require.Equal(t, "no", r.header.Get("X-Accel-Buffering"))
		require.Equal(t, "Accept", r.header.Get("Vary"))
		require.Empty(t, r.header.Get("Content-Encoding"))
	}
	r := w.send("HEAD", "/chat/changes?user=alice&wait=50s", "").is(t, http.StatusOK)
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
}

// TestDrainEndsWaiting checks that a server that stops sends its streams away at different times and responds to long
// polls at once, and that both can still be opened.
func TestDrainEndsWaiting(t *testing.T) {
	t.Parallel()
	w := newLiveServer(t)
	r := w.follow("GET", "/chat/changes?user=alice", "")
	first := r.changes()
	polled := w.later("GET", "/chat/changes?user=alice&wait=50s&cursor="+first.id, "")
	await(t, func() bool { return w.config.Feeds.Stats().Watchers == 2 })
	w.config.Shared.Drain()
	_, more := r.next()
	require.False(t, more)
	require.Equal(t, []string{"2000", "5000"}, r.retry, "half of 10 seconds")
	response := (<-polled).json(t)
	require.Empty(t, statuses(response))
	require.EqualValues(t, 5000, response["poll_after_ms"])
	await(t, func() bool { return w.config.Feeds.Stats().Watchers == 0 })

	r = w.follow("GET", "/chat/changes?user=alice", "")
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
	r := w.follow("GET", "/chat/changes?user=alice", "")
	require.Equal(t, []string{"alice grey"}, statuses(r.changes().data))
	_, ok := r.next()
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
	return locked(&k.mu, func() bool { return maps.Equal(k.users, want) })
}

// walker is a client that follows users by all transports on all servers, and is cut off at random.
type walker struct {
	knowledge
	t       *testing.T
	random  *rand.Rand
	servers []*testServer
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
		w.fetch(ctx, server, "", acceptEvents, "Last-Event-ID: "+w.cursor)
	}
}

// fetch applies a response, or some events of a stream.
func (w *walker) fetch(ctx context.Context, server *testServer, more string, headers ...string) {
	url := server.url + "/v1/namespaces/chat/changes?" + w.query + "&cursor=" + w.cursor + more
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(w.t, err)
	addHeaders(request.Header, headers)
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
			w.cursor = cursorOf(r)
		}
		return
	}
	events := newEventReader(w.t, response.Body)
	for range 1 + w.random.IntN(4) {
		e, ok := events.next()
		if !ok {
			return
		}
		if e.name != eventTick {
			w.apply(e.data, e.name == eventReset)
		}
		w.cursor = e.id
	}
}

// TestWalk checks that a client which moves between transports and servers at random, and is cut off, misses no change
// and sees none twice, as one that never leaves.
func TestWalk(t *testing.T) {
	t.Parallel()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		s := fileStore(t)
		walk(t, s, s)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		url := redistest.Start(t)
		walk(t, redisStore(t, url, sharded), redisStore(t, url, sharded))
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
		w.servers = append(w.servers, newTestServer(t, s, live(s), func(c *Config) {
			c.Settings.Thresholds = lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour} // no decays
		}))
	}
	users := strings.Fields("alice bob carol dave eve")
	w.query = "user=" + strings.Join(users, "&user=")
	first := w.servers[0].get("/chat/changes?" + w.query)
	w.apply(first, false)
	w.cursor = cursorOf(first)

	stays := &knowledge{users: map[string]string{}}
	events := w.servers[0].follow("GET", "/chat/changes?"+w.query, "")
	stays.apply(events.changes().data, false)
	go func() {
		for e, ok := events.next(); ok; e, ok = events.next() {
			if e.name != eventTick {
				stays.apply(e.data, e.name == eventReset)
			}
		}
	}()
	for range 60 {
		for range w.random.IntN(4) {
			server, user := w.servers[w.random.IntN(len(w.servers))], users[w.random.IntN(len(users))]
			server.post("/chat/users/"+user+[]string{"/ping", "/leave"}[w.random.IntN(2)], "")
		}
		w.step()
	}
	want := map[string]string{}
	for _, u := range w.servers[0].get("/chat/lookup?" + w.query)["users"].([]any) {
		u := u.(map[string]any)
		want[u["user"].(string)] = fmt.Sprint(u["status"], u["left"])
	}
	for _, server := range slices.Concat(w.servers, w.servers) { // until it has everything
		await(t, func() bool {
			w.fetch(context.Background(), server, "")
			return w.is(want)
		})
	}
	await(t, func() bool { return stays.is(want) })
	events.closed()
	for _, k := range []*knowledge{&w.knowledge, stays} {
		k.mu.Lock()
		require.Zero(t, k.resets, "nothing was lost")
		require.Empty(t, k.repeats)
		k.mu.Unlock()
	}
}
