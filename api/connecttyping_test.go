package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestTyping: the connections of the users who are named get a frame, on all servers, and no others.
func TestTyping(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		alice, _ := one.hello(`{"user":"alice"}`)
		bobs := []*testSocket{}
		for _, w := range []*testServer{one, one, two} {
			bob, _ := w.hello(`{"user":"bob"}`)
			bobs = append(bobs, bob)
		}
		carol, _ := two.hello(`{"user":"carol"}`)
		watcher, _ := two.hello(`{"watch":{"users":["nobody"]}}`)
		require.Empty(t, alice.asks(`{"typing":{"to":["bob","nobody","bob"],"in":"room-7"}}`, frameOK))
		require.Empty(t, alice.asks(`{"typing":{"to":["bob","carol"]}}`, frameOK))
		for _, bob := range bobs {
			want := map[string]any{"user": "alice", "in": "room-7", "expires_in_ms": 10_000.}
			require.Equal(t, want, bob.want(frameTyping))
			require.Equal(t, map[string]any{"user": "alice", "expires_in_ms": 10_000.}, bob.want(frameTyping))
			bob.quiet() // nothing else came before
		}
		require.NotContains(t, carol.want(frameTyping), "in")
		for _, other := range []*testSocket{alice, carol} {
			other.quiet()
		}
		watcher.asks(`{"watch":{"remove":["nobody"]}}`, frameOK)
	})
}

// TestTypingOfTheInvisible: nobody learns that an invisible user types, wherever the user became invisible, and the
// response is the same.
func TestTypingOfTheInvisible(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		alice, _ := one.hello(`{"user":"alice"}`)
		bob, _ := two.hello(`{"user":"bob"}`)
		typing := func(in string) {
			require.Empty(t, alice.asksDespite(`{"typing":{"to":["bob"],"in":"`+in+`"}}`, frameOK, frameSelf))
		}
		typing("visible")
		require.Equal(t, "visible", bob.want(frameTyping)["in"])
		two.say(`{"availability":"invisible"}`)
		typing("hidden")
		two.say(`{"availability":"busy"}`)
		typing("visible again")
		require.Equal(t, "visible again", bob.want(frameTyping)["in"])
	})
}

// TestTypingOfTheInvisibleTakesAsLong: the store is called as for others, since a key that can only write must not
// learn who is invisible from the time that the response takes.
func TestTypingOfTheInvisibleTakesAsLong(t *testing.T) {
	t.Parallel()
	signals := make(chan string, 10)
	w := newSocketServerOn(t, &hookedStore{Store: fileStore(t), before: func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "Signal ") && !strings.Contains(call, signalProbe) {
			signals <- call
		}
		return nil
	}})
	alice, _ := w.hello(`{"user":"alice"}`)
	for _, availability := range []string{"busy", "invisible"} {
		w.say(`{"availability":"` + availability + `"}`)
		require.Equal(t, "Signal "+signalSelf+" alice", <-signals)
		alice.want(frameSelf)
		alice.asks(`{"typing":{"to":["bob"]}}`, frameOK)
		require.Len(t, signals, 1, availability)
		require.Contains(t, <-signals, "Signal "+signalTyping)
	}
}

// TestTypingIsCharged: each user counts.
func TestTypingIsCharged(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t, behindProxy, func(c *Config) { c.Limits = limit.Limits{Caller: 2} })
	alice, _ := w.hello(`{"user":"alice"}`, from("203.0.113.7"))
	burst := limit.Burst(2)
	for n := 1; n+2 <= burst; n += 2 {
		alice.asks(`{"typing":{"to":["bob","carol"]}}`, frameOK)
	}
	alice.refuses(problem.RateLimited, `{"typing":{"to":["bob","carol"]}}`)
}

