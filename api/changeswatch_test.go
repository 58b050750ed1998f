package api

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// TestTicks follows a user who is silent, for longer than any time limit of the server: each decay arrives within 1.5
// seconds, and something does every 20 seconds.
func TestTicks(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		w.whole("POST", "/users/alice/ping")
		pinged := time.Now()
		r := w.follow()
		require.Equal(t, []string{"alice green"}, statuses(r.changes().data))
		last, asOf, ticks, seen := time.Now(), "", 0, []string{}
		for time.Since(pinged) < 10*time.Minute {
			e, ok := r.next()
			require.True(t, ok)
			require.LessOrEqual(t, time.Since(last), tickInterval)
			require.Greater(t, e.data["as_of"], asOf)
			require.Equal(t, e.id, cursorOf(e.data))
			last, asOf = time.Now(), e.data["as_of"].(string)
			if e.name == eventTick {
				ticks++
				continue
			}
			seen = append(seen, statuses(e.data)...)
			after := map[int]time.Duration{1: time.Minute, 2: 5 * time.Minute}[len(seen)]
			require.InDelta(t, after.Seconds()+0.75, time.Since(pinged).Seconds(), 0.75)
		}
		require.Equal(t, []string{"alice yellow", "alice grey"}, seen)
		require.Greater(t, ticks, 30)
	})
}

// TestNoTicks checks that there are no ticks while changes are not swept, so that clients notice, and that polls are
// refused.
func TestNoTicks(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		stop := w.sweep()
		r := w.follow()
		first := r.changes()
		stop()
		stopped := time.Now()
		events := make(chan sentEvent)
		go func() {
			for e, ok := r.next(); ok; e, ok = r.next() {
				events <- e
			}
		}()
		time.Sleep(2 * time.Minute)
		select {
		case e := <-events:
			t.Errorf("%s after %s", e.name, time.Since(stopped))
		default:
		}
		for _, wait := range []string{"0", "20s"} {
			r := w.whole("GET", "/changes?user=alice&wait="+wait+"&cursor="+first.id)
			require.Equal(t, http.StatusServiceUnavailable, r.status)
		}
		defer w.sweep()()
		resumed := time.Now()
		require.Equal(t, eventTick, (<-events).name)
		require.Less(t, time.Since(resumed), 10*time.Second)
		w.config.Shared.Drain()
	})
}

// TestLongPollWaits checks that a long poll takes the time that was asked for, and has nothing then.
func TestLongPollWaits(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		first := w.whole("GET", "/changes?user=alice").json(t)
		began := time.Now()
		r := w.whole("GET", "/changes?user=alice&wait=50s&cursor="+cursorOf(first))
		require.InDelta(t, 50, time.Since(began).Seconds(), 0.5)
		require.Equal(t, http.StatusOK, r.status)
		require.Empty(t, statuses(r.json(t)))
		require.NotEmpty(t, cursorOf(r.json(t)))
	})
}

// TestWaitingEndsWithTheToken checks that a stream ends, and a long poll is refused, at the second at which the token
// expires.
func TestWaitingEndsWithTheToken(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		authenticator, token := signed(t, func(c *auth.Config) { c.Tokens.Leeway = 10 * time.Second })
		w.reload(func(c *Config) { c.Auth = authenticator })
		expires, alice := time.Now().Add(35*time.Second), bearer(token("alice", 35*time.Second))
		r := w.follow(alice)
		poll := w.request("GET", "/changes?user=alice&wait=50s&cursor="+r.changes().id, alice)
		for ok := true; ok; {
			_, ok = r.next()
		}
		require.InDelta(t, 10, time.Since(expires).Seconds(), 1, "the leeway")
		readResponse(t, poll).is(t, http.StatusUnauthorized)
		require.InDelta(t, 10, time.Since(expires).Seconds(), 1)
		require.NoError(t, poll.Close())
	})
}

