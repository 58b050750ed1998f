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

// await waits for the next batch of a watcher.
func await(ctx context.Context, w *Watcher, limit int) (Batch, error) {
	woken := store.NewWaker()
	w.f.mu.Lock()
	w.wake = woken.Wake
	w.f.mu.Unlock()
	for {
		b, ok, again, err := w.Next(ctx, limit)
		if ok || err != nil {
			return b, err
		}
		if woken.Wait(ctx, again); ctx.Err() != nil {
			return Batch{}, ctx.Err()
		}
	}
}

// TestNextInterrupted: a call of Next whose context ends loses no changes.
func TestNextInterrupted(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		watcher := w.polled(2, "ann")
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		w.set("ann", lastseen.Green)
		time.Sleep(time.Second)
		for range 3 {
			_, err := await(ctx, watcher, 10)
			require.ErrorIs(w.t, err, context.Canceled)
		}
		require.Equal(w.t, []string{"ann green"}, names(*w.next(watcher, time.Second)))
	})
}

// client takes what a watcher has.
type client struct {
	w       *fixture
	watcher *Watcher
	got     []Batch
}

func (w *fixture) client(q Query) *client { return &client{w: w, watcher: w.watch(q)} }

// take takes until there is nothing, and returns when to do it again.
func (c *client) take() time.Duration {
	for {
		b, ok, again, err := c.watcher.Next(c.w.t.Context(), 10)
		require.NoError(c.w.t, err)
		if !ok {
			return again
		}
		c.got = append(c.got, b)
	}
}

// TestNext: at most four batches a second come.
func TestNext(t *testing.T) {
	for _, q := range []Query{{Users: []string{"ann"}}, {Everyone: true}} {
		withFixture(t, 2, func(w *fixture) {
			var wakes atomic.Int64
			q.Wake = func() { wakes.Add(1) }
			c := w.client(q)
			require.Equal(w.t, lookAgain, c.take())
			require.Len(w.t, c.got, 1)
			require.True(w.t, c.got[0].Snapshot)
			for range 3 {
				w.publish("ann green", "ann yellow")
				time.Sleep(time.Second)
			}
			again := c.take()
			require.Positive(w.t, again)
			require.LessOrEqual(w.t, again, batchEvery)
			require.Equal(w.t, []string{"ann yellow"}, names(c.got[1]))
			require.Equal(w.t, again, c.take(), "not yet")
			woken := wakes.Load()
			require.Positive(w.t, woken)
			w.publish("ann green", "ann yellow")
			time.Sleep(again / 2)
			require.Equal(w.t, woken, wakes.Load(), "it is called again in any case")
			again = c.take()
			time.Sleep(again)
			require.Equal(w.t, lookAgain, c.take(), "nothing happened")
			require.Len(w.t, c.got, 2)
			w.set("ann", lastseen.Grey)
			time.Sleep(time.Second)
		})
	}
}

// TestNextReset: watchers get their turn at random when the feed begins again.
func TestNextReset(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		c := w.client(Query{Users: []string{"ann"}})
		c.take()
		w.random = 0.5
		w.beginAgain(true)
		time.Sleep(time.Second)
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

// TestSwitchedOff: watchers end, and none begins.
func TestSwitchedOff(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		users, everyone := w.client(Query{Users: []string{"ann"}}), w.client(Query{Everyone: true})
		users.take()
		everyone.take()
		waiting, ended := w.polled(1, "ann"), make(chan error)
		go func() {
			_, err := await(w.t.Context(), waiting, 1)
			ended <- err
		}()
		time.Sleep(time.Second)
		w.locked(func() { w.mode = Off })
		time.Sleep(2 * time.Second)
		require.ErrorIs(w.t, <-ended, store.ErrNoFeed)
		for _, c := range []*client{users, everyone} {
			_, _, _, err := c.watcher.Next(w.t.Context(), 10)
			require.ErrorIs(w.t, err, store.ErrNoFeed)
			_, err = c.watcher.Change(w.t.Context(), Change{Remove: []string{"ann"}})
			require.True(w.t, errors.Is(err, store.ErrNoFeed) || errors.Is(err, ErrEveryone))
		}
		_, err := w.Watch(w.t.Context(), "chat", Query{Users: []string{"ann"}})
		require.ErrorIs(w.t, err, store.ErrNoFeed)
		require.Zero(w.t, w.Stats().Namespaces)
	})
}

// TestEndOfHub: watchers end, whether they wait or not, and none begins.
func TestEndOfHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{Store: newFakeStore(1), Settings: func(string) Settings { return Settings{Mode: Auto} }})
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx)
		var watchers []*Watcher
		for range 2 {
			watcher, err := h.Watch(ctx, "chat", Query{Users: []string{"ann"}})
			require.NoError(t, err)
			defer watcher.Close()
			for more := true; more; {
				_, more, _, err = watcher.Next(ctx, 10)
				require.NoError(t, err)
			}
			watchers = append(watchers, watcher)
		}
		time.AfterFunc(time.Second, cancel)
		_, err := await(t.Context(), watchers[0], 1) // waits
		require.ErrorIs(t, err, store.ErrClosed)
		_, _, _, err = watchers[1].Next(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrClosed)
		_, err = watchers[1].Change(t.Context(), Change{Add: []string{"bob"}})
		require.ErrorIs(t, err, store.ErrClosed)
		_, err = h.Watch(t.Context(), "other", Query{Everyone: true})
		require.ErrorIs(t, err, store.ErrClosed)
	})
}

// TestReserved: the users of a watcher that are reserved by its caller are not counted again.
func TestReserved(t *testing.T) {
	for _, reserved := range []bool{false, true} {
		withFixture(t, 1, func(w *fixture) {
			watcher := w.watch(Query{Users: []string{"ann", "bob"}, Reserved: reserved})
			w.poll(watcher, 10)
			_, err := watcher.Change(w.t.Context(), Change{Add: []string{"cat"}})
			require.NoError(w.t, err)
			require.Equal(w.t, reserved, w.Stats().Watches == 0)
		})
	}
}