// TestTypingNeedsRights: a client that cannot read presences is not sent who types.
func TestTypingNeedsRights(t *testing.T) {
	t.Parallel()
	key, hash := auth.NewKey()
	all, allHash := auth.NewKey()
	authenticator := newAuthenticator(t, auth.Config{Keys: []auth.Key{
		{Name: "writer", Hash: hash, Scopes: []auth.Scope{auth.Ping}, Namespaces: []auth.Pattern{"*"}},
		{Name: "backend", Hash: allHash, Scopes: []auth.Scope{auth.Ping, auth.Read}, Namespaces: []auth.Pattern{"*"}},
	}})
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	blind, welcome := w.hello(`{"user":"bob"}`, bearer(key))
	require.NotContains(t, welcome, "self")
	bob, _ := w.hello(`{"user":"bob"}`, bearer(all))
	alice, _ := w.hello(`{"user":"alice"}`, bearer(key))
	alice.asks(`{"typing":{"to":["bob"]}}`, frameOK)
	bob.want(frameTyping)
	w.send("PUT", "/chat/users/bob/availability", `{"availability":"away"}`, bearer(all)).is(t, http.StatusOK)
	bob.want(frameSelf)
	blind.quiet() // nothing else came before
}

// TestTypingIsMeasured: frames are counted where they come in and where they go out.
func TestTypingIsMeasured(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newSocketServer(t, func(c *Config) { c.Metrics = registry })
	alice, _ := w.hello(`{"user":"alice"}`)
	bob, _ := w.hello(`{"user":"bob"}`)
	alice.asks(`{"typing":{"to":["bob","nobody"]}}`, frameOK)
	bob.want(frameTyping)
	await(t, func() bool {
		got := samples(t, registry, "lastseen_websocket_typing_total")
		return got["in"] == 1 && got["out"] == 1
	})
}

// FuzzDecodeTyping: whatever a signal carries, the result could have been sent by a client.
func FuzzDecodeTyping(f *testing.F) {
	f.Add(typing{in: "room", to: []string{"bob", "carol"}}.encode())
	f.Add([]byte{0, 1, 'b'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		typed, ok := decodeTyping(data)
		if !ok {
			return
		}
		require.NoError(t, typingBody{To: typed.to, In: typed.in}.check())
		checkFrame(t, "server", typed.frame("alice"))
		again, ok := decodeTyping(typed.encode())
		require.True(t, ok)
		require.Equal(t, typed, again)
	})
}

// callsBackup is what a Redis has of calls at some time.
type callsBackup struct {
	client *redis.Client
	keys   map[string]string
}

func backUpCalls(t *testing.T, url string) callsBackup {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	b := callsBackup{redis.NewClient(options), map[string]string{}}
	t.Cleanup(func() { b.client.Close() })
	for _, key := range b.client.Keys(t.Context(), "presence:call*").Val() {
		b.keys[key] = b.client.Dump(t.Context(), key).Val()
	}
	require.NotEmpty(t, b.keys)
	return b
}

// restore has the Redis lose what came after the backup, as a replica does that takes over.
func (b callsBackup) restore(t *testing.T) {
	t.Helper()
	for _, key := range b.client.Keys(t.Context(), "presence:call*").Val() {
		require.NoError(t, b.client.Del(t.Context(), key).Err())
	}
	for key, dump := range b.keys {
		require.NoError(t, b.client.Restore(t.Context(), key, 0, dump).Err())
	}
}

// loseSignals has servers find that signals may have been lost, as when their Redis is replaced.
func loseSignals(servers ...*testServer) {
	for _, w := range servers {
		w.config.Shared.receive(store.Signal{})
	}
}