// TestReloadEndsWaiting checks that a reload that removes a key, its namespaces or the namespace ends streams at once,
// and long polls get the error of a new request; and that other reloads do not end them.
func TestReloadEndsWaiting(t *testing.T) {
	service, key := newKey("service", "cha*", auth.Read)
	elsewhere, pinger, removed := service, service, service
	elsewhere.Namespaces, pinger.Scopes = []auth.Pattern{"other"}, []auth.Scope{auth.Ping}
	_, removed.Hash = auth.NewKey()
	for name, c := range map[string]struct {
		key    auth.Key
		refuse bool
		status int
	}{
		"removed":    {removed, false, http.StatusUnauthorized},
		"namespaces": {elsewhere, false, http.StatusForbidden},
		"scope":      {pinger, false, http.StatusForbidden},
		"unknown":    {service, true, http.StatusNotFound},
		"unchanged":  {service, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withWaiting(t, func(t *testing.T, w *waitServer) {
				defer w.sweep()()
				w.authenticate(auth.Config{Keys: []auth.Key{service}})
				r := w.follow(bearer(key))
				poll := w.request("GET", "/changes?user=alice&wait=50s&cursor="+r.changes().id, bearer(key))
				time.Sleep(5 * time.Second)
				w.reload(func(config *Config) { config.RefuseUnknown = c.refuse })
				w.authenticate(auth.Config{Keys: []auth.Key{c.key}})
				reloaded := time.Now()
				if c.status == 0 {
					_, ok := r.next()
					require.True(t, ok, "a tick")
				} else {
					readResponse(t, poll).is(t, c.status)
					_, ok := r.next()
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
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		conn := w.request("GET", "/changes", acceptEvents)
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, w.config.Feeds.Stats().Watchers)
		time.Sleep(2 * time.Second)
		require.Zero(t, w.config.Feeds.Stats().Watchers)
		require.NoError(t, conn.Close())

		conn = w.request("GET", "/changes?user=alice&user=bob", acceptEvents)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // closed below
		require.NoError(t, err)
		newEventReader(t, response.Body).changes()
		require.Equal(t, 2, w.config.Feeds.Stats().Watches)
		require.NoError(t, conn.Close())
		synctest.Wait()
		require.Zero(t, w.config.Feeds.Stats().Watches)
	})
}

func TestAcceptsEvents(t *testing.T) {
	for want, headers := range map[bool][]string{
		true: {
			"text/event-stream", "Text/Event-Stream", "text/event-stream;q=0.1", "text/event-stream;charset=utf-8",
			"text/event-stream, */*", "text/event-stream;q=0.5, */*", // a wildcard is no preference for JSON
			"application/json, text/event-stream", "application/json;q=0.9, text/event-stream",
			"text/event-stream;q=0, text/event-stream;q=0.5",
		},
		false: {
			"", "*/*", "text/*", "application/json", "text/event-stream; charset=utf-8; q=0",
			"application/json, text/event-stream;q=0.9", "text/event-stream;q=0", "text/event-stream;q=2", // malformed
			"text/event-stream2, text/html", "application/json, text/plain, */*",
		},
	} {
		for _, accept := range headers {
			require.Equal(t, want, acceptsEvents([]string{accept}), accept)
		}
	}
	require.False(t, acceptsEvents(nil))
	require.True(t, acceptsEvents([]string{"text/html", "text/event-stream"}), "in two headers")
}

// TestChangesCursors checks that cursors hold any places, and are bound to the namespace and to changes.
func TestChangesCursors(t *testing.T) {
	testenv.SkipWithRace(t, "nothing runs at the same time")
	for _, places := range [][]store.Place{
		{"1-0:a"}, {""}, {"a", "", "b\x00\n\"c"}, slices.Repeat([]store.Place{"1795212030000-0:5bcf34c91ed02aa6-12"}, 64),
	} {
		cursor := changesCursor("chat", places)
		require.NotContains(t, cursor, "\n")
		got, err := openChangesCursor("chat", cursor)
		require.NoError(t, err)
		require.Equal(t, places, got)
		for _, forged := range forgeries(cursor) {
			_, err := openChangesCursor("chat", forged)
			requireCode(t, problem.InvalidCursor, err)
		}
		_, err = openChangesCursor("chat2", cursor)
		requireCode(t, problem.InvalidCursor, err)
		_, _, err = parseListCursor("chat", cursor)
		require.Error(t, err, "it is not a cursor of a list")
	}
}

// TestForeignChangesCursors checks that well-sealed content of another form is refused before it takes memory.
func TestForeignChangesCursors(t *testing.T) {
	for _, content := range []string{
		"", "\x00", "\x01", "\x01\x05abc", "\x01\x01ab", "\x02\x01a", "\x41" + strings.Repeat("\x00", 65),
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("x", maxChangesCursor),
	} {
		_, err := openChangesCursor("chat", sealCursor(changesList("chat"), []byte(content)))
		requireCode(t, problem.InvalidCursor, err)
	}
	_, err := openChangesCursor("chat", sealCursor("chat", []byte("\x01\x00")))
	requireCode(t, problem.InvalidCursor, err)
	_, err = openChangesCursor("chat", sealCursor(changesList("chat"), []byte("\x01\x00")))
	require.NoError(t, err)
}

func requireCode(t *testing.T, want problem.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, classify(err).Code)
}

// FuzzChangesCursor checks that no content makes the server fail, and that what is accepted has one form.
func FuzzChangesCursor(f *testing.F) {
	f.Add([]byte("\x01\x051-0:a"))
	f.Add([]byte("\x02\x00\x01b"))
	f.Fuzz(func(t *testing.T, content []byte) {
		cursor := sealCursor(changesList("chat"), content)
		places, err := openChangesCursor("chat", cursor)
		if err != nil {
			return
		}
		again, err := openChangesCursor("chat", changesCursor("chat", places))
		require.NoError(t, err)
		require.Equal(t, places, again)
		_, err = openChangesCursor("chat", base64.RawURLEncoding.EncodeToString(content))
		require.Error(t, err, "it is not sealed")
	})
}

// atMinutes makes the server trust X-Forwarded-For of the test's client, and returns how its clock goes on.
func atMinutes() (configure func(*Config), pass func(time.Duration)) {
	var now atomic.Int64
	return func(c *Config) {
		behindProxy(c)
		c.Limits, c.Now = limit.Limits{}, func() time.Time { return time.Unix(0, now.Load()) }
	}, func(d time.Duration) { now.Add(int64(d)) }
}

// followEach polls the changes of the namespaces first..end-1, and requires that they are not refused.
func (w *testServer) followEach(first, end int, headers ...string) {
	w.t.Helper()
	for n := first; n < end; n++ {
		w.get(fmt.Sprintf("/room-%d/changes?user=bob", n), headers...)
	}
}

// TestFollowedNamespaces checks that a caller follows at most 100 namespaces in a minute by requests of any kind, and
// that those that are still followed count after it.
func TestFollowedNamespaces(t *testing.T) {
	testenv.SkipWithRace(t, "one request at a time finds nothing")
	t.Parallel()
	guarded, one, two, token := twoKeys(t)
	clock, pass := atMinutes()
	w := newLiveServer(t, guarded, clock)
	for caller, other := range map[string]string{
		from("203.0.113.7"): from("203.0.113.8"), bearer(one): bearer(two), bearer(token("alice")): bearer(token("bob")),
	} {
		pass(time.Hour)
		followed := w.follow("GET", "/room-0/changes?user=bob", "", caller)
		followed.changes()
		w.followEach(0, maxNamespaces, caller)
		w.followEach(0, maxNamespaces, caller)
		for _, path := range []string{"?user=bob", "?contacts_of=alice", "", "?wait=50s"} {
			if path == "?contacts_of=alice" && strings.HasPrefix(caller, "X-") {
				continue // needs the scope ping
			}
			for _, accept := range []string{"Accept: */*", acceptEvents} {
				w.fails(problem.RateLimited, "GET", "/one-more/changes"+path, "", caller, accept)
			}
		}
		w.fails(problem.RateLimited, "POST", "/one-more/changes", `{"users":["bob"]}`, caller)
		refused := w.send("GET", "/one-more/changes", "", caller).is(t, http.StatusTooManyRequests)
		require.Equal(t, "60", refused.header.Get("Retry-After"))
		w.get("/one-more/users/bob", caller)
		w.get("/one-more/changes", other)

		pass(time.Minute - 1)
		w.fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
		pass(1)
		w.followEach(100, 100+maxNamespaces-1, caller)
		w.fails(problem.RateLimited, "GET", "/one-more/changes", "", caller)
		w.followEach(0, 1, caller)
		followed.closed()
	}
	pass(time.Hour)
	w.followEach(0, maxNamespaces+1) // from this machine
}

// TestFollowedNamespacesWithErrors checks that a request that fails ends to follow its namespace.
func TestFollowedNamespacesWithErrors(t *testing.T) {
	clock, pass := atMinutes()
	s := fileStore(t)
	w := newTestServer(t, s, live(s), clock, func(c *Config) { c.Feeds = followedUpTo(t, s, c.Settings, 1) })
	for n := range maxNamespaces {
		path := fmt.Sprintf("/room-%d/changes?user=a&user=b", n)
		w.fails(problem.Overloaded, "GET", path, "", from("203.0.113.7"))
	}
	pass(time.Minute)
	w.followEach(100, 100+maxNamespaces, from("203.0.113.7"))
}
