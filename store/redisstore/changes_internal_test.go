package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestParsePlace: only what the store itself writes is a place.
func TestParsePlace(t *testing.T) {
	for _, text := range []store.Place{"0-0/1", "1700000000000-12/4503599627370496"} {
		p, ok := parsePlace(text)
		require.True(t, ok, text)
		require.Equal(t, text, p.text())
	}
	for _, text := range []store.Place{
		"", "/", "-/", "0/1", "0-0", "0-0/", "0-0/x", "0-0/1/2", "0-0-0/1", "00-0/1", "0-0/01",
		"+1-0/1", "-1-0/1", "0-0/-1",
		"(0-0/1", "0-0/1 ", "0-*/1", "18446744073709551615-18446744073709551615/1", "0-0/99999999999999999999",
	} {
		_, ok := parsePlace(text)
		require.False(t, ok, text)
	}
}

func FuzzParsePlace(f *testing.F) {
	f.Add("0-0/1")
	f.Add("1700000000000-12/4503599627370496")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePlace(store.Place(text))
		if !ok {
			return
		}
		require.Equal(t, text, string(p.text()))
		require.Empty(t, strings.Trim(text, "0123456789-/"))
		require.LessOrEqual(t, len(text), 50)
	})
}

// TestCompanions: they are in the slot of their shard, and are no key of another namespace.
func TestCompanions(t *testing.T) {
	k := keyspace{prefix: "presence:", shards: 2, unit: Milliseconds, layouts: map[string]Layout{
		"one": {Shards: 1}, "adopted": {Key: "presence", Shards: 1}, "declared": {Unit: Milliseconds},
	}}
	require.Equal(t, []string{"presence:feed:{presence:one}", "presence:changes:{presence:one}"},
		k.namespace("one").companions("presence:one"))
	chat := k.namespace("chat")
	require.Equal(t, []string{"presence:feed:{presence:chat:1}", "presence:changes:{presence:chat:1}"},
		chat.companions(chat.shard(1)))
	require.True(t, chat.hasCompanions())
	require.False(t, k.namespace("adopted").hasCompanions())
	require.False(t, k.namespace("declared").hasCompanions())
	for _, prefix := range []string{"{p}:", "p{", "}"} {
		require.False(t, keyspace{prefix: prefix, shards: 1}.namespace("chat").hasCompanions())
	}
	require.Error(t, lastseen.CheckNamespace(feedField("chat")), "it is the field of no other namespace")
}

// TestRecordedAgreement: the bit is known at once where it was set, and is read again with the meta.
func TestRecordedAgreement(t *testing.T) {
	var a agreements
	set := bit{set: true, value: "1"}
	know := func(b *bits) { b.feed = set }
	a.change("chat", know)
	require.False(t, a.known("chat"), "its next use reads the meta")
	a.confirm("chat", bits{})
	a.change("chat", know)
	require.True(t, a.current("chat"))
	require.Equal(t, bits{feed: set}, a.bits("chat"))
	a.recheck("chat")
	require.False(t, a.current("chat"))
	require.True(t, a.known("chat"))
	require.Equal(t, bits{feed: set}, a.bits("chat"))
}

// TestBitWithoutMetas: while the metas of a Cluster cannot be read, a server that knows the namespace names all of its
// companions.
func TestBitWithoutMetas(t *testing.T) {
	s := &Store{
		client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1}),
		keys:   keyspace{prefix: "presence:", shards: 1, layouts: map[string]Layout{"adopted": {Unit: Milliseconds}}},
	}
	s.timeout = time.Minute
	defer s.client.Close()
	for name, set := range map[string]bool{"chat": true, "adopted": false} {
		s.agreements.confirm(name, bits{})
		c := &candidate{namespace: s.keys.namespace(name)}
		s.checkMetas(context.Background(), []*candidate{c})
		require.NoError(t, c.err)
		require.True(t, c.hasMeta)
		want := bit{set: set}
		require.Equal(t, bits{feed: want, devices: want, details: want, hidden: want}, c.bits, name)
	}
	c := &candidate{namespace: s.keys.namespace("unknown")}
	s.checkMetas(context.Background(), []*candidate{c})
	require.ErrorIs(t, c.err, store.ErrUnavailable)
}

