package calls

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestRun: the loops do their work when it is due, and when something happens, until the context ends.
func TestRun(t *testing.T) {
	var elapsed atomic.Int64
	monotonic := func() time.Duration { return time.Duration(elapsed.Load()) }
	net := &network{monotonic: monotonic}
	h := net.add(newFakeStore(monotonic))
	k := New(h, slog.New(slog.DiscardHandler))
	h.receive = k.Receive
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		k.Run(ctx)
		close(stopped)
	}()
	c := store.NewCall{ID: "id", From: "alice", To: "bob", Ring: time.Millisecond, Quiet: quiet}
	_, err := k.Start(t.Context(), ns, c)
	require.NoError(t, err)
	elapsed.Add(int64(c.Ring))
	require.Eventually(t, func() bool {
		return k.Stats().Reached[lastseen.Missed] == 1
	}, time.Minute, time.Millisecond)
	require.True(t, k.Stats().Watching)
	cancel()
	<-stopped
	require.Equal(t, monotonic()+time.Millisecond, net.until, "the lease was given up")
}

// TestReceive: signals of other kinds, and the zero signal, change nothing.
func TestReceive(t *testing.T) {
	for kind, wanted := range map[string]bool{
		"": false, "self": false, "typing": false, SignalCaller: true, SignalCallee: true,
	} {
		k := New(newFakeStore(nil), slog.New(slog.DiscardHandler))
		k.Receive(store.Signal{Kind: kind, Namespace: ns, User: "alice"})
		require.Equal(t, wanted, k.watch.wanted(0), kind)
	}
}

// TestDefaults: a keeper that nobody configures has nobody heard.
func TestDefaults(t *testing.T) {
	k := New(newFakeStore(nil), slog.New(slog.DiscardHandler))
	require.False(t, k.Heard(ns, "alice", "", time.Hour))
	require.Equal(t, time.Minute, k.Quiet(ns))
	k.Late(time.Second)
	require.Zero(t, k.monotonic().Truncate(time.Minute))
	require.Equal(t, map[lastseen.CallState]int64{
		lastseen.Ringing: 0, lastseen.Active: 0, lastseen.Ended: 0, lastseen.Rejected: 0, lastseen.Cancelled: 0,
		lastseen.Missed: 0, lastseen.Lost: 0,
	}, k.Stats().Reached)
}
