package sockettests

import (
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store/feed"
)

// TestConnectWatches: changes of the users watched are sent, each at once.
func TestConnectWatches(t *testing.T) {
	w := apitest.NewSocketServer(t)
	bob, welcome := w.Hello(`{"watch":{"users":["alice","zoe"]}}`)
	require.Equal(t, []string{"alice grey", "zoe grey"}, kit.Statuses(welcome))
	require.Equal(t, false, welcome["more"])
	require.NotEmpty(t, welcome["cursor"])
	require.NotContains(t, welcome, "self")
	require.EqualValues(t, kit.TickInterval.Milliseconds(), welcome["tick_ms"])
	w.Post("/chat/users/alice/ping", "")
	w.Post("/chat/users/eve/ping", "")
	require.Equal(t, []string{"alice green"}, kit.Statuses(bob.Want("changes")))
	alice, _ := w.Hello(`{"user":"alice","grace_ms":0}`)
	require.NoError(t, alice.Conn.Close())
	require.Equal(t, []string{"alice grey"}, kit.Statuses(bob.Want("changes")))
}

// TestConnectRests: what a client watches has no goroutine while nothing changes.
func TestConnectRests(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{"watch":{"users":["alice"]}}`)
	rests := func() bool {
		var stacks strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
		return !strings.Contains(stacks.String(), "session.(*following)")
	}
	kit.Await(t, rests)
	w.Post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, kit.Statuses(s.Want("changes")))
	kit.Await(t, rests)
}

// TestConnectChangesWatch: users are added and removed while the connection is open.
func TestConnectChangesWatch(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{}`)
	w.Post("/chat/users/bob/ping", "")
	added := s.Asks(`{"watch":{"add":["alice","bob"]}}`, "changes")
	require.Equal(t, []string{"alice grey", "bob green"}, kit.Statuses(added))
	require.NotEmpty(t, added["cursor"])
	require.Equal(t, []string{"zoe grey"}, kit.Statuses(s.Asks(`{"watch":{"add":["zoe"]}}`, "changes")))
	s.Asks(`{"watch":{"remove":["alice"]}}`, "ok")
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"zoe"}]}`)
	require.Equal(t, []string{"zoe green"}, kit.Statuses(s.Want("changes")))
	s.Asks(`{"watch":{"remove":["bob","zoe"],"add":["alice"]}}`, "changes")
	w.Post("/chat/users/bob/leave", "")
	w.Post("/chat/users/alice/leave", "")
	require.Equal(t, []string{"alice grey"}, kit.Statuses(s.Want("changes")))
}

// TestConnectResumes: a client that continues after a cursor gets what has changed since, and a reset if that is not
// known.
func TestConnectResumes(t *testing.T) {
	w := apitest.NewSocketServer(t)
	w.Post("/chat/users/zoe/leave", "")
	one, welcome := w.Hello(`{"watch":{"users":["alice","bob"]}}`)
	w.Post("/chat/users/alice/ping", "")
	one.Want("changes")
	require.NoError(t, one.Conn.Close())
	cursor := kit.CursorOf(welcome)
	_, again := w.Hello(fmt.Sprintf(`{"watch":{"users":["alice","bob"]},"cursor":%q}`, cursor))
	require.Equal(t, []string{"alice green"}, kit.Statuses(again))
	require.NotEqual(t, cursor, kit.CursorOf(again))

	unknown := kit.PositionsCursor("unknown")
	two, lost := w.Hello(fmt.Sprintf(`{"watch":{"users":["alice","bob"]},"cursor":%q}`, unknown))
	require.Empty(t, kit.Names(lost))
	require.Equal(t, unknown, kit.CursorOf(lost))
	require.Equal(t, true, lost["more"])
	reset := two.Want("reset")
	require.Equal(t, []string{"alice green", "bob grey"}, kit.Statuses(reset))
	require.NotEqual(t, unknown, kit.CursorOf(reset))
	_, everyone := w.Hello(fmt.Sprintf(`{"watch":{"everyone":true},"cursor":%q}`, cursor))
	require.Equal(t, []string{"alice green"}, kit.Statuses(everyone))

	w.Greet(`{"watch":{"users":["alice"]},"cursor":"x"}`).Fails(problem.InvalidCursor)
}

// TestConnectEveryone: everyone can be followed instead of some.
func TestConnectEveryone(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, welcome := w.Hello(`{"watch":{"everyone":true}}`)
	require.Empty(t, kit.Names(welcome))
	require.NotEmpty(t, kit.CursorOf(welcome))
	w.Post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, kit.Statuses(s.Want("changes")))
	s.Refuses(problem.InvalidParameter, `{"watch":{"add":["bob"]}}`)
	require.Equal(t, []string{"bob grey"}, kit.Statuses(s.Asks(`{"watch":{"everyone":false,"add":["bob"]}}`, "changes")))
	w.Post("/chat/users/zoe/ping", "")
	w.Post("/chat/users/bob/ping", "")
	require.Equal(t, []string{"bob green"}, kit.Statuses(s.Want("changes")))
	require.Empty(t, kit.Names(s.Asks(`{"watch":{"everyone":true}}`, "changes")))
	w.Post("/chat/users/eve/ping", "")
	require.Equal(t, []string{"eve green"}, kit.Statuses(s.Want("changes")))
	s.Asks(`{"watch":{"everyone":false}}`, "ok")
	s.Refuses(problem.InvalidParameter, `{"watch":{"everyone":true,"add":["bob"]}}`)
}

// TestConnectSnapshotOfEveryone: with snapshot, all users follow in pages, with a cursor that continues after each.
func TestConnectSnapshotOfEveryone(t *testing.T) {
	w := apitest.NewSocketServer(t)
	const users = 1200
	var pings []string
	for i := range users {
		pings = append(pings, fmt.Sprintf(`{"user":"u%d"}`, i))
	}
	for part := range slices.Chunk(pings, 600) {
		w.Post("/chat/pings", `{"pings":[`+strings.Join(part, ",")+`]}`)
	}
	const watch = `{"watch":{"everyone":true,"snapshot":true}`
	s, page := w.Hello(watch + `}`)
	found := map[string]bool{}
	continued := ""
	for {
		for _, user := range kit.Names(page) {
			found[user] = true
		}
		if page["more"] == false {
			break
		}
		if cursor, complete := page["cursor"].(string); complete {
			continued = cursor
		}
		page = s.Want("changes")
	}
	require.Len(t, found, users)
	_, page = w.Hello(fmt.Sprintf(watch+`,"cursor":%q}`, continued))
	require.NotEmpty(t, kit.Names(page), "the last page")
	at := s.Asks(`{"watch":{"everyone":true,"snapshot":true,"status":["grey"]}}`, "changes")
	require.Empty(t, kit.Names(at))
	require.Equal(t, false, at["more"])
	for _, wrong := range []string{
		`{"watch":{"snapshot":true}}`, `{"watch":{"everyone":true,"status":["green"]}}`,
		`{"watch":{"everyone":true,"snapshot":true,"status":["blue"]}}`,
	} {
		s.Refuses(problem.InvalidParameter, wrong)
	}
}

// TestConnectLargeSnapshot: a snapshot comes in parts, and only the last has the cursor of the whole.
func TestConnectLargeSnapshot(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{}`)
	var users []string
	for i := range 150 {
		users = append(users, fmt.Sprintf("%q", fmt.Sprintf("%s%03d", strings.Repeat("u", 250), i)))
	}
	s.Send(`{"watch":{"add":[` + strings.Join(users, ",") + `]},"id":7}`)
	found, parts, cursors := []string{}, 0, map[any]bool{}
	for more := true; more; parts++ {
		part, id := s.WantID("changes") // of at most maxSent bytes
		require.EqualValues(t, 7, id)
		more = part["more"].(bool)
		cursors[part["cursor"]] = true
		found = append(found, kit.Names(part)...)
	}
	require.Greater(t, parts, 1)
	require.Len(t, cursors, 2)
	require.Len(t, found, len(users))
}

