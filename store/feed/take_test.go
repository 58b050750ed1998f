package feed

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestNextInterrupted: a call of Next whose context ends takes nothing.
func TestNextInterrupted(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher := w.watch(Query{Users: []string{"ann"}})
		w.poll(watcher, 10)
		w.poll(watcher, 10)
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		w.set("ann", lastseen.Green)
		time.Sleep(time.Second)
		for range 3 {
			_, err := watcher.Next(ctx, 10)
			require.ErrorIs(w.t, err, context.Canceled)
		}
		require.Equal(w.t, []string{"ann green"}, names(*w.next(watcher, 10, time.Second)))
	})
}

// client serves a watcher by Take, when it is called by OnReady or when the time has come.
type client struct {
	w       *world
	watcher *Watcher
	ready   atomic.Int64 // calls of OnReady
	got     []Batch
}

func (w *world) client(q Query) *client {
	c := &client{w: w}
	q.OnReady = func() { c.ready.Add(1) }
	c.watcher = w.watch(q)
	return c
}

// take takes until there is nothing, and returns when to do it again.
func (c *client) take() time.Duration {
	for {
		b, ok, again, err := c.watcher.Take(c.w.t.Context(), 10)
		require.NoError(c.w.t, err)
		if !ok {
			return again
		}
		c.got = append(c.got, b)
	}
}

// TestTake: without a goroutine for each watcher, batches come as with Next.
func TestTake(t *testing.T) {
	for _, q := range []Query{{Users: []string{"ann"}}, {Everyone: true}} {
		inWorld(t, 2, func(w *world) {
			c := w.client(q)
			require.Zero(w.t, c.take())
			require.Len(w.t, c.got, 1)
			require.True(w.t, c.got[0].Snapshot)
			time.Sleep(time.Minute)
			require.Zero(w.t, c.ready.Load(), "nothing happened")

			for range 3 {
				w.set("ann", lastseen.Green)
				w.set("ann", lastseen.Yellow)
				time.Sleep(time.Second)
			}
			require.Equal(w.t, int64(1), c.ready.Load(), "once until Take is called")
			again := c.take()
			require.Positive(w.t, again)
			require.LessOrEqual(w.t, again, batchEvery)
			require.Equal(w.t, []string{"ann yellow"}, names(c.got[1]))
			require.Equal(w.t, again, c.take(), "not yet")
			time.Sleep(again)
			require.Zero(w.t, c.take(), "nothing happened")
			require.Len(w.t, c.got, 2)
			w.set("ann", lastseen.Grey)
			time.Sleep(time.Second)
			require.Equal(w.t, int64(2), c.ready.Load(), "again after Take")
		})
	}
}

// TestTakePaces: at most four batches a second are taken.
func TestTakePaces(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.client(Query{Users: []string{"ann"}})
		c.take()
		w.changeOften("ann", 2*time.Second)
		for begun := time.Now(); time.Since(begun) < 2*time.Second; {
			again := c.take()
			time.Sleep(max(again, 10*time.Millisecond))
		}
		require.GreaterOrEqual(w.t, len(c.got), 4)
		require.LessOrEqual(w.t, len(c.got), 10)
	})
}

// TestTakeReset: watchers are called when the feed begins again, and get their turn at random.
func TestTakeReset(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.client(Query{Users: []string{"ann"}})
		c.take()
		w.random = 0.5
		w.beginAgain(true)
		time.Sleep(time.Second)
		require.Equal(w.t, int64(1), c.ready.Load())
		again := c.take()
		require.Equal(w.t, resetSpread/2, again)
		require.Len(w.t, c.got, 1)
		time.Sleep(again)
		c.take()
		require.True(w.t, c.got[1].Reset)

		w.fail(store.ErrUnavailable)
		w.beginAgain(true)
		time.Sleep(time.Second)
		w.fail(nil)
		time.Sleep(time.Second)
		w.fail(store.ErrUnavailable)
		time.Sleep(c.take())
		require.Positive(w.t, c.take(), "the store does not work")
		require.Len(w.t, c.got, 2)
		w.fail(nil)
		time.Sleep(c.take())
		c.take()
		require.True(w.t, c.got[2].Reset)
	})
}

// TestTakeEnds: watchers are called when they end.
func TestTakeEnds(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		users, everyone := w.client(Query{Users: []string{"ann"}}), w.client(Query{Everyone: true})
		users.take()
		everyone.take()
		w.fakeStore.mu.Lock()
		w.mode = Off
		w.fakeStore.mu.Unlock()
		time.Sleep(2 * time.Second)
		for _, c := range []*client{users, everyone} {
			require.Equal(w.t, int64(1), c.ready.Load())
			_, _, _, err := c.watcher.Take(w.t.Context(), 10)
			require.ErrorIs(w.t, err, store.ErrNoFeed)
			_, err = c.watcher.Change(w.t.Context(), Change{Remove: []string{"ann"}})
			require.True(w.t, errors.Is(err, store.ErrNoFeed) || errors.Is(err, ErrEveryone))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, called := newFakeStore(1), 0
		h := New(Options{Store: s, Settings: func(string) Settings { return Settings{Mode: Auto} }})
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx)
		watcher, err := h.Watch(ctx, "chat", Query{Users: []string{"ann"}, OnReady: func() { called++ }})
		require.NoError(t, err)
		defer watcher.Close()
		for more := true; more; {
			_, more, _, err = watcher.Take(ctx, 10)
			require.NoError(t, err)
		}
		cancel()
		synctest.Wait()
		require.Equal(t, 1, called)
		_, _, _, err = watcher.Take(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrClosed)
		_, err = watcher.Change(t.Context(), Change{Add: []string{"bob"}})
		require.ErrorIs(t, err, store.ErrClosed)
	})
}
