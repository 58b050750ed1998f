package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// waitServer is a server with the usual limits, in a bubble whose clock advances only when every goroutine waits. It
// follows and sweeps the changes of its store.
type waitServer struct {
	t       *testing.T
	config  Config
	handler atomic.Pointer[http.Handler]
	conns   chan net.Conn
	sweep   func() (stop func())
}

// withWaiting runs a test with a server.
func withWaiting(t *testing.T, test func(*testing.T, *waitServer)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		w := &waitServer{t: t, conns: make(chan net.Conn), config: Config{
			Store: fileStore(t), Logger: logger, Random: func() float64 { return 0.5 },
			Settings: Settings{
				Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
				PingInterval: 30 * time.Second,
			},
		}}
		of := func(string) feed.Settings {
			return feed.Settings{Thresholds: w.config.Settings.Thresholds, Mode: feed.On}
		}
		w.config.Feeds = feed.New(feed.Options{Store: w.config.Store, Settings: of, Logger: logger})
		defer w.run(w.config.Feeds.Run)()
		w.sweep = func() func() {
			sweep := jobs.NewSweep(w.config.Store, func() []string { return []string{"chat"} }, of, logger)
			return w.run(sweep.Run)
		}
		w.config.Shared = NewShared(w.config)
		w.reload(func(*Config) {})
		server := NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			(*w.handler.Load()).ServeHTTP(response, request)
		}), logger)
		p := &pipeListener{w.conns, make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		defer func() {
			require.NoError(t, server.Close())
			require.ErrorIs(t, <-served, http.ErrServerClosed)
		}()
		test(t, w)
	})
}

// run runs a job until the returned function is called.
func (w *waitServer) run(job func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { job(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *waitServer) reload(change func(*Config)) {
	change(&w.config)
	handler := New(w.config)
	w.handler.Store(&handler)
}

// send sends a request without a body and returns its response when it begins.
func (w *waitServer) send(method, path string, headers ...string) *http.Response {
	w.t.Helper()
	conn := w.request(method, path, headers...)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_ = conn.Close()
		_ = response.Body.Close()
	})
	return response
}

// request sends a request without a body and returns its connection.
func (w *waitServer) request(method, path string, headers ...string) net.Conn {
	w.t.Helper()
	ours, theirs := net.Pipe()
	w.conns <- theirs
	_, err := fmt.Fprintf(ours, "%s /v1/namespaces/chat%s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n", method, path)
	require.NoError(w.t, err)
	for _, h := range headers {
		_, err = fmt.Fprintf(ours, "%s\r\n", h)
		require.NoError(w.t, err)
	}
	_, err = fmt.Fprint(ours, "\r\n")
	require.NoError(w.t, err)
	return ours
}

const acceptEvents = "Accept: text/event-stream"

// follow opens a stream of events about alice.
func (w *waitServer) follow(headers ...string) *eventReader {
	w.t.Helper()
	headers = append(headers, acceptEvents)
	response := w.send(http.MethodGet, "/changes?user=alice", headers...) //nolint:bodyclose // the test's end does it
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	return newEventReader(w.t, response.Body)
}

// TestTicks follows a user who is silent, for longer than any time limit of the server: each decay arrives within 1.5
// seconds, and something does every 20 seconds.
func TestTicks(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.sweep()()
		w.whole(http.MethodPost, "/users/alice/ping")
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
			r := w.whole(http.MethodGet, "/changes?user=alice&wait="+wait+"&cursor="+first.id)
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
		first := w.whole(http.MethodGet, "/changes?user=alice").json(t)
		began := time.Now()
		r := w.whole(http.MethodGet, "/changes?user=alice&wait=50s&cursor="+cursorOf(first))
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
		w.authenticate(auth.Config{Tokens: &auth.Tokens{
			Secret: tokenSecret, Issuer: "issuer", Audience: "lastseen", Namespaces: []auth.Pattern{"*"},
			Leeway: 10 * time.Second,
		}})
		expires := time.Now().Add(35 * time.Second).Truncate(time.Second)
		signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"iss": "issuer", "aud": "lastseen", "sub": "alice", "exp": expires.Unix(),
		}).SignedString(tokenSecret)
		require.NoError(t, err)
		r := w.follow(bearer(signed))
		first := r.changes()
		poll := w.request(http.MethodGet, "/changes?user=alice&wait=50s&cursor="+first.id, bearer(signed))
		for ok := true; ok; {
			_, ok = r.next()
		}
		require.InDelta(t, 10, time.Since(expires).Seconds(), 1, "the leeway")
		response, err := http.ReadResponse(bufio.NewReader(poll), nil) //nolint:bodyclose // closed below
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, response.StatusCode)
		require.InDelta(t, 10, time.Since(expires).Seconds(), 1)
		require.NoError(t, poll.Close())
	})
}

// authenticate reloads the server with an authenticator.
func (w *waitServer) authenticate(c auth.Config) {
	w.t.Helper()
	authenticator, err := auth.New(c, auth.Options{})
	require.NoError(w.t, err)
	w.reload(func(c *Config) { c.Auth = authenticator })
}

// TestReloadEndsWaiting checks that a reload that removes a key, its namespaces or the namespace ends streams at once,
// and long polls get the error of a new request; and that other reloads do not end them.
func TestReloadEndsWaiting(t *testing.T) {
	key, hash := auth.NewKey()
	service := auth.Key{
		Name: "service", Hash: hash, Scopes: []auth.Scope{auth.Read}, Namespaces: []auth.Pattern{"cha*"},
	}
	elsewhere, pinger := service, service
	elsewhere.Namespaces, pinger.Scopes = []auth.Pattern{"other"}, []auth.Scope{auth.Ping}
	_, another := auth.NewKey()
	removed := service
	removed.Hash = another
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
				first := r.changes()
				poll := w.request(http.MethodGet, "/changes?user=alice&wait=50s&cursor="+first.id, bearer(key))
				time.Sleep(5 * time.Second)
				w.reload(func(config *Config) { config.RefuseUnknown = c.refuse })
				w.authenticate(auth.Config{Keys: []auth.Key{c.key}})
				reloaded := time.Now()
				if c.status == 0 {
					_, ok := r.next()
					require.True(t, ok, "a tick")
					require.NoError(t, poll.Close())
					return
				}
				response, err := http.ReadResponse(bufio.NewReader(poll), nil) //nolint:bodyclose // closed below
				require.NoError(t, err)
				require.Equal(t, c.status, response.StatusCode)
				_, ok := r.next()
				require.False(t, ok)
				require.Less(t, time.Since(reloaded), time.Second)
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
		conn := w.request(http.MethodGet, "/changes", acceptEvents)
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, w.config.Feeds.Stats().Watchers)
		time.Sleep(2 * time.Second)
		require.Zero(t, w.config.Feeds.Stats().Watchers)
		require.NoError(t, conn.Close())

		conn = w.request(http.MethodGet, "/changes?user=alice&user=bob", acceptEvents)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // closed below
		require.NoError(t, err)
		newEventReader(t, response.Body).changes()
		require.Equal(t, 2, w.config.Feeds.Stats().Watches)
		require.NoError(t, conn.Close())
		synctest.Wait()
		require.Zero(t, w.config.Feeds.Stats().Watches)
	})
}

// whole sends a request without a body and returns its whole response.
func (w *waitServer) whole(method, path string) testResponse {
	w.t.Helper()
	response := w.send(method, path)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return testResponse{response.StatusCode, response.Header, string(body)}
}
