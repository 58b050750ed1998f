package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// lastID returns the ID of the newest entry that a server ever added.
func lastID(t *testing.T, client *redis.Client) string {
	t.Helper()
	info, err := client.XInfoStream(context.Background(), streamKey("presence:chat")).Result()
	require.NoError(t, err)
	return info.LastGeneratedID
}

// TestPromotedReplica: the replica that takes over has lost the tail of the stream, and adds other entries, with the
// same IDs. Readers who had read the tail get a reset, also when the IDs that they know are there, or are passed. The
// others go on exactly.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]int{"nothing": 0, "fewer": 1, "as many": 3, "more": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
			replica := redistest.StartReplica(t, primary)
			old, promoted := stores.NewClient(t, primary.URL()), stores.NewClient(t, replica.URL())
			f := startFeed(t, stores.New(t, redisstore.Options{URL: primary.URL()}), old, 1)
			f.ping(f.w, "alice")
			// The old clock was an hour ahead when this entry was added, so the IDs that follow do not come from the
			// clocks of the servers, but continue it.
			ahead := fmt.Sprintf("%d-0", f.clock()+hour)
			require.NoError(t, old.Do(ctx, "XSETID", streamKey("presence:chat"), ahead).Err())
			f.ping(f.w, "bob")
			users := append(stores.Numbered("old", 3), append(stores.Numbered("new", 5), "alice", "bob")...)
			behind, further := newReader(t, f.s, users...), newReader(t, f.s, users...)
			stores.ReplicateAll(t, old)
			require.NoError(t, promoted.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
			for _, user := range stores.Numbered("old", 3) {
				f.ping(f.w, user)
			}
			further.poll()
			require.Len(t, further.changes, 3)
			tail := lastID(t, old)
			primary.Stop(t)

			f.s, f.client = stores.New(t, redisstore.Options{URL: replica.URL()}), promoted
			for _, user := range stores.Numbered("new", written) {
				f.ping(f.w, user)
			}
			if written == 3 {
				require.Equal(t, tail, lastID(t, promoted), "the same IDs for other entries")
			}
			behind.s, further.s = f.s, f.s
			further.requireTruth()
			require.Equal(t, 1, further.resets)
			behind.requireTruth()
			require.Zero(t, behind.resets)
			require.Len(t, behind.changes, written)
			f.leave(f.w+1, "alice")
			further.requireTruth()
			behind.requireTruth()
			require.Len(t, further.of("alice"), 1)
		})
	}
}

// TestWatermarkAheadOfTheClock: the clock was set back, or the new primary's clock is behind the old one's. Users would
// not turn yellow until it has caught up, which may take years.
func TestWatermarkAheadOfTheClock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, touch := range map[string]func(*feed){
		"ping":    func(f *feed) { f.ping(f.clock(), "bob") },
		"leave":   func(f *feed) { f.leave(f.clock(), "bob") },
		"forget":  func(f *feed) { require.NoError(f, f.s.Forget(ctx, "chat", "bob")) },
		"advance": func(f *feed) { require.True(f, f.advance(f.clock()).Begun) },
	} {
		t.Run(name, func(t *testing.T) {
			eachSharding(t, func(t *testing.T, f *feed) {
				for i, ahead := range []lastseen.Instant{600 * second, hour * 3 / 4, 30 * 365 * 24 * hour} {
					alice := fmt.Sprint("alice", i)
					f.ping(f.clock(), alice, "bob")
					r := newReader(t, f.s, alice, "bob")
					f.moveWatermark(f.clock() + ahead)
					now := f.clock()
					touch(f)
					f.advance(f.clock()) // the other shards
					r.watermark = 0
					r.requireTruth()
					require.Equal(t, 1, r.resets)
					require.Equal(t, lastseen.Green, r.told[alice].Status)
					require.GreaterOrEqual(t, r.watermark, now)
					require.LessOrEqual(t, r.watermark, f.clock())
					f.ping(f.clock(), "bob")
					f.leave(f.clock(), alice)
					r.requireTruth()
					require.Equal(t, 1, r.resets, "that is all")
				}
			})
		})
	}
}

// TestWatermarkALittleAhead: that is no reason for a reset, since servers' clocks differ, unless the green threshold is
// so short that users would be shown as yellow too early.
func TestWatermarkALittleAhead(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		r := newReader(t, f.s, "alice", "bob")
		f.moveWatermark(f.clock() + 4000) // less than MaxAhead
		f.ping(f.clock(), "alice", "bob")
		now := f.clock()
		advanced := f.advance(now)
		require.False(t, advanced.Begun)
		require.Equal(t, max(f.w, now), advanced.Watermark, "it never goes back")
		r.requireTruth()
		require.Zero(t, r.resets)
		require.Len(t, r.changes, 2)

		green := lastseen.Thresholds{Green: 4 * time.Second, Yellow: time.Hour}
		require.NoError(t, f.s.DeleteNamespace(context.Background(), "chat"))
		require.NoError(t, stores.Ping(f.s, "chat", "somebody"))
		require.NoError(t, f.s.RecordChanges(context.Background(), "chat", green))
		f.quickly(time.Second, func() {
			f.moveWatermark(f.clock() + 4000)
			advanced = *f.advanceOnce(f.s, green)
		})
		require.True(t, advanced.Begun)
	})
}