// TestCallWhoseEndIsLost: clients were sent that a call is over, and then Redis lost that. It ends again once it is
// read, for the users are connected and would be in it forever. Clients are not sent it.
func TestCallWhoseEndIsLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		accepts bool
		user    string // who ends it
		over    lastseen.CallState
	}{
		{true, "bob", lastseen.Ended},
		{false, "alice", lastseen.Cancelled},
		{false, "bob", lastseen.Rejected},
	} {
		t.Run(string(test.over), func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t)
			one, two := newRedisSocketServer(t, url), newRedisSocketServer(t, url)
			alice, _ := one.hello(`{"user":"alice"}`)
			bob, _ := two.hello(`{"user":"bob"}`)
			both := func(call map[string]any, state lastseen.CallState) {
				t.Helper()
				wantCall(t, alice, call, state)
				wantCall(t, bob, call, state)
			}
			call := one.call(`{"from":"alice","to":"bob"}`)
			both(call, lastseen.Ringing)
			if test.accepts {
				two.post(callPath(call)+"/accept", `{"user":"bob"}`)
				both(call, lastseen.Active)
			}
			backup := backUpCalls(t, url)
			two.post(callPath(call)+"/end", `{"user":"`+test.user+`"}`)
			both(call, test.over)

			backup.restore(t)
			require.Len(t, one.get(callsPath + "?user=alice")["calls"], 1, "it goes on")
			if test.accepts {
				_, welcome := one.hello(`{"user":"alice"}`)
				require.Empty(t, welcome["calls"])
			} else {
				loseSignals(one, two)
			}
			await(t, func() bool { return len(one.get(callsPath + "?user=bob")["calls"].([]any)) == 0 })
			both(two.call(`{"from":"bob","to":"alice"}`), lastseen.Ringing) // and were not sent the end again
		})
	}
}

// TestCallWhoseLastVersionsAreLost: Redis has lost that a call was accepted, and what its app has said since. Clients
// are sent that it rings, and how it ends, although they were sent later versions.
func TestCallWhoseLastVersionsAreLost(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	one, two := newRedisSocketServer(t, url), newRedisSocketServer(t, url)
	alice, _ := one.hello(`{"user":"alice"}`)
	call := one.call(`{"from":"alice","to":"bob"}`)
	wantCall(t, alice, call, lastseen.Ringing)
	backup := backUpCalls(t, url)
	two.post(callPath(call)+"/accept", `{"user":"bob"}`)
	wantCall(t, alice, call, lastseen.Active)
	for _, app := range []string{"1", "2"} {
		two.post(callPath(call)+"/alive", `{"user":"bob","app":`+app+`}`)
		wantCall(t, alice, call, lastseen.Active)
	}
	backup.restore(t)
	loseSignals(one, two)
	wantCall(t, alice, call, lastseen.Ringing)
	require.Equal(t, "rejected", two.post(callPath(call)+"/end", `{"user":"bob"}`)["state"])
	wantCall(t, alice, call, lastseen.Rejected)
}

// TestHeardCallsAreNotReadAgain: connections do not read a call of which the keeper knows that it goes on, and read it
// once the keeper does not.
func TestHeardCallsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	s := fileStore(t)
	var reads atomic.Int64
	counted := &hookedStore{Store: s, after: func(call string) error {
		if call == "ReadCalls" {
			reads.Add(1)
		}
		return nil
	}}
	keeper := calls.New(s, slog.New(slog.DiscardHandler))
	keeper.Quiet = func(string) time.Duration { return time.Hour } // as that of the call below
	keeper.Heard = func(string, string, string, time.Duration) bool { return true }
	w := newTestServer(t, counted, live(s), held(t, s), func(c *Config) { c.Keeper = keeper }) // gets no signals
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	timers := make(chan func(), 10)
	w.config.Shared.userStates.after = func(_ time.Duration, f func()) *time.Timer {
		timers <- f
		return time.NewTimer(0)
	}
	w.ring("c1", "alice", "bob")
	w.act("c1", "bob", lastseen.Accept)
	alice, _ := w.hello(`{"user":"alice"}`)
	waitWelcomed(t, w)
	late := <-timers
	await(t, func() bool { return keeper.Rest("chat", "alice", "c1") > 0 })
	before := reads.Load()
	late()
	late = <-timers // planned again, at once
	require.Equal(t, before, reads.Load())
	cancel()
	running.Wait()
	w.act("c1", "bob", lastseen.End)
	keeper.Follow("chat", "alice", lastseen.Call{ID: "c1", From: "alice", To: "bob", State: lastseen.Ended})
	late()
	wantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Ended)
}
