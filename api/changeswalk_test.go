package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/stream"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

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
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprint(k.users) == fmt.Sprint(want)
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
	url := server.url + "/v1/namespaces/chat/changes?" + w.query + "&cursor=" + w.cursor
	switch w.random.IntN(3) {
	case 0:
		w.poll(context.Background(), url) // not cut off
	case 1:
		w.poll(ctx, url+"&wait=1s")
	default:
		w.stream(ctx, url)
	}
}

func (w *walker) poll(ctx context.Context, url string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(w.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	var r map[string]any
	if json.NewDecoder(response.Body).Decode(&r) == nil {
		w.apply(r, r["reset"].(bool))
		w.cursor = cursorOf(r)
	}
}

func (w *walker) stream(ctx context.Context, url string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(w.t, err)
	request.Header.Set("Accept", stream.MediaType)
	request.Header.Set("Last-Event-ID", w.cursor)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	require.Equal(w.t, http.StatusOK, response.StatusCode)
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
		open := func() store.Store {
			s, err := redisstore.Open(redisstore.Options{
				URL: url, Shards: 3, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second,
				Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}
		walk(t, open(), open())
	})
}

// walk walks over a server for each of the stores, which are one or have the same data.
func walk(t *testing.T, stores ...store.Store) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &walker{t: t, random: rand.New(rand.NewPCG(seed, 0)), knowledge: knowledge{users: map[string]string{}}}
	for _, s := range stores {
		w.servers = append(w.servers, newTestServer(t, s, live(s), func(c *Config) {
			c.Settings.Thresholds = lastseen.Thresholds{Green: time.Hour, Yellow: 2 * time.Hour} // no decays
		}))
	}
	users := strings.Fields("alice bob carol dave eve")
	for _, user := range users { // a leave of a user who was never seen is no change
		w.servers[0].post("/chat/users/"+user+"/ping", "")
	}
	w.query = "user=" + strings.Join(users, "&user=")
	first := w.servers[0].get("/chat/changes?" + w.query)
	w.apply(first, false)
	w.cursor = cursorOf(first)

	stays := &knowledge{users: map[string]string{}}
	events := w.servers[0].follow(http.MethodGet, "/chat/changes?"+w.query, "")
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
		require.Eventually(t, func() bool {
			w.poll(context.Background(), server.url+"/v1/namespaces/chat/changes?"+w.query+"&cursor="+w.cursor)
			return w.is(want)
		}, eventually, tick)
	}
	require.Eventually(t, func() bool { return stays.is(want) }, eventually, tick)
	events.closed()
	for _, k := range []*knowledge{&w.knowledge, stays} {
		k.mu.Lock()
		require.Zero(t, k.resets, "nothing was lost")
		require.Empty(t, k.repeats)
		k.mu.Unlock()
	}
}
