package sockettests

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestTyping: the connections of the users who are named get a frame, on all servers, and no others.
func TestTyping(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		alice, _ := one.Hello(`{"user":"alice"}`)
		bobs := []*kit.Socket{}
		for _, w := range []*apitest.Server{one, one, two} {
			bob, _ := w.Hello(`{"user":"bob"}`)
			bobs = append(bobs, bob)
		}
		carol, _ := two.Hello(`{"user":"carol"}`)
		watcher, _ := two.Hello(`{"watch":{"users":["nobody"]}}`)
		require.Empty(t, alice.Asks(`{"typing":{"to":["bob","nobody","bob"],"in":"room-7"}}`, "ok"))
		require.Empty(t, alice.Asks(`{"typing":{"to":["bob","carol"]}}`, "ok"))
		for _, bob := range bobs {
			want := map[string]any{"user": "alice", "in": "room-7", "expires_in_ms": 10_000.}
			require.Equal(t, want, bob.Want("typing"))
			require.Equal(t, map[string]any{"user": "alice", "expires_in_ms": 10_000.}, bob.Want("typing"))
			bob.Quiet() // nothing else came before
		}
		require.NotContains(t, carol.Want("typing"), "in")
		for _, other := range []*kit.Socket{alice, carol} {
			other.Quiet()
		}
		watcher.Asks(`{"watch":{"remove":["nobody"]}}`, "ok")
	})
}

// TestTypingOfTheInvisible: nobody learns that an invisible user types, wherever the user became invisible, and the
// response is the same.
func TestTypingOfTheInvisible(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		alice, _ := one.Hello(`{"user":"alice"}`)
		bob, _ := two.Hello(`{"user":"bob"}`)
		typing := func(in string) {
			require.Empty(t, alice.AsksDespite(`{"typing":{"to":["bob"],"in":"`+in+`"}}`, "ok", "self"))
		}
		typing("visible")
		require.Equal(t, "visible", bob.Want("typing")["in"])
		two.Say(`{"availability":"invisible"}`)
		typing("hidden")
		two.Say(`{"availability":"busy"}`)
		typing("visible again")
		require.Equal(t, "visible again", bob.Want("typing")["in"])
	})
}

// TestTypingOfTheInvisibleTakesAsLong: the store is called as for others, since a key that can only write must not
// learn who is invisible from the time that the response takes.
func TestTypingOfTheInvisibleTakesAsLong(t *testing.T) {
	t.Parallel()
	signals := make(chan string, 10)
	w := apitest.NewSocketServerOn(t, kit.HookedFileStore(t, func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "Signal ") && !strings.Contains(call, kit.SignalProbe) {
			signals <- call
		}
		return nil
	}))
	alice, _ := w.Hello(`{"user":"alice"}`)
	for _, availability := range []string{"busy", "invisible"} {
		w.Say(`{"availability":"` + availability + `"}`)
		require.Equal(t, "Signal "+"self"+" alice", <-signals)
		alice.Want("self")
		alice.Asks(`{"typing":{"to":["bob"]}}`, "ok")
		require.Len(t, signals, 1, availability)
		require.Contains(t, <-signals, "Signal "+"typing")
	}
}

// TestTypingIsCharged: each user counts.
func TestTypingIsCharged(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServer(t, apitest.BehindProxy, func(c *api.Config) { c.Limits = limit.Limits{Caller: 2} })
	alice, _ := w.Hello(`{"user":"alice"}`, kit.ForwardedFor("203.0.113.7"))
	burst := limit.Burst(2)
	for n := 1; n+2 <= burst; n += 2 {
		alice.Asks(`{"typing":{"to":["bob","carol"]}}`, "ok")
	}
	alice.Refuses(problem.RateLimited, `{"typing":{"to":["bob","carol"]}}`)
}

// TestTypingNeedsRights: a client that cannot read presences is not sent who types.
func TestTypingNeedsRights(t *testing.T) {
	t.Parallel()
	key, hash := auth.NewKey()
	all, allHash := auth.NewKey()
	authenticator := kit.NewAuthenticator(t, auth.Config{Keys: []auth.Key{
		{Name: "writer", Hash: hash, Scopes: []auth.Scope{auth.Ping}, Namespaces: []auth.Pattern{"*"}},
		{Name: "backend", Hash: allHash, Scopes: []auth.Scope{auth.Ping, auth.Read}, Namespaces: []auth.Pattern{"*"}},
	}})
	w := apitest.NewSocketServer(t, func(c *api.Config) { c.Auth = authenticator })
	blind, welcome := w.Hello(`{"user":"bob"}`, kit.Bearer(key))
	require.NotContains(t, welcome, "self")
	bob, _ := w.Hello(`{"user":"bob"}`, kit.Bearer(all))
	alice, _ := w.Hello(`{"user":"alice"}`, kit.Bearer(key))
	alice.Asks(`{"typing":{"to":["bob"]}}`, "ok")
	bob.Want("typing")
	w.Send("PUT", "/chat/users/bob/availability", `{"availability":"away"}`, kit.Bearer(all)).Is(t, http.StatusOK)
	bob.Want("self")
	blind.Quiet() // nothing else came before
}

// TestTypingIsMeasured: frames are counted where they come in and where they go out.
func TestTypingIsMeasured(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := apitest.NewSocketServer(t, func(c *api.Config) { c.Metrics = registry })
	alice, _ := w.Hello(`{"user":"alice"}`)
	bob, _ := w.Hello(`{"user":"bob"}`)
	alice.Asks(`{"typing":{"to":["bob","nobody"]}}`, "ok")
	bob.Want("typing")
	kit.Await(t, func() bool {
		got := kit.Samples(t, registry, "lastseen_websocket_typing_total")
		return got["in"] == 1 && got["out"] == 1
	})
}
