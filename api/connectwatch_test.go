package api

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestConnectWatches: changes of the users watched are sent, each at once.
func TestConnectWatches(t *testing.T) {
	w := newSocketServer(t)
	bob, welcome := w.hello(`{"watch":{"users":["alice","zoe"]}}`)
	require.Equal(t, []string{"alice grey", "zoe grey"}, statuses(welcome))
	require.Equal(t, false, welcome["more"])
	require.NotEmpty(t, welcome["cursor"])
	require.NotContains(t, welcome, "self")
	require.EqualValues(t, tickInterval.Milliseconds(), welcome["tick_ms"])
	w.post("/chat/users/alice/ping", "")
	w.post("/chat/users/eve/ping", "")
	require.Equal(t, []string{"alice green"}, statuses(bob.want(frameChanges)))
	alice, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	require.NoError(t, alice.conn.Close())
	require.Equal(t, []string{"alice grey"}, statuses(bob.want(frameChanges)))
}

// TestConnectChangesWatch: users are added and removed while the connection is open.
func TestConnectChangesWatch(t *testing.T) {
	w := newSocketServer(t)
	s, _ := w.hello(`{}`)
	w.post("/chat/users/bob/ping", "")
	added := s.asks(`{"watch":{"add":["alice","bob"]}}`, frameChanges)
	require.Equal(t, []string{"alice grey", "bob green"}, statuses(added))
	require.NotEmpty(t, added["cursor"])
	require.Equal(t, []string{"zoe grey"}, statuses(s.asks(`{"watch":{"add":["zoe"]}}`, frameChanges)))
	s.asks(`{"watch":{"remove":["alice"]}}`, frameOK)
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"zoe"}]}`)
	require.Equal(t, []string{"zoe green"}, statuses(s.want(frameChanges)))
	s.asks(`{"watch":{"remove":["bob","zoe"],"add":["alice"]}}`, frameChanges)
	w.post("/chat/users/bob/leave", "")
	w.post("/chat/users/alice/leave", "")
	require.Equal(t, []string{"alice grey"}, statuses(s.want(frameChanges)))
}

// TestConnectResumes: a client that continues after a cursor gets what has changed since, and a reset if that is not
// known.
func TestConnectResumes(t *testing.T) {
	w := newSocketServer(t)
	w.post("/chat/users/zoe/leave", "")
	one, welcome := w.hello(`{"watch":{"users":["alice","bob"]}}`)
	w.post("/chat/users/alice/ping", "")
	one.want(frameChanges)
	require.NoError(t, one.conn.Close())
	cursor := cursorOf(welcome)
	_, again := w.hello(fmt.Sprintf(`{"watch":{"users":["alice","bob"]},"cursor":%q}`, cursor))
	require.Equal(t, []string{"alice green"}, statuses(again))
	require.NotEqual(t, cursor, cursorOf(again))

	unknown := changesCursor("chat", []store.Place{"unknown"})
	two, lost := w.hello(fmt.Sprintf(`{"watch":{"users":["alice","bob"]},"cursor":%q}`, unknown))
	require.Empty(t, names(lost))
	require.Equal(t, unknown, cursorOf(lost))
	require.Equal(t, true, lost["more"])
	reset := two.want(frameReset)
	require.Equal(t, []string{"alice green", "bob grey"}, statuses(reset))
	require.NotEqual(t, unknown, cursorOf(reset))
	_, everyone := w.hello(fmt.Sprintf(`{"watch":{"everyone":true},"cursor":%q}`, cursor))
	require.Equal(t, []string{"alice green"}, statuses(everyone))

	w.greet(`{"watch":{"users":["alice"]},"cursor":"x"}`).fails(problem.InvalidCursor)
}

// TestConnectEveryone: everyone can be followed instead of some.
func TestConnectEveryone(t *testing.T) {
	w := newSocketServer(t)
	s, welcome := w.hello(`{"watch":{"everyone":true}}`)
	require.Empty(t, names(welcome))
	require.NotEmpty(t, cursorOf(welcome))
	w.post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, statuses(s.want(frameChanges)))
	s.refuses(problem.InvalidParameter, `{"watch":{"add":["bob"]}}`)
	require.Equal(t, []string{"bob grey"}, statuses(s.asks(`{"watch":{"everyone":false,"add":["bob"]}}`, frameChanges)))
	w.post("/chat/users/zoe/ping", "")
	w.post("/chat/users/bob/ping", "")
	require.Equal(t, []string{"bob green"}, statuses(s.want(frameChanges)))
	require.Empty(t, names(s.asks(`{"watch":{"everyone":true}}`, frameChanges)))
	w.post("/chat/users/eve/ping", "")
	require.Equal(t, []string{"eve green"}, statuses(s.want(frameChanges)))
	s.asks(`{"watch":{"everyone":false}}`, frameOK)
	s.refuses(problem.InvalidParameter, `{"watch":{"everyone":true,"add":["bob"]}}`)
}

// TestConnectLargeSnapshot: a snapshot comes in parts, with the cursor on the last.
func TestConnectLargeSnapshot(t *testing.T) {
	w := newSocketServer(t)
	s, _ := w.hello(`{}`)
	var users []string
	for i := range 150 {
		users = append(users, fmt.Sprintf("%q", fmt.Sprintf("%s%03d", strings.Repeat("u", 250), i)))
	}
	s.send(`{"watch":{"add":[` + strings.Join(users, ",") + `]},"id":7}`)
	found, parts := []string{}, 0
	for more := true; more; parts++ {
		part, id := s.wantID(frameChanges) // of at most maxSent bytes
		require.EqualValues(t, 7, id)
		more = part["more"].(bool)
		require.Equal(t, !more, part["cursor"] != nil)
		found = append(found, names(part)...)
	}
	require.Greater(t, parts, 1)
	require.Len(t, found, len(users))
}

// TestConnectCounts: counts are sent when they change, and are shared by all connections.
func TestConnectCounts(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		w.connects()
		w.do("POST", "/users/alice/ping", "")
		one, _ := w.hello(`{"watch":{"counts":true}}`)
		counts := one.want(frameCounts)
		require.EqualValues(t, 1, counts["green"])
		require.EqualValues(t, 1, counts["total"])
		two, _ := w.hello(`{"user":"bob"}`)
		two.asks(`{"watch":{"counts":true}}`, frameOK)
		two.want(frameCounts)
		require.EqualValues(t, 2, one.want(frameCounts)["green"])
		require.Len(t, w.config.Shared.counting.spaces, 1)
	})
}

// TestConnectWatchLimit: a connection watches a limited number of users.
func TestConnectWatchLimit(t *testing.T) {
	w := newSocketServer(t)
	s, _ := w.hello(`{}`)
	add := func(from, n int) string {
		users := ""
		for i := range n {
			users += fmt.Sprintf(`,"u%d"`, from+i)
		}
		return `{"watch":{"add":[` + users[1:] + `]}}`
	}
	for i := range 5 {
		for part := s.asks(add(i*1000, 1000), frameChanges); part["more"] == true; {
			part = s.want(frameChanges)
		}
	}
	s.refuses(problem.TooManyItems, add(9000, 1))
	s.asks(`{"watch":{"remove":["u1"]}}`, frameOK)
	s.asks(add(9000, 1), frameChanges)
}

// TestConnectNoFeed: a namespace without a feed cannot be watched, but users can connect.
func TestConnectNoFeed(t *testing.T) {
	w := newSocketServer(t, func(c *Config) { c.Settings.Changes = feed.Off })
	w.hello(`{"user":"alice"}`)
	w.greet(`{"watch":{"users":["alice"]}}`).fails(problem.FeedUnavailable)
	two, _ := w.hello(`{"user":"alice"}`)
	two.refuses(problem.FeedUnavailable, `{"watch":{"add":["alice"]}}`)
}

// TestConnectTicks: a client that watches gets ticks, and so does one that watches nothing: scripts in browsers do not
// see pings.
func TestConnectTicks(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		w.connects()
		s, _ := w.hello(`{"watch":{"users":["alice"]}}`)
		tick := s.want(frameTick)
		require.NotEmpty(t, tick["as_of"])
		require.NotEmpty(t, tick["cursor"])
		s.asks(`{"watch":{"remove":["alice"]}}`, frameOK)
		s, welcome := w.hello(`{"user":"alice"}`)
		require.EqualValues(t, maxSocketPing.Milliseconds(), welcome["tick_ms"])
		require.Empty(t, s.want(frameTick))
		require.Empty(t, s.want(frameTick))
	})
}

// TestConnectFollowedNamespaces checks that namespaces that connections watch count to those that their callers follow,
// until a minute after that.
func TestConnectFollowedNamespaces(t *testing.T) {
	t.Parallel()
	clock, pass := atMinutes()
	w := newSocketServer(t, clock)
	caller := from("203.0.113.7")
	w.followEach(1, maxNamespaces, caller)
	one, _ := w.hello(`{"watch":{"users":["alice"]}}`, caller)
	w.hello(`{"watch":{"everyone":true}}`, caller)
	w.fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
	one.asks(`{"watch":{"add":["bob"]}}`, frameChanges)

	pass(time.Minute)
	w.followEach(1, maxNamespaces, caller)
	w.fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
	pass(time.Minute)
	w.followEach(1, maxNamespaces+1, from("203.0.113.8"))
	w.greet(`{"watch":{"users":["alice"]}}`, from("203.0.113.8")).fails(problem.RateLimited)
	other, _ := w.hello(`{}`, from("203.0.113.8"))
	other.refuses(problem.RateLimited, `{"watch":{"add":["alice"]}}`)
	other.refuses(problem.RateLimited, `{"watch":{"everyone":true}}`)
	pass(time.Minute)
	other.asks(`{"watch":{"everyone":true}}`, frameChanges)
	other.asks(`{"watch":{"everyone":false}}`, frameOK)
	pass(time.Minute)
	w.followEach(1, maxNamespaces+1, from("203.0.113.8"))
}

// TestConnectWatchFailsAsAWhole: a frame whose users cannot be watched does not begin or end counts, either.
func TestConnectWatchFailsAsAWhole(t *testing.T) {
	t.Parallel()
	w, headers := newGuardedSocketServer(t)
	h := &w.config.Shared.counting
	followers := func() int {
		return locked(&h.mu, func() int {
			if space := h.spaces["chat"]; space != nil {
				return len(space.followers)
			}
			return 0
		})
	}
	c, _ := w.hello(`{"user":"alice"}`, bearerOf(headers["alice"]))
	_, err := w.config.Shared.watched.take(w.session().currentCaller(), store.MaxWatched)
	require.NoError(t, err)
	c.refuses(problem.RateLimited, `{"watch":{"counts":true,"add":["bob"]}}`)
	require.Zero(t, followers())
	c.asks(`{"watch":{"counts":true}}`, frameOK)
	require.Equal(t, 1, followers())
	for _, counts := range []string{"true", "false"} { // counts can come before the response
		refusal := c.asksDespite(`{"watch":{"counts":`+counts+`,"add":["bob"]}}`, frameProblem, frameCounts)
		require.Equal(t, string(problem.RateLimited), refusal["code"])
		require.Equal(t, 1, followers(), counts)
	}
}

// moves are users who are idle all the time, and connect to three servers in turn.
type moves struct {
	servers [3]atomic.Pointer[waitServer]
	over    atomic.Bool // the next bye is the last
	clients sync.WaitGroup
}

// stayIdle keeps a user connected as lastseen.js does: asked to connect to another server, it opens a connection there
// before it closes the old one, and restates how long the user has been idle. The frame takes some time to arrive.
func (m *moves) stayIdle(i int) {
	since, closeOld := time.Now(), func() {}
	for at := i; !m.over.Load(); at++ {
		hello := fmt.Sprintf(`{"user":"u%d","device":{"id":"page%d"},"activity":{"idle":true,"idle_ms":%d}}`,
			i, i, time.Since(since).Milliseconds())
		time.Sleep(time.Duration((i+at)%7) * 300 * time.Millisecond)
		s, _ := m.servers[at%len(m.servers)].Load().hello(hello)
		closeOld()
		closeOld = func() { _ = s.conn.Close() }
		s.untilBye(func(string, map[string]any) {})
	}
	closeOld()
}

// untilBye reads frames until the server asks to connect to another one.
func (s *testSocket) untilBye(see func(name string, content map[string]any)) {
	for {
		name, content, _ := s.nextBy(time.Now().Add(time.Hour))
		if name == frameBye {
			return
		}
		see(name, content)
	}
}

// end stops all servers, and returns when their clients have gone.
func (m *moves) end(more *waitServer) {
	m.over.Store(true)
	for i := range m.servers {
		m.servers[i].Load().stop()
	}
	more.stop()
	m.clients.Wait()
}

// TestIdleUsersMove: three servers are restarted one after the other. Idle users move from one to the next, and stay as
// they are: nothing of it reaches a watcher, and each is idle since the same time, also when the records of earlier
// connections are over.
func TestIdleUsersMove(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		const users = 100
		w.connects()
		w.config.WebSockets.Drain = 20 * time.Second
		var m moves
		end := sync.OnceFunc(func() { m.end(w) })
		defer end()
		for i := range m.servers {
			m.servers[i].Store(w.another())
		}
		for i := range users {
			m.clients.Go(func() { m.stayIdle(i) })
		}
		time.Sleep(20 * time.Second)
		idleSince := func() map[string]string {
			all, found := w.do("GET", "/users?limit=1000", ""), map[string]string{}
			for i, user := range names(all) {
				found[user] = each(all, "users", "idle_since")[i]
			}
			return found
		}
		before := idleSince()
		require.Len(t, before, users)

		watcher, _ := w.hello(`{"watch":{"everyone":true}}`)
		var changed []string
		m.clients.Go(func() {
			watcher.untilBye(func(name string, content map[string]any) {
				if name != frameTick {
					changed = append(changed, names(content)...)
				}
			})
			_ = watcher.conn.Close()
		})
		for i := range m.servers {
			m.servers[i].Load().stop()
			require.Equal(t, before, idleSince())
			m.servers[i].Store(w.another())
		}
		time.Sleep(5 * time.Minute)
		require.Equal(t, before, idleSince())
		w.do("POST", "/users/zoe/ping", "") // which is seen
		time.Sleep(10 * time.Second)
		end()
		require.Equal(t, []string{"zoe"}, changed)
	})
}
