package api

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
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

// TestOutbox: what waits for a slow client is bounded, and only the newest frame self waits.
func TestOutbox(t *testing.T) {
	t.Parallel()
	n := &session{ctx: t.Context()} // which is not welcome yet, so that nothing is sent
	for i := range maxPosts {
		require.True(t, n.post(posted{frame: []byte{byte(i)}}))
	}
	require.False(t, n.post(posted{frame: []byte("one more")}))
	require.True(t, n.post(posted{self: []byte("old")}))
	require.True(t, n.post(posted{self: []byte("new")}))
	require.True(t, n.post(posted{ping: true}))
	require.True(t, n.post(posted{ping: true}))
	next := func() posted {
		p, ok := n.nextPost()
		require.True(t, ok)
		return p
	}
	require.Equal(t, posted{self: []byte("new")}, next())
	for i := range maxPosts {
		require.Equal(t, posted{frame: []byte{byte(i)}}, next())
	}
	require.Equal(t, posted{ping: true}, next())
	_, ok := n.nextPost()
	require.False(t, ok)
	require.Nil(t, n.outbox, "it takes no memory")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n = &session{ctx: ctx, outbox: &outbox{ping: true}}
	_, ok = n.nextPost()
	require.False(t, ok, "the client is gone")
}

// TestKnownCalls: whatever is read in whatever order, the client gets each change once, never an older one after a
// newer one, and in the end knows the newest.
func TestKnownCalls(t *testing.T) {
	t.Parallel()
	steps := func(id int) []lastseen.Call {
		c := lastseen.Call{ID: strconv.Itoa(id), From: "alice", To: "bob", Created: 1}
		ringing, active, ended := c, c, c
		ringing.State, ringing.Version, ringing.Expires = lastseen.Ringing, 1, 10
		active.State, active.Version, active.Expires, active.App = lastseen.Active, 2, 20, "1"
		candidate := active
		candidate.Version, candidate.App = 3, "2"
		ended.State, ended.Version, ended.Over = lastseen.Ended, 4, 15
		return []lastseen.Call{ringing, active, candidate, ended}
	}
	rapid.Check(t, func(t *rapid.T) {
		var o ownCalls
		newest := map[string]lastseen.Call{}
		for id := range rapid.IntRange(1, 6).Draw(t, "calls") {
			states := steps(id)
			for range rapid.IntRange(1, 8).Draw(t, "reads") {
				c := rapid.SampledFrom(states).Draw(t, "read")
				if !c.State.Over() {
					c.Expires += lastseen.Instant(rapid.IntRange(0, 5).Draw(t, "renewed"))
				}
				before, known := newest[c.ID]
				if o.note(c) {
					require.True(t, !known || c.Version > before.Version, "%v after %v", c, before)
					newest[c.ID] = c
				} else {
					require.LessOrEqual(t, c.Version, before.Version)
				}
			}
			require.LessOrEqual(t, len(o.calls), maxKnownCalls)
			require.Equal(t, strconv.Itoa(id), o.calls[len(o.calls)-1].ID)
		}
	})
}

// TestKnownCallIsReplaced: what is read of the same version replaces what was shown, unless the call was over: a store
// shows a call whose time has passed before it records that. Calls that are over do not replace the one that goes on.
func TestKnownCallIsReplaced(t *testing.T) {
	t.Parallel()
	var o ownCalls
	ringing := lastseen.Call{ID: "1", State: lastseen.Ringing, Version: 1, Expires: 10}
	require.True(t, o.note(ringing))
	for i := range 2 * maxKnownCalls {
		o.note(lastseen.Call{ID: strconv.Itoa(i + 2), State: lastseen.Missed})
	}
	require.Len(t, o.calls, maxKnownCalls)
	require.Equal(t, "1", o.goingOn().ID)
	missed := ringing
	missed.State, missed.Expires, missed.Over = lastseen.Missed, 0, 10
	require.True(t, o.note(missed))
	require.Nil(t, o.goingOn())
	missed.Version, missed.Over = 2, 11
	require.False(t, o.note(missed))
	require.False(t, o.note(ringing))

	var why news // that signals may have been lost is not forgotten when something else happens before the read
	why.add(news{calls: []string{"c1"}})
	why.add(news{all: true})
	why.add(news{renewed: true, calls: []string{"c1", "c2"}})
	require.Equal(t, news{all: true, renewed: true, calls: []string{"c1", "c2"}}, why)
}

// TestOutboxKeepsTheNewestOfEachCall: what a slow client has not got yet is replaced.
func TestOutboxKeepsTheNewestOfEachCall(t *testing.T) {
	t.Parallel()
	var o outbox
	put := func(id, frame string) { o.putCall(callFrame{id, []byte(frame)}) }
	put("1", "ringing")
	put("2", "ringing")
	put("1", "ended")
	require.Equal(t, []callFrame{{"2", []byte("ringing")}, {"1", []byte("ended")}}, o.calls)
	for i := range 2 * maxPosts {
		put(strconv.Itoa(100+i), "ringing")
	}
	require.Len(t, o.calls, maxPosts)
	require.Equal(t, strconv.Itoa(99+2*maxPosts), o.calls[maxPosts-1].id)
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
		kit.CheckFrame(t, "server", typed.frame("alice"))
		again, ok := decodeTyping(typed.encode())
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
	authenticator, headers := kit.Callers(t)
	c := Config{
		Store: kit.FileStore(t), Auth: authenticator, Settings: usualSettings(), Logger: slog.New(slog.DiscardHandler),
	}
	c.Shared = NewShared(c)
	New(c)
	caller, err := authenticator.Authenticate(t.Context(), []string{headers["alice"]})
	require.NoError(t, err)
	n := &session{Shared: c.Shared, namespace: "chat", caller: caller}
	require.NoError(t, n.newest.Load().checkCounts("chat", caller))
	c.Settings.Visibility = VisibleToContacts
	New(c)
	require.True(t, (&following{session: n}).sendCounts(countsResponse{}), "it would fail without a socket")
}
