package calls

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
)

// realServer is a manager that runs on a real store and in real time, with connections of users.
type realServer struct {
	*Manager
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
	return startServer(t, openRedis(t, url), func(string) bool { return true }, func(*Manager) {})
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

// startServer starts a server with connections of some users, and a manager that is set up before it runs.
func startServer(
	t testing.TB, s store.Store, connected func(user string) bool, setUp func(*Manager),
) *realServer {
	t.Helper()
	r := &realServer{
		Manager: New(s, slog.New(slog.DiscardHandler)), store: s, connected: connected,
		states: map[string]lastseen.CallState{},
	}
	setUp(r.Manager)
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
