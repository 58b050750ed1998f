package session_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// TestConnectLimits: how many can be open.
func TestConnectLimits(t *testing.T) {
	w := apitest.NewSocketServer(t, apitest.BehindProxy, func(c *api.Config) {
		c.WebSockets = api.WebSocketLimits{Max: 3, PerAddress: 1}
		c.Limits.Caller = 100
	})
	one := w.DialSocket("chat", kit.ForwardedFor("203.0.113.7"))
	w.Refused(problem.RateLimited, kit.ForwardedFor("203.0.113.7"))
	two := w.DialSocket("chat", kit.ForwardedFor("203.0.113.8"))
	one.Send(`{"hello":{}}`)
	one.Want("welcome")
	three := w.DialSocket("chat", kit.ForwardedFor("203.0.113.7")) // the other one has said hello
	w.Refused(problem.Overloaded, kit.ForwardedFor("203.0.113.9"))
	require.Equal(t, 3, w.Config.Shared.WebSockets())
	for _, s := range []*kit.Socket{one, two, three} {
		require.NoError(t, s.Conn.Close())
	}
	w.AwaitSockets(0)
	w.DialSocket("chat", kit.ForwardedFor("203.0.113.7"))
}

// TestConnectFailsWithoutWaiting: the end of a session does not wait for a client that receives nothing.
func TestConnectFailsWithoutWaiting(t *testing.T) {
	w := apitest.NewSocketServer(t)
	w.Hello(`{"user":"alice"}`)
	n := w.Config.Shared.Sessions()[0]
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { n.Send(make([]byte, 64<<20)) })
	time.Sleep(100 * time.Millisecond) // until the buffers of the connection are full
	ended := make(chan struct{})
	go func() {
		n.End(connections.Closed)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(transport.WriteTimeout / 2):
		t.Error("it waits")
	}
}

// TestCheckBeginsWithKeys: after a reload, the connections of API keys are checked first.
func TestCheckBeginsWithKeys(t *testing.T) {
	t.Parallel()
	w, headers := apitest.NewGuardedSocketServer(t)
	for _, name := range []string{"alice", "all", "alice", "bob", "all", "alice"} {
		user := name
		if name == "all" {
			user = "carol"
		}
		w.Hello(`{"user":"`+user+`"}`, "Authorization: "+headers[name])
	}
	w.DialSocket("chat") // has no caller yet
	sessions := session.KeysFirst(w.Config.Shared.Sessions())
	require.Len(t, sessions, 7)
	for i, n := range sessions {
		isToken := n.Caller() != nil && n.Caller().Kind == auth.ByToken
		require.Equal(t, i >= 3, isToken, i)
	}
	w.Config.Shared.CheckSockets()
	require.Equal(t, 7, w.Config.Shared.WebSockets(), "nobody was closed")
}

// TestCheckThatPanics: a defect in authenticating some clients again closes their connections alone.
func TestCheckThatPanics(t *testing.T) {
	t.Parallel()
	w, headers := apitest.NewGuardedSocketServer(t)
	alice, _ := w.Hello(`{"user":"alice"}`, "Authorization: "+headers["alice"])
	bob, _ := w.Hello(`{"user":"bob"}`, "Authorization: "+headers["bob"])
	authenticate := w.Config.Shared.Authenticate
	w.Config.Shared.Authenticate = func(ctx context.Context, credentials []string) (*auth.Caller, error) {
		if credentials[0] == headers["alice"] {
			panic("a defect")
		}
		return authenticate(ctx, credentials)
	}
	w.Config.Shared.CheckSockets()
	alice.Closed(problem.Internal.CloseCode(), string(problem.Internal))
	bob.Quiet()
}

