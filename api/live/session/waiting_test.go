package session_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestConnectRefusedEarly: a client that would wait for too long is refused before the upgrade, and is asked to come
// back.
func TestConnectRefusedEarly(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	w.Config.Shared.Jam()
	w.Refused(problem.Overloaded)
	response := w.SendTo("GET", "/v1/namespaces/chat/connect", "", kit.UpgradeHeaders()...)
	after, err := strconv.Atoi(response.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, after)
	require.Zero(t, w.Config.Shared.WebSockets())
}

// TestConnectGivesSlotBack: a client that is slow to say hello gives its slot to others, and waits for another one.
func TestConnectGivesSlotBack(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	late, later := w.DialSocket("chat"), w.DialSocket("chat")
	w.AwaitSockets(2)
	// a client can know that it is connected before the server has noted all
	for _, n := range w.Config.Shared.Sessions() {
		kit.Await(t, func() bool { return n.Arriving() })
		n.Wake() // as its timer does
	}
	kit.Await(t, func() bool { return w.Config.Shared.SlotsTaken() == 0 })
	late.Send(`{"hello":{}}`)
	late.Want("welcome")
	w.Config.Shared.Jam()
	later.Send(`{"hello":{}}`)
	refusal := later.Want("problem")
	require.Equal(t, string(problem.Overloaded), refusal["code"])
	require.Positive(t, refusal["retry_after_ms"])
	later.Closed(4503, string(problem.Overloaded))
	w.AwaitSockets(1)
}

// TestConnectDrainingWhileWaiting: a client whose turn comes when the server shuts down is refused before the upgrade.
func TestConnectDrainingWhileWaiting(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	enter, leave := w.Config.Shared.OneArrival()
	require.NoError(t, enter(t.Context()))
	refused := w.Later("GET", "/chat/connect", "", kit.UpgradeHeaders()...)
	kit.Await(t, func() bool { return w.Config.Shared.WaitingForSlot() == 1 })
	w.Config.Shared.Drain()
	leave()
	(<-refused).Is(t, http.StatusServiceUnavailable)
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
	w := apitest.NewSocketServer(t)
	w.Config.Shared.OneArrival()
	end, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewUnstartedServer(w)
	listener := stuckListener{server.Listener, make(chan struct{}), &atomic.Bool{}, end.Done()}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	w.URL = server.URL
	slow := w.Greet(`{}`)
	<-listener.stuck
	w.Hello(`{}`)
	stop()
	slow.Want("welcome")
}

// panickyWriter is a response writer that panics when the connection is taken over.
type panickyWriter struct{ *httptest.ResponseRecorder }

func (panickyWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { panic("hijack") }

// TestConnectPanicLosesNoPlace: a defect in beginning a session keeps no place among the limits.
func TestConnectPanicLosesNoPlace(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t)
	panicky := http.HandlerFunc(func(r http.ResponseWriter, request *http.Request) {
		w.ServeHTTP(panickyWriter{r.(*httptest.ResponseRecorder)}, request)
	})
	r := kit.Serve(panicky, "GET", "/v1/namespaces/chat/connect", "", kit.UpgradeHeaders()...)
	require.Equal(t, http.StatusInternalServerError, r.Code)
	require.Zero(t, w.Config.Shared.WebSockets())
	require.Zero(t, w.Config.Shared.SlotsTaken())
}

// TestRemovedKeyIsCharged checks that a stream whose key is removed by a reload ends, and is charged like any other
// request with invalid credentials: to its address.
func TestRemovedKeyIsCharged(t *testing.T) {
	key, old := kit.NewKey("old", "*", auth.Ping)
	other, _ := kit.NewKey("new", "*", auth.Ping)
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy, func(c *api.Config) {
		c.Auth = kit.NewAuthenticator(t, auth.Config{Keys: []auth.Key{key}})
	})
	address := kit.ForwardedFor("203.0.113.7")
	s := w.Upload(kit.Bearer(old), address)
	fmt.Fprint(s, "{\"user\":\"alice\"}\n\n") // the end of the chunk
	kit.Await(t, func() bool { return w.Stored() == 1 })
	w.Reload(func(c *api.Config) { c.Auth = kit.NewAuthenticator(t, auth.Config{Keys: []auth.Key{other}}) })
	fmt.Fprint(s, "{\"user\":\"bob\"}\n")
	require.NoError(t, s.Close())
	(<-s.Response).Is(t, http.StatusUnauthorized)
	for range limit.Burst(1) - 1 {
		w.Fails(problem.Unauthenticated, "POST", kit.AlicePing, "", kit.Bearer(old), address)
	}
	w.Fails(problem.RateLimited, "POST", kit.AlicePing, "", kit.Bearer(old), address)
}
