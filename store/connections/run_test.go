package connections

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestRun works by itself until its context ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		r := New(Options{
			Store: s, Settings: func(string) Settings { return s.settings }, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		c, err := r.Open(ctx, Opening{Namespace: ns, User: "alice", Close: func(Reason) {}})
		require.NoError(t, err)
		time.Sleep(25 * time.Second)
		c.Received()
		time.Sleep(2 * time.Second)
		require.Len(t, s.take(), 2)
		c.End(Gone)
		time.Sleep(time.Second)
		require.Len(t, s.take(), 1)
		cancel()
		running.Wait()
	})
}

// TestConcurrency calls everything from many goroutines, while the registry works, and compares the counts at the end.
func TestConcurrency(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Left = nil; o.Logger = slog.New(slog.DiscardHandler); o.MaxUser = 1000 })
	f.o.Left = func(string, int) {}
	stop := make(chan struct{})
	var ticking, using sync.WaitGroup
	ticking.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			f.store.pass(time.Duration(rand.IntN(3000)) * time.Millisecond)
			f.tick(t.Context())
			switch {
			case i%7 == 0:
				f.store.fail(store.ErrUnavailable)
			case i%7 == 2:
				f.store.fail(nil)
			case i%50 == 5:
				f.store.close()
			}
		}
	})
	for g := range 8 {
		using.Go(func() {
			for i := range 300 {
				o := f.opening([]string{"alice", "bob", fmt.Sprint("u", g, i)}[i%3])
				o.Meta = ""
				c, err := f.Open(t.Context(), o)
				if err != nil {
					continue
				}
				for range rand.IntN(20) {
					use(t, f, c)
				}
				c.End(Ending(rand.IntN(4)))
			}
		})
	}
	using.Wait()
	close(stop)
	ticking.Wait()
	f.store.fail(nil)
	f.Stop(t.Context())
	stats := f.Stats()
	require.Empty(t, f.users)
	require.Empty(t, f.held)
	require.Zero(t, f.Registry.later)
	require.Zero(t, stats.Open)
	require.Zero(t, stats.Waiting)
	require.Positive(t, stats.Opened)
}

func use(t *testing.T, f *fixture, c *Connection) {
	switch rand.IntN(12) {
	case 0:
		c.SetIdle(rand.IntN(2) == 0)
	case 1:
		_, _ = c.Leave(t.Context())
	case 2:
		f.Stats()
	case 3:
		_ = f.Later(t.Context(), DelayedLeave{Namespace: ns, DeviceEvent: store.DeviceEvent{User: "bob", At: base}})
	default:
		c.Received()
	}
}
