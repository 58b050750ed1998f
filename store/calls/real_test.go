package calls

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// realServer is a keeper that runs on a real store and in real time, with connections of users.
type realServer struct {
	*Keeper
	store     store.Store
	connected func(user string) bool
	stop      func()

	mu     sync.Mutex
	states map[string]lastseen.CallState // of calls, as connections of users were told last
	wrong  []string                      // what connections of users were told after the end of a call
}

// startReal starts a server on Redis, with a connection of every user.
func startReal(t testing.TB, url string) *realServer {
	t.Helper()
	return startServer(t, openRedis(t, url), func(string) bool { return true }, func(*Keeper) {})
}

func openRedis(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Options{
		URL: url, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// startServer starts a server with connections of some users, and a keeper that is set up before it runs.
func startServer(
	t testing.TB, s store.Store, connected func(user string) bool, setUp func(*Keeper),
) *realServer {
	t.Helper()
	r := &realServer{
		Keeper: New(s, slog.New(slog.DiscardHandler)), store: s, connected: connected,
		states: map[string]lastseen.CallState{},
	}
	setUp(r.Keeper)
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan struct{})
	var once sync.Once
	var running sync.WaitGroup
	running.Go(func() {
		s.Listen(ctx, func(signal store.Signal) {
			once.Do(func() { close(listening) })
			r.receive(ctx, signal)
		})
	})
	running.Go(func() { r.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(r.stop)
	<-listening
	return r
}

// receive does what a connection does with a signal.
func (r *realServer) receive(ctx context.Context, signal store.Signal) {
	r.Receive(signal)
	change := OfSignal(signal)
	for _, user := range change.Users {
		if r.connected(user) {
			r.learn(ctx, signal.Namespace, change.ID, user)
		}
	}
}

func (r *realServer) learn(ctx context.Context, namespace, id, user string) {
	c, err := store.ReadCall(ctx, r.store, namespace, id)
	if err != nil {
		return
	}
	r.Follow(namespace, user, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	key := c.ID + " " + user
	if old := r.states[key]; old.Over() && old != "" && old != c.State {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %s after %s", key, c.State, old))
	}
	r.states[key] = c.State
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// BenchmarkRinging lets 10,000 calls ring on one Redis, a thousand of which are due each second, and reports how late
// they end.
func BenchmarkRinging(b *testing.B) {
	const n = 10_000
	url := redistest.Start(b)
	var mu sync.Mutex
	var lags []time.Duration
	r := startReal(b, url)
	r.watch.late = func(lag time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		lags = append(lags, lag)
	}
	for round := 0; b.Loop(); round++ {
		began := time.Now()
		each(upTo(n), func(i int) {
			due := 30*time.Second + time.Duration(i)*time.Millisecond
			_, err := done(r.Start(b.Context(), ns, store.NewCall{
				ID: fmt.Sprint(round, "-", i), From: fmt.Sprint("from-", i), To: fmt.Sprint("to-", i),
				Ring: due - time.Since(began), Quiet: quiet,
			}))
			require.NoError(b, err)
		})
		b.ReportMetric(time.Since(began).Seconds(), "starting-s")
		require.Eventually(b, func() bool {
			return r.Stats().Reached[lastseen.Missed] == int64(n*(round+1))
		}, 5*time.Minute, 50*time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(lags)
	b.ReportMetric(float64(len(lags)), "batches")
	b.ReportMetric(lags[len(lags)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(lags[len(lags)*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(lags[len(lags)-1].Seconds()*1000, "max-ms")
}
