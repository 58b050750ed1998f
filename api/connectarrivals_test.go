package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// fewArrivals returns arrivals with some slots. It runs in a bubble, whose time is time.Now.
func fewArrivals(slots int) *arrivals {
	a := newArrivals(time.Now)
	a.slots = slots
	return a
}

// waiters has clients wait, in order. It returns where each reports how its waiting ended, by number.
func waiters(ctx context.Context, a *arrivals, n int) <-chan int {
	ended := make(chan int, n)
	for i := range n {
		go func() {
			if a.enter(ctx) != nil {
				i = -1
			}
			ended <- i
		}()
		synctest.Wait() // so that the next one comes later
	}
	return ended
}

// TestArrivalsInOrder: clients get slots in the order in which they came; those who go away lose nothing for others.
func TestArrivalsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := fewArrivals(2)
		require.NoError(t, a.enter(t.Context()))
		require.NoError(t, a.enter(t.Context()))
		first := waiters(t.Context(), a, 2)
		impatient, goAway := context.WithCancel(t.Context())
		second := waiters(impatient, a, 1)
		third := waiters(t.Context(), a, 1)
		a.leave()
		require.Equal(t, 0, <-first)
		goAway()
		require.Equal(t, -1, <-second)
		a.leave()
		require.Equal(t, 1, <-first)
		a.leave()
		require.Equal(t, 0, <-third)
		a.leave()
		a.leave()
		require.Zero(t, a.taken)
		require.Zero(t, a.queue.Len())
	})
}

// TestArrivalsAbandonTurn: a client that goes away when it has got its slot gives it to the next one.
func TestArrivalsAbandonTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := fewArrivals(1)
		turn := make(chan struct{})
		place := a.queue.PushBack(turn)
		a.taken = 1
		next := waiters(t.Context(), a, 1)
		a.leave()
		a.abandon(place)
		require.Equal(t, 0, <-next)
		a.leave()
		require.Zero(t, a.taken)
	})
}

// TestArrivalsRefuse: clients are refused when those before them would take too long at the current rate, and no longer
// when it has risen.
func TestArrivalsRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := fewArrivals(1)
		require.NoError(t, a.enter(ctx))
		ended := waiters(ctx, a, 11)
		time.Sleep(arrivalsWindow)
		a.leave() // one a second, and 10 are left
		e, ok := errors.AsType[*problem.Error](a.enter(ctx))
		require.True(t, ok)
		require.Equal(t, problem.Overloaded, e.Code)
		require.Equal(t, 10, a.queue.Len())
		time.Sleep(arrivalsWindow)
		a.leave()
		a.leave()
		synctest.Wait()
		require.Len(t, ended, 3)
		ended = waiters(ctx, a, 1)
		require.Equal(t, 9, a.queue.Len(), "8 clients take 8 seconds")
		cancel()
		require.Equal(t, -1, <-ended)
	})
}

// TestArrivalsRefuseWhenStuck: a store that hangs is noticed without any client being served.
func TestArrivalsRefuseWhenStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := fewArrivals(1)
		require.NoError(t, a.enter(ctx))
		ended := waiters(ctx, a, 2)
		time.Sleep(maxArrivalWait)
		require.Error(t, a.enter(ctx), "2 clients, and not even one was served in 8 seconds")
		cancel()
		require.Equal(t, -2, <-ended+<-ended)
	})
}

// TestArrivalsComeBackInTurn: refused clients are asked to come back at the rate at which they can be served.
func TestArrivalsComeBackInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := fewArrivals(1)
		times := map[int64]int{}
		for range 4 * usualArrivals {
			times[a.book()]++
		}
		for second, n := range times {
			require.InDelta(t, usualArrivals, n, 2, second)
		}
		require.Len(t, times, 4)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 3, a.book(), "time has passed")
		for range int(maxReturn/time.Second) * usualArrivals {
			require.LessOrEqual(t, a.book(), int64(maxReturn/time.Second)+1)
		}
	})
}

// jam has a server take no clients, as if those before them did not end.
func jam(w *testServer) {
	a := w.config.Shared.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots, a.taken, a.since = 1, 1, a.now().Add(-time.Hour)
	a.queue.PushBack(make(chan struct{}))
}

// TestConnectRefusedEarly: a client that would wait for too long is refused before the upgrade, and is asked to come
// back.
func TestConnectRefusedEarly(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	jam(w)
	w.refused(problem.Overloaded)
	response := w.sendTo("GET", "/v1/namespaces/chat/connect", "", upgradeHeaders()...)
	after, err := strconv.Atoi(response.header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, after)
	require.Zero(t, w.config.Shared.WebSockets())
}

