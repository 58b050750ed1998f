package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"net"
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

// trips counts the round trips of a client.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}

// TestRoundTripsOfABatch: however many namespaces are pinged or looked up together for the first time, our own and
// shared ones, it takes as many round trips. All callers of the batch wait for them.
func TestRoundTripsOfABatch(t *testing.T) {
	ctx, o := context.Background(), Options{
		URL: redistest.Start(t), Timeout: time.Minute, DialTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler), Layouts: map[string]Layout{},
	}
	const rounds, namespaces = 3, 200
	for i := range rounds * namespaces {
		o.Layouts[fmt.Sprint("shared", i)] = Layout{Unit: Seconds}
	}
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Ping(ctx, "before", []store.Sighting{{User: "alice", At: 1}}) // it also loads the script
	require.NoError(t, err)
	require.Eventually(t, func() bool { // what the store does once in the background comes before
		return strings.Contains(s.client.Info(ctx, "commandstats").Val(), "cmdstat_time:")
	}, time.Minute, time.Millisecond)

	var counted trips
	s.client.AddHook(&counted)
	cost := func(from, to int) (pings, lookups int64) {
		var sightings []*store.Batch[store.Sighting]
		var users []*store.Batch[string]
		for i := from; i < to; i++ {
			for _, kind := range []string{"own", "shared"} {
				name := fmt.Sprint(kind, i)
				sightings = append(sightings,
					&store.Batch[store.Sighting]{Namespace: name, Items: []store.Sighting{{User: "alice", At: 1}}})
				users = append(users, &store.Batch[string]{Namespace: name, Items: []string{"alice"}})
			}
		}
		counted.n.Store(0)
		s.PingBatches(ctx, sightings)
		pings = counted.n.Swap(0)
		s.agreements.nextRound() // as every ten seconds
		s.LookupBatches(ctx, users)
		for i := range users {
			require.NoError(t, sightings[i].Err)
			require.NoError(t, users[i].Err)
			require.Equal(t, sightings[i].States, users[i].States)
		}
		return pings, counted.n.Load()
	}
	// What the store does in the background now and then can come between: the least cost counts.
	fewPings, fewLookups := cost(0, 2)
	manyPings, manyLookups := cost(2, namespaces)
	for first := namespaces; first < rounds*namespaces; first += namespaces {
		pings, lookups := cost(first, first+2)
		fewPings, fewLookups = min(fewPings, pings), min(fewLookups, lookups)
		pings, lookups = cost(first+2, first+namespaces)
		manyPings, manyLookups = min(manyPings, pings), min(manyLookups, lookups)
	}
	require.Equal(t, fewPings, manyPings)
	require.Equal(t, fewLookups, manyLookups)
}

// TestEachBatchHasItsOwnOutcome: an error of one namespace does not affect the others, also while scripts have to be
// sent again.
func TestEachBatchHasItsOwnOutcome(t *testing.T) {
	ctx := context.Background()
	s, err := Open(Options{
		URL: redistest.Start(t), Timeout: time.Minute, DialTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.client.Set(ctx, "presence:string", "a string", 0).Err())
	require.NoError(t, s.client.HSet(ctx, "presence::meta", "spread", "shards=7 unit=ms hash=fnv1a64").Err())
	names := []string{"chat", "string", "spread", "game", "chat"}
	wants := []error{nil, store.ErrWrongType, store.ErrMismatch, nil, nil}
	for range 2 {
		require.NoError(t, s.client.ScriptFlush(ctx).Err())
		var pings []*store.Batch[store.Sighting]
		var lookups []*store.Batch[string]
		for i, name := range names {
			at := lastseen.Instant(10 * (i + 1))
			pings = append(pings, &store.Batch[store.Sighting]{
				Namespace: name,
				Items:     []store.Sighting{{User: "alice", At: at}, {User: name, At: at + 1}},
			})
			lookups = append(lookups, &store.Batch[string]{Namespace: name, Items: []string{name, "nobody", "alice"}})
		}
		s.PingBatches(ctx, pings)
		s.LookupBatches(ctx, lookups)
		for i, want := range wants {
			require.ErrorIs(t, pings[i].Err, want, names[i])
			require.ErrorIs(t, lookups[i].Err, want, names[i])
			if want != nil {
				require.Empty(t, pings[i].States)
				require.Empty(t, lookups[i].States)
			}
		}
		require.Equal(t, []lastseen.State{{At: 50}, {At: 51}}, pings[4].States, "the later of the two batches about it")
		require.Equal(t, []lastseen.State{{At: 51}, {}, {At: 50}}, lookups[0].States)
		require.Equal(t, []lastseen.State{{At: 40}, {At: 41}}, pings[3].States)
		require.Equal(t, []lastseen.State{{At: 41}, {}, {At: 40}}, lookups[3].States)
	}
}
