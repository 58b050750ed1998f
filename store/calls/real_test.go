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
	if !IsSignal(signal.Kind) || !r.connected(signal.User) {
		return
	}
	c, err := r.store.ReadCall(ctx, signal.Namespace, string(signal.Data))
	if err != nil {
		return
	}
	r.Follow(signal.Namespace, signal.User, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	key := c.ID + " " + signal.User
	if old := r.states[key]; old.Over() && old != "" && old != c.State {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %s after %s", key, c.State, old))
	}
	r.states[key] = c.State
}

// requireTold waits until connections of both parties were told a state.
func requireTold(t *testing.T, id string, want lastseen.CallState, servers ...*realServer) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, r := range servers {
			r.mu.Lock()
			alice, bob := r.states[id+" alice"], r.states[id+" bob"]
			r.mu.Unlock()
			if alice != want || bob != want {
				return false
			}
		}
		return true
	}, time.Minute, 5*time.Millisecond)
}

// requireShown waits until alice and bob are shown to be in a call, or not.
func requireShown(t *testing.T, s store.Store, inCall bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, details, err := s.Describe(t.Context(), ns, []string{"alice", "bob"})
		require.NoError(t, err)
		return (details["alice"].InCallUntil != 0) == inCall && (details["bob"].InCallUntil != 0) == inCall
	}, time.Minute, 5*time.Millisecond)
}

// TestRedis: on two servers with one Redis, calls end and are signalled by time and by actions, copies that a dead
// server left are made, and the second server continues when the first one stops.
func TestRedis(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	first, second := startReal(t, url), startReal(t, url)
	begin := func(s *realServer, id string, ring, quiet time.Duration) {
		t.Helper()
		c := store.NewCall{ID: id, From: "alice", To: "bob", Ring: ring, Quiet: quiet, Shown: true}
		require.Eventually(t, func() bool {
			_, err := s.Start(t.Context(), ns, c)
			return err == nil
		}, time.Minute, 5*time.Millisecond)
	}
	begin(first, "missed", time.Second, quiet)
	requireTold(t, "missed", lastseen.Missed, first, second)

	begin(second, "ended", time.Hour, time.Hour)
	requireTold(t, "ended", lastseen.Ringing, first, second)
	_, err := first.Act(t.Context(), ns, store.CallAct{ID: "ended", User: "bob", Action: lastseen.Accept})
	require.NoError(t, err)
	requireTold(t, "ended", lastseen.Active, first, second)
	requireShown(t, second.store, true)
	_, err = second.Act(t.Context(), ns, store.CallAct{ID: "ended", User: "bob", Action: lastseen.End})
	require.NoError(t, err)
	requireTold(t, "ended", lastseen.Ended, first, second)
	requireShown(t, first.store, false)

	begin(second, "copied", time.Hour, time.Hour)
	dead := store.CallAct{ID: "copied", User: "bob", Action: lastseen.Accept}
	_, err = second.store.StepCall(t.Context(), ns, dead) // and nothing that has to follow
	require.NoError(t, err)
	requireShown(t, first.store, true)
	_, err = first.Act(t.Context(), ns, store.CallAct{ID: "copied", User: "alice", Action: lastseen.End})
	require.NoError(t, err)

	left := second
	if first.Stats().Watching {
		first.stop()
	} else {
		left = first
		second.stop()
	}
	begin(left, "lost", time.Hour, time.Second)
	_, err = left.Act(t.Context(), ns, store.CallAct{ID: "lost", User: "bob", Action: lastseen.Accept})
	require.NoError(t, err)
	requireTold(t, "lost", lastseen.Lost, left)
	requireShown(t, left.store, false)
	require.True(t, left.Stats().Watching)
}