// churn has random users come, go and turn yellow or grey, also late, until the returned function is called. Outages
// are ignored. Each write is a millisecond after the one before, which may be faster than time: so the watermark has to
// be far back.
func (f *feed) churn(users []string) (stop func()) {
	done, passed, first := make(chan struct{}), new(atomic.Int64), f.w
	var working sync.WaitGroup
	for writer := range 2 {
		random := rand.New(rand.NewPCG(uint64(writer), 7))
		working.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				at := first + lastseen.Instant(passed.Add(1)) - lastseen.Instant(random.IntN(20))
				write := f.s.Ping
				switch random.IntN(4) {
				case 0:
					write = f.s.Leave
				case 1:
					at -= hour
				}
				_, err := write(context.Background(), "chat", kit.Events(at, users[random.IntN(len(users))]))
				if err != nil && !isOutage(err) {
					f.Errorf("not an outage: %v", err)
					return
				}
				if err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	working.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			now := first + lastseen.Instant(passed.Load())
			step := &store.ChangesAdvance{Namespace: "chat", Thresholds: hours, Now: now}
			f.s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{step})
			if step.Err != nil && !isOutage(step.Err) {
				f.Errorf("not an outage: %v", step.Err)
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { close(done); working.Wait() })
	f.Cleanup(stop)
	return stop
}

// pollUntil polls, also through outages, until something is so.
func (r *reader) pollUntil(so func() bool) {
	r.Helper()
	stores.Eventually(r, func() bool {
		if err := r.tryPoll(); err != nil && !isOutage(err) {
			r.Errorf("not an outage: %v", err)
		}
		return r.Failed() || so()
	})
}

// TestReaderDuringFailover: while a reader follows, the primary dies with changes that only this reader has, and no
// replica.
func TestReaderDuringFailover(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	ctx, watched := context.Background(), redistest.StartSentinel(t)
	primary, replica := watched.Nodes[0], watched.Nodes[1]
	s := stores.New(t, redisstore.Options{URL: watched.URL(), Timeout: 500 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "somebody") })
	f := startFeed(t, s, stores.NewClient(t, primary.URL()), 1)
	users := stores.Numbered("u", 10)
	f.moveWatermark(f.w - hour)
	stop := f.churn(users)
	r := newReader(t, s, append(users, "tail")...)
	r.limit = store.MaxChangesRead
	r.pollUntil(func() bool { return len(r.changes) > 100 })
	stores.ReplicateAll(t, stores.NewClient(t, primary.URL()))
	replica.Freeze(t) // and cut off, so that it does not find the tail in its buffers either
	require.NoError(t, primary.Client(t).ClientKillByFilter(ctx, "TYPE", "replica").Err())
	stores.UntilSuccess(t, func() error {
		_, err := s.Ping(ctx, "chat", kit.Events(f.w, "tail"))
		return err
	})
	r.pollUntil(func() bool { return len(r.of("tail")) > 0 })
	primary.Stop(t)
	replica.Thaw(t)
	r.pollUntil(func() bool { return r.resets > 0 })
	first := len(r.changes)
	r.pollUntil(func() bool { return len(r.changes) > first+100 })
	stop()
	r.requireTruth()
	require.Equal(t, store.Published{Status: lastseen.Grey}, r.told["tail"], "it is lost, and the reader knows")
}

// TestUnconfirmedChange: with redis-wait, what is in the feed is confirmed like any write. A change that no replica
// confirmed is an error to the writer; a reader may have it, and a failover that loses it is a reset.
func TestUnconfirmedChange(t *testing.T) {
	t.Parallel()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, primary)
	s := stores.New(t, redisstore.Options{URL: primary.URL(), Wait: 1, Timeout: 2 * time.Second})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "somebody") })
	stores.UntilSuccess(t, func() error { return s.RecordChanges(context.Background(), "chat", hours) })
	f := &feed{T: t, s: s, client: stores.NewClient(t, primary.URL()), keys: []string{"presence:chat"}}
	f.moveWatermark(f.clock())
	replica.Freeze(t)
	for _, write := range []kit.Write{s.Ping, s.Leave} {
		_, err := write(context.Background(), "chat", kit.Events(f.w, "alice"))
		require.ErrorContains(t, err, "0 of 1 replicas confirmed")
	}
	require.ErrorContains(t, s.Forget(context.Background(), "chat", "alice"), "0 of 1 replicas confirmed")
	replica.Thaw(t)
	require.Equal(t, int64(3), f.entries())
	stores.UntilSuccess(t, func() error {
		_, err := s.Ping(context.Background(), "chat", kit.Events(f.w, "alice"))
		return err
	})
}
