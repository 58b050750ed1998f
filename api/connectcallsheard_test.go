package api

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// TestHeardCallsAreNotReadAgain: connections do not read a call of which the keeper knows that it goes on, and read it
// once the keeper does not.
func TestHeardCallsAreNotReadAgain(t *testing.T) {
	t.Parallel()
	s := fileStore(t)
	var reads atomic.Int64
	counted := countedCallReads{s, &reads}
	keeper := calls.New(s, slog.New(slog.DiscardHandler))
	keeper.Quiet = func(string) time.Duration { return time.Hour } // as that of the call below
	keeper.Heard = func(string, string, string, time.Duration) bool { return true }
	w := newTestServer(t, counted, live(s), held(t, s), func(c *Config) { c.Keeper = keeper }) // gets no signals
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	defer running.Wait()
	defer cancel()
	timers := make(chan func(), 10)
	w.config.Shared.calls.after = func(_ time.Duration, f func()) *time.Timer {
		timers <- f
		return time.NewTimer(0)
	}
	w.ring("c1", "alice", "bob")
	w.act("c1", "bob", lastseen.Accept)
	alice, _ := w.hello(`{"user":"alice"}`)
	waitWelcomed(t, w)
	late := <-timers
	require.Eventually(t, func() bool { return keeper.Rest("chat", "alice", "c1") > 0 }, eventually, tick)
	before := reads.Load()
	late()
	late = <-timers // planned again, at once
	require.Equal(t, before, reads.Load())
	cancel()
	running.Wait()
	w.act("c1", "bob", lastseen.End)
	keeper.Follow("chat", "alice", lastseen.Call{ID: "c1", From: "alice", To: "bob", State: lastseen.Ended})
	late()
	wantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Ended)
}

// countedCallReads counts reads of calls.
type countedCallReads struct {
	store.Store
	reads *atomic.Int64
}

func (s countedCallReads) ReadCalls(ctx context.Context, ns string, users []string) ([]lastseen.Call, error) {
	s.reads.Add(1)
	return s.Store.ReadCalls(ctx, ns, users)
}
