package changestests

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
)

// TestTicks follows a user who is silent, for longer than any time limit of the server: each transition arrives within
// 1.5 seconds, and something does every 20 seconds.
func TestTicks(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		defer w.Advance()()
		w.Whole("POST", "/users/alice/ping")
		pinged := time.Now()
		r := w.Follow()
		require.Equal(t, []string{"alice green"}, kit.Statuses(r.Changes().Data))
		last, asOf, ticks, seen := time.Now(), "", 0, []string{}
		for time.Since(pinged) < 10*time.Minute {
			e, ok := r.Next()
			require.True(t, ok)
			require.LessOrEqual(t, time.Since(last), kit.TickInterval)
			require.Greater(t, e.Data["as_of"], asOf)
			require.Equal(t, e.ID, kit.CursorOf(e.Data))
			last, asOf = time.Now(), e.Data["as_of"].(string)
			if e.Name == "tick" {
				ticks++
				continue
			}
			seen = append(seen, kit.Statuses(e.Data)...)
			after := map[int]time.Duration{1: time.Minute, 2: 5 * time.Minute}[len(seen)]
			require.InDelta(t, after.Seconds()+0.75, time.Since(pinged).Seconds(), 0.75)
		}
		require.Equal(t, []string{"alice yellow", "alice grey"}, seen)
		require.Greater(t, ticks, 30)
	})
}

// TestNoTicks checks that there are no ticks while watermarks do not advance, so that clients notice, and that polls
// are refused.
func TestNoTicks(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		stop := w.Advance()
		r := w.Follow()
		first := r.Changes()
		stop()
		stopped := time.Now()
		events := make(chan kit.Event)
		go func() {
			for e, ok := r.Next(); ok; e, ok = r.Next() {
				events <- e
			}
		}()
		time.Sleep(2 * time.Minute)
		select {
		case e := <-events:
			t.Errorf("%s after %s", e.Name, time.Since(stopped))
		default:
		}
		for _, wait := range []string{"0", "20s"} {
			r := w.Whole("GET", "/changes?user=alice&wait="+wait+"&cursor="+first.ID)
			require.Equal(t, http.StatusServiceUnavailable, r.Status)
		}
		defer w.Advance()()
		resumed := time.Now()
		require.Equal(t, "tick", (<-events).Name)
		require.Less(t, time.Since(resumed), 10*time.Second)
		w.Config.Shared.Drain()
	})
}

// TestLongPollWaits checks that a long poll takes the time that was asked for, and has nothing then.
func TestLongPollWaits(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		defer w.Advance()()
		first := w.Whole("GET", "/changes?user=alice").JSON(t)
		began := time.Now()
		r := w.Whole("GET", "/changes?user=alice&wait=50s&cursor="+kit.CursorOf(first))
		require.InDelta(t, 50, time.Since(began).Seconds(), 0.5)
		require.Equal(t, http.StatusOK, r.Status)
		require.Empty(t, kit.Statuses(r.JSON(t)))
		require.NotEmpty(t, kit.CursorOf(r.JSON(t)))
	})
}

// TestWaitingEndsWithTheToken checks that a stream ends, and a long poll is refused, at the second at which the token
// expires.
func TestWaitingEndsWithTheToken(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		defer w.Advance()()
		authenticator, token := kit.Signed(t, func(c *auth.Config) { c.Tokens.Leeway = 10 * time.Second })
		w.Reload(func(c *api.Config) { c.Auth = authenticator })
		expires, alice := time.Now().Add(35*time.Second), kit.Bearer(token("alice", 35*time.Second))
		r := w.Follow(alice)
		poll := w.Request("GET", "/changes?user=alice&wait=50s&cursor="+r.Changes().ID, alice)
		for ok := true; ok; {
			_, ok = r.Next()
		}
		require.InDelta(t, 10, time.Since(expires).Seconds(), 1, "the leeway")
		kit.ReadResponse(t, poll).Is(t, http.StatusUnauthorized)
		require.InDelta(t, 10, time.Since(expires).Seconds(), 1)
		require.NoError(t, poll.Close())
	})
}

// TestReloadEndsWaiting checks that a reload that removes a key, its namespaces or the namespace ends streams at once,
// and long polls get the error of a new request; and that other reloads do not end them.
func TestReloadEndsWaiting(t *testing.T) {
	service, key := kit.NewKey("service", "cha*", auth.Read)
	elsewhere, pinger, removed, renamed := service, service, service, service
	renamed.Name = "another"
	elsewhere.Namespaces, pinger.Scopes = []auth.Pattern{"other"}, []auth.Scope{auth.Ping}
	_, removed.Hash = auth.NewKey()
	for name, c := range map[string]struct {
		key    auth.Key
		refuse bool
		status int
	}{
		"removed":    {removed, false, http.StatusUnauthorized},
		"renamed":    {renamed, false, 0},
		"namespaces": {elsewhere, false, http.StatusForbidden},
		"scope":      {pinger, false, http.StatusForbidden},
		"unknown":    {service, true, http.StatusNotFound},
		"unchanged":  {service, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
				defer w.Advance()()
				w.Authenticate(auth.Config{Keys: []auth.Key{service}})
				r := w.Follow(kit.Bearer(key))
				poll := w.Request("GET", "/changes?user=alice&wait=50s&cursor="+r.Changes().ID, kit.Bearer(key))
				time.Sleep(5 * time.Second)
				w.Reload(func(config *api.Config) { config.RefuseUnknown = c.refuse })
				w.Authenticate(auth.Config{Keys: []auth.Key{c.key}})
				reloaded := time.Now()
				if c.status == 0 {
					_, ok := r.Next()
					require.True(t, ok, "a tick")
				} else {
					kit.ReadResponse(t, poll).Is(t, c.status)
					_, ok := r.Next()
					require.False(t, ok)
					require.Less(t, time.Since(reloaded), time.Second)
				}
				require.NoError(t, poll.Close())
			})
		})
	}
}

