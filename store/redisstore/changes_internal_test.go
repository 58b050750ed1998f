package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestParsePosition: only what the store itself writes is a position.
func TestParsePosition(t *testing.T) {
	for _, text := range []store.Position{"0-0/1", "1700000000000-12/4503599627370496"} {
		p, ok := parsePosition(text)
		require.True(t, ok, text)
		require.Equal(t, text, p.text())
	}
	for _, text := range []store.Position{
		"", "/", "-/", "0/1", "0-0", "0-0/", "0-0/x", "0-0/1/2", "0-0-0/1", "00-0/1", "0-0/01",
		"+1-0/1", "-1-0/1", "0-0/-1",
		"(0-0/1", "0-0/1 ", "0-*/1", "18446744073709551615-18446744073709551615/1", "0-0/99999999999999999999",
	} {
		_, ok := parsePosition(text)
		require.False(t, ok, text)
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add("0-0/1")
	f.Add("1700000000000-12/4503599627370496")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePosition(store.Position(text))
		if !ok {
			return
		}
		require.Equal(t, text, string(p.text()))
		require.Empty(t, strings.Trim(text, "0123456789-/"))
		require.LessOrEqual(t, len(text), 50)
	})
}

// TestSideKeys: they are in the slot of their shard, and are no key of another namespace.
func TestSideKeys(t *testing.T) {
	k := keyspace{prefix: "presence:", shards: 2, unit: Milliseconds, layouts: map[string]Layout{
		"one": {Shards: 1}, "adopted": {Key: "presence", Shards: 1}, "declared": {Unit: Milliseconds},
	}}
	require.Equal(t, "presence:feed:{presence:one}", k.namespace("one").sideKey("presence:one", 'f'))
	chat := k.namespace("chat")
	require.Equal(t, "presence:changes:{presence:chat:1}", chat.sideKey(chat.shard(1), 's'))
	require.Equal(t, "presence:keys:{presence:chat:1}", chat.sidesKey(chat.shard(1)))
	require.True(t, chat.hasSideKeys())
	require.False(t, k.namespace("adopted").hasSideKeys())
	require.False(t, k.namespace("declared").hasSideKeys())
	for _, prefix := range []string{"{p}:", "p{", "}"} {
		require.False(t, keyspace{prefix: prefix, shards: 1}.namespace("chat").hasSideKeys())
	}
}

// TestCheckWithoutMetas: while the metas of a Cluster cannot be read, a server serves the namespaces that it knows.
func TestCheckWithoutMetas(t *testing.T) {
	s := storeOn(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1}), 1)
	defer s.client.UniversalClient.Close()
	s.metaCache.confirm("chat")
	c := &resolvedNamespace{namespace: s.keys.namespace("chat")}
	s.checkMetas(context.Background(), []*resolvedNamespace{c})
	require.NoError(t, c.err)
	require.True(t, c.hasMeta)
	c = &resolvedNamespace{namespace: s.keys.namespace("unknown")}
	s.checkMetas(context.Background(), []*resolvedNamespace{c})
	require.ErrorIs(t, c.err, store.ErrUnavailable)
}

// longest keeps the length of the longest pipeline of a client.
type longest struct {
	trips
	commands atomic.Int64
}

func (l *longest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.commands.Store(max(l.commands.Load(), int64(len(cmds))))
		return next(ctx, cmds)
	}
}