// TestConnectWatchLimit: a connection watches a limited number of users.
func TestConnectWatchLimit(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{}`)
	add := func(from, n int) string {
		users := ""
		for i := range n {
			users += fmt.Sprintf(`,"u%d"`, from+i)
		}
		return `{"watch":{"add":[` + users[1:] + `]}}`
	}
	for i := range 5 {
		for part := s.Asks(add(i*1000, 1000), "changes"); part["more"] == true; {
			part = s.Want("changes")
		}
	}
	s.Refuses(problem.TooManyItems, add(9000, 1))
	s.Asks(`{"watch":{"remove":["u1"]}}`, "ok")
	s.Asks(add(9000, 1), "changes")
}

// TestConnectNoFeed: a namespace without a feed cannot be watched, but users can connect.
func TestConnectNoFeed(t *testing.T) {
	w := apitest.NewSocketServer(t, func(c *api.Config) { c.Settings.Changes = feed.Off })
	w.Hello(`{"user":"alice"}`)
	w.Greet(`{"watch":{"users":["alice"]}}`).Fails(problem.FeedUnavailable)
	two, _ := w.Hello(`{"user":"alice"}`)
	two.Refuses(problem.FeedUnavailable, `{"watch":{"add":["alice"]}}`)
}

// TestConnectTicks: a client that watches gets ticks, and so does one that watches nothing: scripts in browsers do not
// see pings.
func TestConnectTicks(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		defer w.Advance()()
		w.Connects()
		s, _ := w.Hello(`{"watch":{"users":["alice"]}}`)
		tick := s.Want("tick")
		require.NotEmpty(t, tick["as_of"])
		require.NotEmpty(t, tick["cursor"])
		s.Asks(`{"watch":{"remove":["alice"]}}`, "ok")
		s, welcome := w.Hello(`{"user":"alice"}`)
		require.EqualValues(t, kit.MaxSocketPing.Milliseconds(), welcome["tick_ms"])
		require.Empty(t, s.Want("tick"))
		require.Empty(t, s.Want("tick"))
	})
}

// TestConnectFollowedNamespaces checks that namespaces that connections watch count to those that their callers follow,
// until a minute after that.
func TestConnectFollowedNamespaces(t *testing.T) {
	t.Parallel()
	clock, pass := apitest.AtMinutes()
	w := apitest.NewSocketServer(t, clock)
	caller := kit.ForwardedFor("203.0.113.7")
	w.FollowEach(1, kit.MaxNamespaces, caller)
	one, _ := w.Hello(`{"watch":{"users":["alice"]}}`, caller)
	w.Hello(`{"watch":{"everyone":true}}`, caller)
	w.Fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
	one.Asks(`{"watch":{"add":["bob"]}}`, "changes")

	pass(time.Minute)
	w.FollowEach(1, kit.MaxNamespaces, caller)
	w.Fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
	pass(time.Minute)
	w.FollowEach(1, kit.MaxNamespaces+1, kit.ForwardedFor("203.0.113.8"))
	w.Greet(`{"watch":{"users":["alice"]}}`, kit.ForwardedFor("203.0.113.8")).Fails(problem.RateLimited)
	other, _ := w.Hello(`{}`, kit.ForwardedFor("203.0.113.8"))
	other.Refuses(problem.RateLimited, `{"watch":{"add":["alice"]}}`)
	other.Refuses(problem.RateLimited, `{"watch":{"everyone":true}}`)
	pass(time.Minute)
	other.Asks(`{"watch":{"everyone":true}}`, "changes")
	other.Asks(`{"watch":{"everyone":false}}`, "ok")
	pass(time.Minute)
	w.FollowEach(1, kit.MaxNamespaces+1, kit.ForwardedFor("203.0.113.8"))
}

// moves are users who are idle all the time, and connect to three servers in turn.
type moves struct {
	servers [3]atomic.Pointer[apitest.BubbleServer]
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
		s, _ := m.servers[at%len(m.servers)].Load().Hello(hello)
		closeOld()
		closeOld = func() { _ = s.Conn.Close() }
		untilBye(s, func(string, map[string]any) {})
	}
	closeOld()
}

// untilBye reads frames until the server asks to connect to another one.
func untilBye(s *kit.Socket, see func(name string, content map[string]any)) {
	for {
		name, content, _ := s.NextBy(time.Now().Add(time.Hour))
		if name == "bye" {
			return
		}
		see(name, content)
	}
}

// end stops all servers, and returns when their clients have gone.
func (m *moves) end(more *apitest.BubbleServer) {
	m.over.Store(true)
	for i := range m.servers {
		m.servers[i].Load().Stop()
	}
	more.Stop()
	m.clients.Wait()
}

// TestIdleUsersMove: three servers are restarted one after the other. Idle users move from one to the next, and stay as
// they are: nothing of it reaches a watcher, and each is idle since the same time, also when the records of earlier
// connections are over.
func TestIdleUsersMove(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		const users = 100
		w.Connects()
		w.Config.WebSockets.Drain = 20 * time.Second
		var m moves
		end := sync.OnceFunc(func() { m.end(w) })
		defer end()
		for i := range m.servers {
			m.servers[i].Store(w.Another())
		}
		for i := range users {
			m.clients.Go(func() { m.stayIdle(i) })
		}
		time.Sleep(20 * time.Second)
		idleSince := func() map[string]string {
			all, found := w.Do("GET", "/users?limit=1000", ""), map[string]string{}
			for i, user := range kit.Names(all) {
				found[user] = kit.Each(all, "users", "idle_since")[i]
			}
			return found
		}
		before := idleSince()
		require.Len(t, before, users)

		watcher, _ := w.Hello(`{"watch":{"everyone":true}}`)
		var changed []string
		m.clients.Go(func() {
			untilBye(watcher, func(name string, content map[string]any) {
				if name != "tick" {
					changed = append(changed, kit.Names(content)...)
				}
			})
			_ = watcher.Conn.Close()
		})
		for i := range m.servers {
			m.servers[i].Load().Stop()
			require.Equal(t, before, idleSince())
			m.servers[i].Store(w.Another())
		}
		time.Sleep(5 * time.Minute)
		require.Equal(t, before, idleSince())
		w.Do("POST", "/users/zoe/ping", "") // which is seen
		time.Sleep(10 * time.Second)
		end()
		require.Equal(t, []string{"zoe"}, changed)
	})
}