// TestSlowFollowers checks that a client that receives nothing for 30 seconds is closed, and one that is gone at once,
// and that what they followed is given back.
func TestSlowFollowers(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		defer w.Advance()()
		conn := w.Request("GET", "/changes", kit.AcceptEvents)
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, w.Config.Feeds.Stats().Watchers)
		time.Sleep(2 * time.Second)
		require.Zero(t, w.Config.Feeds.Stats().Watchers)
		require.NoError(t, conn.Close())

		conn = w.Request("GET", "/changes?user=alice&user=bob", kit.AcceptEvents)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // closed below
		require.NoError(t, err)
		kit.NewEventReader(t, response.Body).Changes()
		require.Equal(t, 2, w.Config.Feeds.Stats().Watches)
		require.NoError(t, conn.Close())
		synctest.Wait()
		require.Zero(t, w.Config.Feeds.Stats().Watches)
	})
}

// TestFollowedNamespaces checks that a caller follows at most 100 namespaces in a minute by requests of any kind, and
// that those that are still followed count after it.
func TestFollowedNamespaces(t *testing.T) {
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	t.Parallel()
	guarded, one, two, token := apitest.TwoKeys(t)
	clock, pass := apitest.AtMinutes()
	w := newLiveServer(t, guarded, clock)
	for caller, other := range map[string]string{
		kit.ForwardedFor("203.0.113.7"): kit.ForwardedFor("203.0.113.8"), kit.Bearer(one): kit.Bearer(two), kit.Bearer(token("alice")): kit.Bearer(token("bob")),
	} {
		pass(time.Hour)
		followed := w.Follow("GET", "/room-0/changes?user=bob", "", caller)
		followed.Changes()
		w.FollowEach(0, kit.MaxNamespaces, caller)
		w.FollowEach(0, kit.MaxNamespaces, caller)
		for _, path := range []string{"?user=bob", "?contacts_of=alice", "", "?wait=50s"} {
			if path == "?contacts_of=alice" && strings.HasPrefix(caller, "X-") {
				continue // needs the scope ping
			}
			for _, accept := range []string{"Accept: */*", kit.AcceptEvents} {
				w.Fails(problem.RateLimited, "GET", "/one-more/changes"+path, "", caller, accept)
			}
		}
		w.Fails(problem.RateLimited, "POST", "/one-more/changes", `{"users":["bob"]}`, caller)
		refused := w.Send("GET", "/one-more/changes", "", caller).Is(t, http.StatusTooManyRequests)
		require.Equal(t, "60", refused.Header.Get("Retry-After"))
		w.Get("/one-more/users/bob", caller)
		w.Get("/one-more/changes", other)

		pass(time.Minute - 1)
		w.Fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
		pass(1)
		w.FollowEach(100, 100+kit.MaxNamespaces-1, caller)
		w.Fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
		w.FollowEach(0, 1, caller)
		followed.Closed()
	}
	pass(time.Hour)
	w.FollowEach(0, kit.MaxNamespaces+1) // from this machine
}

// TestFollowedNamespacesWithErrors checks that a request that fails ends to follow its namespace.
func TestFollowedNamespacesWithErrors(t *testing.T) {
	clock, pass := apitest.AtMinutes()
	s := kit.FileStore(t)
	w := apitest.NewServer(t, s, apitest.WithStoreTime(s), clock, func(c *api.Config) {
		c.Feeds = apitest.NewFeeds(t, s, c.Settings, 1)
	})
	for n := range kit.MaxNamespaces {
		path := fmt.Sprintf("/room-%d/changes?user=a&user=b", n)
		w.Fails(problem.Overloaded, "GET", path, "", kit.ForwardedFor("203.0.113.7"))
	}
	pass(time.Minute)
	w.FollowEach(100, 100+kit.MaxNamespaces, kit.ForwardedFor("203.0.113.7"))
}

// newLiveServer serves a store whose changes are followed.
func newLiveServer(t *testing.T, changes ...func(*api.Config)) *apitest.Server {
	t.Helper()
	s := kit.FileStore(t)
	return apitest.NewServer(t, s, append([]func(*api.Config){apitest.WithStoreTime(s)}, changes...)...)
}