// BenchmarkPingFeed measures a ping that changes no status, with the feed off and on, and Redis' CPU time.
func BenchmarkPingFeed(b *testing.B) {
	for _, name := range []string{"off", "on"} {
		b.Run(name, func(b *testing.B) { benchmarkPing(b, name == "on") })
	}
}

func benchmarkPing(b *testing.B, recorded bool) {
	ctx := context.Background()
	s, err := Open(Options{
		URL: redistest.Start(b), Timeout: time.Minute, DialTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	defer s.Close()
	now, err := s.Now(ctx)
	require.NoError(b, err)
	batch := make([]store.Sighting, 512)
	now -= 12 * lastseen.Instant(time.Hour.Milliseconds()) // pings are faster than time
	for i := range batch {
		batch[i] = store.Sighting{User: fmt.Sprint("user", i), At: now}
	}
	_, err = s.Ping(ctx, "chat", batch)
	require.NoError(b, err)
	if recorded {
		days := lastseen.Thresholds{Green: 24 * time.Hour, Yellow: 48 * time.Hour}
		require.NoError(b, s.RecordChanges(ctx, "chat", days))
	}
	for _, size := range []int{1, 16, 512} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			before, pings := redisCPU(b, s), 0
			for b.Loop() {
				now++
				pings += size
				for i := range batch[:size] {
					batch[i].At = now
				}
				if _, err := s.Ping(ctx, "chat", batch[:size]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((redisCPU(b, s)-before)/float64(pings), "redis-µs/ping")
		})
	}
}

// redisCPU returns how many microseconds of CPU time Redis has used.
func redisCPU(b *testing.B, s *Store) (us float64) {
	b.Helper()
	return redistest.CPUTime(b, s.client).Seconds() * 1e6
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

// TestSweepsOfManyNamespaces: however many there are, no round trip takes longer than a call may, and no sweep gets the
// result of another one.
func TestSweepsOfManyNamespaces(t *testing.T) {
	ctx, green := context.Background(), lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}
	s, err := Open(Options{
		URL: redistest.Start(t), Timeout: time.Minute, DialTimeout: time.Minute, Shards: 7,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	at, err := s.Now(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // this is the last thing that the store does once in the background
		return s.feedRights.Load() == rightsGranted
	}, time.Minute, time.Millisecond)
	var pipelines longest
	s.client.AddHook(&pipelines)
	sweeps := make([]*store.ChangesSweep, 20)
	for i := range sweeps {
		name := fmt.Sprint("room", i)
		sweeps[i] = &store.ChangesSweep{Namespace: name, Thresholds: green, Now: at}
		if i%3 == 0 { // the others have no feed
			require.NoError(t, s.RecordChanges(ctx, name, green))
			for _, key := range s.keys.namespace(name).all() {
				feed := s.keys.namespace(name).feed(key)
				require.NoError(t, s.client.HSet(ctx, feed, "w", int64(at)-2000).Err())
				require.NoError(t, s.client.HDel(ctx, feed, "s").Err())
			}
			for user := range i {
				_, err := s.Ping(ctx, name, []store.Sighting{{User: fmt.Sprint(user), At: at.Add(-time.Minute)}})
				require.NoError(t, err)
			}
		}
	}
	pipelines.commands.Store(0)
	s.SweepChanges(ctx, sweeps)
	for i, w := range sweeps {
		if i%3 != 0 {
			require.ErrorIs(t, w.Err, store.ErrNotRecorded)
			continue
		}
		require.NoError(t, w.Err)
		require.Equal(t, i, w.Decays)
	}
	require.LessOrEqual(t, pipelines.commands.Load(), int64(maxSweeps))
}
