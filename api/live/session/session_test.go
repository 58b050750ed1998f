package session

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// TestOnGrid checks that timers fire together, never later than asked for, and hardly earlier.
func TestOnGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(rapid.Int64Range(0, 1e16).Draw(t, "now"))
		d := time.Duration(rapid.Int64Range(int64(minWake+wakeGrid), int64(time.Minute)).Draw(t, "d"))
		short := onGrid(now, d)
		require.LessOrEqual(t, short, d)
		require.Greater(t, short, d-wakeGrid)
		require.True(t, now.Add(short).Equal(now.Add(short).Truncate(wakeGrid)), "%s after %s", short, now)
	})
	require.Equal(t, minWake, onGrid(time.Now(), time.Millisecond))
}

// TestSendQueue: what waits for a slow client is bounded.
func TestSendQueue(t *testing.T) {
	t.Parallel()
	n := &session{ctx: t.Context()} // which is not welcome yet, so that nothing is sent
	for i := range maxQueued {
		require.True(t, n.sendSoon([]byte{byte(i)}))
	}
	require.False(t, n.sendSoon([]byte("one more")))
	n.sendSoon(nil)
	n.sendSoon(nil)
	own, frame := n.nextQueued()
	require.True(t, own)
	require.Nil(t, frame)
	for i := range maxQueued {
		own, frame = n.nextQueued()
		require.False(t, own)
		require.Equal(t, []byte{byte(i)}, frame)
	}
	_, frame = n.nextQueued()
	require.Nil(t, frame)
	require.Nil(t, n.sends, "it takes no memory")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n = &session{ctx: ctx}
	n.sendSoon(nil)
	own, _ = n.nextQueued()
	require.False(t, own, "the client is gone")
}

// FuzzDecodeTyping: whatever a signal carries, the result could have been sent by a client.
func FuzzDecodeTyping(f *testing.F) {
	f.Add([]byte(`{"to":["bob","carol"],"in":"room"}`))
	f.Add([]byte{0, 1, 'b'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		typed, ok := decodeTyping(data)
		if !ok {
			return
		}
		require.NoError(t, typed.check())
		kit.CheckFrame(t, "server", typed.frame("alice"))
		encoded, err := json.Marshal(typed)
		require.NoError(t, err)
		again, ok := decodeTyping(encoded)
		require.True(t, ok)
		require.Equal(t, typed, again)
	})
}

// TestFrameDepth: no frame nests deeper, either.
func TestFrameDepth(t *testing.T) {
	frame := func(levels int) []byte {
		return []byte(`{"hello":{"a":` + strings.Repeat("[", levels-2) + strings.Repeat("]", levels-2) + `}}`)
	}
	_, err := parseFrame(frame(33))
	require.ErrorContains(t, err, "32 levels")
	_, err = parseFrame(frame(32))
	require.NoError(t, err)
}

// TestDisruptiveTyping is the same for the text that says where a user types.
func TestDisruptiveTyping(t *testing.T) {
	for _, bad := range []string{"\u202eecila", "a\u2028b", "\u2066a"} {
		err := typingBody{To: []string{"bob"}, In: bad}.check()
		require.ErrorContains(t, err, "bidirectional")
	}
}

// TestCountsEndWithAReload: what was counted before is not sent to callers who do not see all users any longer.
func TestCountsEndWithAReload(t *testing.T) {
	t.Parallel()
	h := hubOn(t, kit.FileStore(t))
	n := &session{Hub: h, namespace: "chat"}
	restricted := *h.newest.Load()
	require.NoError(t, restricted.checkCounts("chat", nil))
	subscribed := *restricted.Server
	subscribed.Viewer = func(*auth.Caller, string) audience.Viewer { return audience.Viewer{Restricted: true} }
	restricted.Server = &subscribed
	h.Configure(&restricted)
	require.True(t, (&following{session: n}).sendCounts(counted{}), "it would fail without a socket")
}

// hubOn returns a hub of no sessions on a store.
func hubOn(t *testing.T, s store.Store) *Hub {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	h := New(Options{
		Telemetry: telemetry.New(nil, nil), Subscriptions: subscription.NewShared(time.Now),
		Failures: telemetry.NewFailures(logger, time.Now), Now: time.Now,
	})
	h.Configure(&Server{
		Server: &subscription.Server{
			Options: audience.Options{Store: s},
			Viewer:  func(*auth.Caller, string) audience.Viewer { return audience.Viewer{} },
		},
		Calls: calls.New(s, logger), Logger: logger,
	})
	return h
}