// TestConnectWatchesAreCounted: a user with a token follows a limited number of users over all connections.
func TestConnectWatchesAreCounted(t *testing.T) {
	w, headers := apitest.NewGuardedSocketServer(t)
	s, _ := w.Hello(`{"watch":{"users":["bob","bob","carol"]}}`, kit.BearerOf(headers["alice"]))
	shared, alice := w.Config.Shared, limit.ByUser("issuer", "alice")
	counts := func() int { return shared.WatchesOf(alice) }
	require.Equal(t, 2, counts())
	s.Asks(`{"watch":{"add":["carol","dave"]}}`, "changes")
	require.Equal(t, 3, counts())
	s.Asks(`{"watch":{"remove":["bob","dave","eve"]}}`, "ok")
	require.Equal(t, 1, counts())
	more, err := shared.Watch(shared.Sessions()[0].Caller(), store.MaxWatched-1)
	require.NoError(t, err)
	s.Refuses(problem.RateLimited, `{"watch":{"add":["eve"]}}`)
	s.Refuses(problem.RateLimited, `{"watch":{"everyone":true}}`)
	more()
	require.Equal(t, 1, counts(), "what is refused changes nothing")
	s.Asks(`{"watch":{"everyone":true}}`, "changes")
	require.Equal(t, 1, counts())
	s.Asks(`{"watch":{"everyone":false}}`, "ok")
	require.Zero(t, counts())
	require.NoError(t, s.Conn.Close())
	kit.Await(t, func() bool { return counts() == 0 })
}

// TestConnectCountsWatchesOfCaller: users are counted to the same caller at the end as at the start, although a reload
// can change the caller of a session.
func TestConnectCountsWatchesOfCaller(t *testing.T) {
	authenticator, headers := kit.Callers(t)
	w := apitest.NewSocketServer(t)
	s, _ := w.Hello(`{"watch":{"users":["bob"]}}`, "Authorization: "+headers["alice"])
	w.Reload(func(c *api.Config) { c.Auth = authenticator })
	n := w.Config.Shared.Sessions()[0]
	kit.Await(t, func() bool { return n.Caller() != nil })
	s.Asks(`{"watch":{"add":["carol"]}}`, "changes")
	require.NoError(t, s.Conn.Close())
	w.AwaitSockets(0)
	require.Zero(t, w.Config.Shared.WatchesOf(limit.ByUser("issuer", "alice")))
}

// TestConnectCounts: counts are sent when they change, and are shared by all connections.
func TestConnectCounts(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		w.Connects()
		w.Do("POST", "/users/alice/ping", "")
		one, _ := w.Hello(`{"watch":{"counts":true}}`)
		counts := one.Want("counts")
		require.EqualValues(t, 1, counts["green"])
		require.EqualValues(t, 1, counts["total"])
		two, _ := w.Hello(`{"user":"bob"}`)
		two.Asks(`{"watch":{"counts":true}}`, "ok")
		two.Want("counts")
		require.EqualValues(t, 2, one.Want("counts")["green"])
		require.Equal(t, 2, w.Config.Shared.CountFollowers("chat"))
	})
}

// TestConnectWatchFailsAsAWhole: a frame whose users cannot be watched does not begin or end counts, either.
func TestConnectWatchFailsAsAWhole(t *testing.T) {
	t.Parallel()
	w, headers := apitest.NewGuardedSocketServer(t)
	followers := func() int { return w.Config.Shared.CountFollowers("chat") }
	c, _ := w.Hello(`{"user":"alice"}`, kit.BearerOf(headers["alice"]))
	_, err := w.Config.Shared.Watch(w.Config.Shared.Sessions()[0].Caller(), store.MaxWatched)
	require.NoError(t, err)
	c.Refuses(problem.RateLimited, `{"watch":{"counts":true,"add":["bob"]}}`)
	require.Zero(t, followers())
	c.Asks(`{"watch":{"counts":true}}`, "ok")
	require.Equal(t, 1, followers())
	for _, counts := range []string{"true", "false"} { // counts can come before the response
		refusal := c.AsksDespite(`{"watch":{"counts":`+counts+`,"add":["bob"]}}`, "problem", "counts")
		require.Equal(t, string(problem.RateLimited), refusal["code"])
		require.Equal(t, 1, followers(), counts)
	}
}