// TestAdvancesOfManyNamespaces: however many there are, no round trip takes longer than a call may, and no advance gets
// the result of another one.
func TestAdvancesOfManyNamespaces(t *testing.T) {
	ctx, green := context.Background(), lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}
	s := openNew(t, Options{Shards: 7})
	at, err := s.Now(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // this is the last thing that the store does once in the background
		return s.feedRights.Load() == rightsGranted
	}, time.Minute, time.Millisecond)
	var pipelines longest
	s.client.AddHook(&pipelines)
	advances := make([]*store.ChangesAdvance, 20)
	for i := range advances {
		name := fmt.Sprint("room", i)
		advances[i] = &store.ChangesAdvance{Namespace: name, Thresholds: green, Now: at}
		if i%3 == 0 { // the others have no feed
			require.NoError(t, s.Register(ctx, []string{name}))
			require.NoError(t, s.RecordChanges(ctx, name, green))
			for _, key := range s.keys.namespace(name).all() {
				feed := s.keys.namespace(name).sideKey(key, 'f')
				require.NoError(t, s.client.HSet(ctx, feed, "w", int64(at)-2000).Err())
				require.NoError(t, s.client.HDel(ctx, feed, "s").Err())
			}
			for user := range i {
				_, err := s.Ping(ctx, name, []store.PresenceEvent{{User: fmt.Sprint(user), At: at.Add(-time.Minute)}})
				require.NoError(t, err)
			}
		}
	}
	pipelines.commands.Store(0)
	s.AdvanceChanges(ctx, advances)
	for i, w := range advances {
		if i%3 != 0 {
			require.ErrorIs(t, w.Err, store.ErrNotRecorded)
			continue
		}
		require.NoError(t, w.Err)
		require.Equal(t, i, w.Transitions)
	}
	// A shard that this process has not compared costs a command for each key that there may be.
	require.LessOrEqual(t, pipelines.commands.Load(), int64(maxAdvances*(2+len(sideLetters))))
}

func entryOf(text string) any { return []any{"1700000000000-3", []any{"e", text}} }

// TestReadEntry: entries with and without details. Users may look like the values before them. Details that another
// program wrote are none.
func TestReadEntry(t *testing.T) {
	const at = " 1600000000000 "
	state := lastseen.AvailabilityState{Availability: lastseen.Busy, Note: "8 17 x", Until: 9}
	busy := store.Details{Availability: state, IdleSince: 7}
	note := store.Details{Availability: lastseen.AvailabilityState{Note: "z"}}
	for _, test := range []struct {
		text, user string
		was, is    store.Details
	}{
		{text: "12 11 3" + at + "alice", user: "alice"},
		{text: "12  3" + at + "1 2 b", user: "1 2 b"},
		{text: "12 11 67" + at + "0 15 7 busy 9 8 17 xalice", user: "alice", is: busy},
		{text: "12  67" + at + "15 0 7 busy 9 8 17 x0 15 bob", user: "0 15 bob", was: busy},
		{text: "12 11 67" + at + "7 15 0 - 0 z7 busy 9 8 17 xé", user: "é", was: note, is: busy},
		{text: "12 11 67" + at + "5 0 weirdalice", user: "alice"},
		{text: "12 11 67" + at + "9 0 7 gone 0 carol", user: "carol"},
		{text: "12 11 67" + at + "0 10 7 busy 9 \x01dora", user: "dora"},
		{text: "12 11 67" + at + "0 1100 0 - 0 " + strings.Repeat("x", 1094) + "frank", user: "frank"},
	} {
		c, previous, own, ok := readEntry(entryOf(test.text))
		require.True(t, ok, test.text)
		require.Equal(t, "11", previous, test.text)
		require.Equal(t, position{"1700000000000-3", "12"}, own, test.text)
		state := lastseen.State{At: 1600000000000}
		require.Equal(t, store.Change{
			User: test.user, Published: store.Published{State: state, Status: lastseen.Green, Details: test.is},
			WasStatus: lastseen.Grey, Was: test.was, Recorded: 1700000000000,
		}, c, test.text)
	}
	for _, text := range []string{
		"12 11 67" + at + "0 17 7 busy 9eve", "12 11 67" + at + "0 -1 eve",
		"12 11 67" + at + "1 99999999999999999999 eve",
		"12 11 67" + at + "eve", "12 11 67" + at + "65535 65535 eve", "12 11 131" + at + "0 1 eve",
		"12 11 104" + at + "0 1 eve", "12 11 40" + at + "eve", "12 11 -3" + at + "eve", "x  3" + at + "eve",
		"12 11 3 eve",
	} {
		_, _, _, ok := readEntry(entryOf(text))
		require.False(t, ok, text)
	}
}

func FuzzReadEntry(f *testing.F) {
	f.Add("12 11 3 1600000000000 alice")
	f.Add("12 11 67 1600000000000 0 15 7 busy 9 8 17 xalice")
	f.Fuzz(func(_ *testing.T, text string) { readEntry(entryOf(text)) })
}
