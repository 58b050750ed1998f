package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
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
			bob.asks(`{"activity":{"idle":false}}`, frameOK) // nothing else came before
		}
		require.NotContains(t, carol.want(frameTyping), "in")
		for _, other := range []*testSocket{alice, carol} {
			other.asks(`{"activity":{"idle":false}}`, frameOK)
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
		say(t, two, `{"availability":"invisible"}`)
		typing("hidden")
		say(t, two, `{"availability":"busy"}`)
		typing("visible again")
		require.Equal(t, "visible again", bob.want(frameTyping)["in"])
	})
}

// signalStore notes the kinds of signals that are sent.
type signalStore struct {
	store.Store
	kinds chan string
}

func (s *signalStore) Signal(ctx context.Context, signal store.Signal) error {
	if signal.Kind != signalProbe {
		s.kinds <- signal.Kind
	}
	return s.Store.Signal(ctx, signal)
}

// TestTypingOfTheInvisibleTakesAsLong: the store is called as for others, since a key that can only write must not
// learn who is invisible from the time that the response takes.
func TestTypingOfTheInvisibleTakesAsLong(t *testing.T) {
	t.Parallel()
	s := &signalStore{Store: fileStore(t), kinds: make(chan string, 10)}
	w := newSocketServerOn(t, s)
	alice, _ := w.hello(`{"user":"alice"}`)
	for _, availability := range []string{"busy", "invisible"} {
		say(t, w, `{"availability":"`+availability+`"}`)
		require.Equal(t, signalSelf, <-s.kinds)
		alice.want(frameSelf)
		alice.asks(`{"typing":{"to":["bob"]}}`, frameOK)
		require.Len(t, s.kinds, 1, availability)
		require.Equal(t, signalTyping, <-s.kinds)
	}
}

// TestTypingIsChecked: what a client cannot send.
func TestTypingIsChecked(t *testing.T) {
	t.Parallel()
	w := newSocketServer(t)
	alice, _ := w.hello(`{"user":"alice"}`)
	many, _ := json.Marshal(strings.Split("u"+strings.Repeat(",u", maxTypingTo), ","))
	for content, want := range map[string]code{
		`{}`:                           codeInvalidParameter,
		`{"to":[]}`:                    codeInvalidParameter,
		fmt.Sprintf(`{"to":%s}`, many): codeTooManyItems,
		`{"to":[""]}`:                  codeInvalidUser,
		`{"to":["a\u0000"]}`:           codeInvalidUser,
		`{"to":["bob"],"in":"` + strings.Repeat("x", maxTypingIn+1) + `"}`: codeInvalidParameter,
		`{"to":["bob"],"user":"carol"}`:                                    codeUnknownField,
		`[]`:                                                               codeInvalidJSON,
	} {
		alice.refuses(want, `{"typing":`+content+`}`)
	}
	alice.asks(`{"typing":{"to":["bob"],"in":"`+strings.Repeat("x", maxTypingIn)+`"}}`, frameOK)
	most, _ := json.Marshal(strings.Split("u"+strings.Repeat(",u", maxTypingTo-1), ","))
	alice.asks(fmt.Sprintf(`{"typing":{"to":%s}}`, most), frameOK)
	watcher, _ := w.hello(`{"watch":{"users":["bob"]}}`)
	watcher.refuses(codeInvalidParameter, `{"typing":{"to":["bob"]}}`)
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
	alice.refuses(codeRateLimited, `{"typing":{"to":["bob","carol"]}}`)
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
	r := w.send(http.MethodPut, "/chat/users/bob/availability", `{"availability":"away"}`, bearer(all))
	require.Equal(t, http.StatusOK, r.status, r.body)
	bob.want(frameSelf)
	blind.asks(`{"activity":{"idle":false}}`, frameOK) // nothing else came before
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
	require.Eventually(t, func() bool {
		got := samples(t, registry, "lastseen_websocket_typing_total")
		return got["in"] == 1 && got["out"] == 1
	}, eventually, tick)
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