// TestConnectGivesSlotBack: a client that is slow to say hello gives its slot to others, and waits for another one.
func TestConnectGivesSlotBack(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	late, later := w.dialSocket("chat"), w.dialSocket("chat")
	w.awaitSockets(2)
	// a client can know that it is connected before the server has noted all
	for _, n := range w.config.Shared.sockets.all() {
		awaitLocked(t, &n.mu, func() bool { return n.arriving })
		n.wake() // as its timer does
	}
	a := w.config.Shared.arrivals
	awaitLocked(t, &a.mu, func() bool { return a.taken == 0 })
	late.send(`{"hello":{}}`)
	late.want(frameWelcome)
	jam(w)
	later.send(`{"hello":{}}`)
	refusal := later.want(frameProblem)
	require.Equal(t, string(problem.Overloaded), refusal["code"])
	require.Positive(t, refusal["retry_after_ms"])
	later.closed(4503, string(problem.Overloaded))
	w.awaitSockets(1)
}

// TestConnectDrainingWhileWaiting: a client whose turn comes when the server shuts down is refused before the upgrade.
func TestConnectDrainingWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	a := w.config.Shared.arrivals
	a.slots = 1
	require.NoError(t, a.enter(t.Context()))
	refused := w.later("GET", "/chat/connect", "", upgradeHeaders()...)
	awaitLocked(t, &a.mu, func() bool { return a.queue.Len() == 1 })
	w.config.Shared.Drain()
	a.leave()
	(<-refused).is(t, http.StatusServiceUnavailable)
}

// stuckListener accepts connections of which the first one to be sent a frame welcome does not take it.
type stuckListener struct {
	net.Listener
	stuck chan struct{} // closed when the frame is being sent
	any   *atomic.Bool
	end   <-chan struct{}
}

func (l stuckListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return stuckConn{conn, l}, err
}

type stuckConn struct {
	net.Conn
	listener stuckListener
}

func (c stuckConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(`"welcome"`)) && !c.listener.any.Swap(true) {
		close(c.listener.stuck)
		<-c.listener.end
	}
	return c.Conn.Write(b)
}

// TestConnectSlowReaderKeepsNobodyWaiting: others begin while a client does not receive its frame welcome, which can
// take it half a minute.
func TestConnectSlowReaderKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	w.config.Shared.arrivals.slots, w.config.Shared.arrivals.hellos = 1, make(chan struct{}, 1)
	end, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewUnstartedServer(w)
	listener := stuckListener{server.Listener, make(chan struct{}), &atomic.Bool{}, end.Done()}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	w.url = server.URL
	slow := w.greet(`{}`)
	<-listener.stuck
	w.hello(`{}`)
	stop()
	slow.want(frameWelcome)
}

// panickyWriter is a response writer that panics when the connection is taken over.
type panickyWriter struct{ *httptest.ResponseRecorder }

func (panickyWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { panic("hijack") }

// TestConnectPanicLosesNoPlace: a defect in beginning a session keeps no place among the limits.
func TestConnectPanicLosesNoPlace(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	panicky := http.HandlerFunc(func(r http.ResponseWriter, request *http.Request) {
		w.ServeHTTP(panickyWriter{r.(*httptest.ResponseRecorder)}, request)
	})
	r := serve(panicky, "GET", "/v1/namespaces/chat/connect", "", upgradeHeaders()...)
	require.Equal(t, http.StatusInternalServerError, r.Code)
	require.Zero(t, w.config.Shared.WebSockets())
	require.Zero(t, w.config.Shared.arrivals.taken)
}

// TestRemovedKeyIsCharged checks that a stream whose key is removed by a reload ends, and is charged like any other
// request with invalid credentials: to its address.
func TestRemovedKeyIsCharged(t *testing.T) {
	key, old := newKey("old", "*", auth.Ping)
	other, _ := newKey("new", "*", auth.Ping)
	w := newTestServer(t, fileStore(t), behindProxy, func(c *Config) {
		c.Auth = newAuthenticator(t, auth.Config{Keys: []auth.Key{key}})
	})
	address := from("203.0.113.7")
	s := w.upload(bearer(old), address)
	fmt.Fprint(s, "{\"user\":\"alice\"}\n\n") // the end of the chunk
	await(t, func() bool { return w.stored() == 1 })
	w.reload(func(c *Config) { c.Auth = newAuthenticator(t, auth.Config{Keys: []auth.Key{other}}) })
	fmt.Fprint(s, "{\"user\":\"bob\"}\n")
	require.NoError(t, s.Close())
	(<-s.response).is(t, http.StatusUnauthorized)
	for range limit.Burst(1) - 1 {
		w.fails(problem.Unauthenticated, "POST", alicePing, "", bearer(old), address)
	}
	w.fails(problem.RateLimited, "POST", alicePing, "", bearer(old), address)
}
