package feed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (w *fixture) change(watcher *Watcher, c Change) Batch {
	w.t.Helper()
	b, err := watcher.Change(w.t.Context(), c)
	require.NoError(w.t, err)
	return b
}

// order lists the users of a batch in its order.
func order(b Batch) []string {
	list := []string{}
	for _, u := range b.Users {
		list = append(list, u.User)
	}
	return list
}

// TestChange: a watcher that begins without users adds some and removes them.
func TestChange(t *testing.T) {
	withFixture(t, 3, func(w *fixture) {
		w.set("ann", lastseen.Green)
		watcher := w.watch(Query{Users: []string{}})
		b := w.poll(watcher, 10)
		require.Empty(w.t, b.Users)
		require.NotEmpty(w.t, b.Positions)
		require.Zero(w.t, watcher.Len())

		b = w.change(watcher, Change{Add: []string{"bob", "ann", "bob"}})
		require.Equal(w.t, []string{"bob", "ann"}, order(b))
		require.Equal(w.t, []string{"ann green", "bob grey"}, names(b))
		require.False(w.t, b.More || b.Reset)
		require.Equal(w.t, 2, watcher.Len())
		require.Empty(w.t, w.poll(watcher, 10).Users)

		w.publish("bob yellow", "eve green")
		b = w.change(watcher, Change{Add: []string{"eve"}, Remove: []string{"ann", "nobody"}})
		require.Equal(w.t, []string{"eve", "bob"}, order(b), "with what changed for the others")
		require.Equal(w.t, []string{"bob yellow", "eve green"}, names(b))
		require.Empty(w.t, w.poll(watcher, 10).Users)
		w.publish("ann yellow", "eve grey")
		w.requireSent(watcher, "eve grey")

		w.publish("eve green", "bob green")
		time.Sleep(time.Second)
		b = w.change(watcher, Change{Remove: []string{"eve"}})
		require.Empty(w.t, b.Users)
		require.NotEmpty(w.t, b.Positions)
		require.Equal(w.t, []string{"bob green"}, names(w.poll(watcher, 10)), "nothing of those removed")
		require.Equal(w.t, Stats{Namespaces: 1, Watchers: 1, Watches: 1, Entries: w.Stats().Entries}, w.Stats())
		watcher.Close()
		require.Zero(w.t, w.Stats().Watches)
	})
}

// TestChangeBeforeFirstBatch: the first batch has all users, and a removal has none.
func TestChangeBeforeFirstBatch(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		watcher := w.watch(Query{Users: []string{"ann", "bob"}})
		b := w.change(watcher, Change{Remove: []string{"ann"}})
		require.Equal(w.t, Batch{AsOf: b.AsOf}, b)
		b = w.change(watcher, Change{Add: []string{"eve"}})
		require.True(w.t, b.Snapshot)
		require.Equal(w.t, []string{"eve", "bob"}, order(b))
		require.Empty(w.t, w.poll(watcher, 10).Users)
	})
}

// TestChangeOfEveryone: a watcher of everyone stays one.
func TestChangeOfEveryone(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		_, err := w.watch(Query{Everyone: true}).Change(w.t.Context(), Change{Add: []string{"ann"}})
		require.ErrorIs(w.t, err, ErrEveryone)
	})
}

// TestChangeAfterPositions: users who are added continue from a position, or begin again.
func TestChangeAfterPositions(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		w.publish("ann green", "eve green")
		watcher := w.polled(1, "bob")
		after := w.change(watcher, Change{Add: []string{"ann", "eve"}}).Positions
		w.change(watcher, Change{Remove: []string{"ann", "eve"}})
		w.publish("ann yellow", "bob yellow")
		time.Sleep(time.Second)
		b := w.change(watcher, Change{Add: []string{"eve", "ann"}, After: after})
		require.Equal(w.t, []string{"ann yellow", "bob yellow"}, names(b), "those who changed")
		w.set("eve", lastseen.Yellow)
		w.requireSent(watcher, "eve yellow")

		time.Sleep(keptTime + time.Second) // not in memory any more
		b = w.change(watcher, Change{Add: []string{"eve", "ann"}, After: after})
		require.Equal(w.t, []string{"ann yellow", "eve yellow"}, names(b), "read from the store")
		for _, foreign := range [][]store.Position{{}, {"x", "y"}, {"1.0.0"}} {
			b = w.change(watcher, Change{Add: []string{"zoe", "ann"}, After: foreign})
			require.Equal(w.t, []string{"zoe", "ann"}, order(b), "all, since what changed is not known")
			require.False(w.t, b.Reset, "nothing happened to bob")
		}
	})
}

// TestChangeLimits: users are counted once, and a change that is refused changes nothing.
func TestChangeLimits(t *testing.T) {
	many := func(n int) (users []string) {
		for k := range n {
			users = append(users, fmt.Sprint("user", k))
		}
		return users
	}
	withFixture(t, 1, func(w *fixture) {
		first, second := w.watch(Query{Users: many(3)}), w.watch(Query{Users: []string{}})
		w.poll(first, 10)
		for _, add := range [][]string{many(8), {"a", "b", "c", "d", "e", "f", "g", "h"}} {
			_, err := second.Change(w.t.Context(), Change{Add: add})
			require.ErrorIs(w.t, err, ErrTooManyWatches)
			require.NotErrorIs(w.t, err, ErrTooManyUsers)
			require.Equal(w.t, 3, w.Stats().Watches)
		}
		w.change(second, Change{Add: many(7)})
		w.change(second, Change{Add: many(7), Remove: many(9)})
		require.Equal(w.t, 10, w.Stats().Watches)
		w.change(first, Change{Add: []string{"x", "y"}, Remove: many(2)})
		require.Equal(w.t, 10, w.Stats().Watches)
		w.change(first, Change{Remove: many(100)})
		w.change(second, Change{Add: []string{"z"}})
		require.Equal(w.t, 10, w.Stats().Watches)
		w.publish("user1 green", "z green")
		w.requireSent(second, "user1 green", "z green")
		require.Empty(w.t, w.poll(first, 10).Users)
	}, func(o *Options) { o.MaxWatches = 10 })
	withFixture(t, 1, func(w *fixture) {
		watcher := w.watch(Query{Users: many(store.MaxWatched)})
		for range 2 {
			_, err := watcher.Change(w.t.Context(), Change{Add: []string{"x"}})
			require.ErrorIs(w.t, err, ErrTooManyUsers)
			w.poll(watcher, 10)
		}
		w.change(watcher, Change{Add: []string{"x"}, Remove: []string{"user7"}})
		require.Equal(w.t, store.MaxWatched, watcher.Len())
	})
}

// TestChangeThatFails: after an error the watcher watches what it did, and misses nothing.
func TestChangeThatFails(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		begun, fresh := w.watch(Query{Users: []string{"ann"}}), w.watch(Query{Users: []string{"ann"}})
		w.poll(begun, 10)
		w.poll(begun, 10)
		w.set("ann", lastseen.Green)
		time.Sleep(time.Second)
		w.fail(store.ErrUnavailable)
		for _, watcher := range []*Watcher{begun, fresh} {
			_, err := watcher.Change(w.t.Context(), Change{Add: []string{"bob"}, Remove: []string{"ann"}})
			require.ErrorIs(w.t, err, store.ErrUnavailable)
			require.Equal(w.t, 1, watcher.Len())
		}
		w.change(begun, Change{Remove: []string{"nobody"}})
		require.Equal(w.t, 2, w.Stats().Watches)
		w.fail(nil)
		w.requireSent(begun, "ann green")
		require.Equal(w.t, []string{"ann green"}, names(w.poll(fresh, 10)))
		w.set("bob", lastseen.Green)
		w.requireSent(begun)

		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		_, err := begun.Change(ctx, Change{Add: []string{"bob"}})
		require.ErrorIs(w.t, err, context.Canceled)
		require.Equal(w.t, []string{"bob green"}, names(w.change(begun, Change{Add: []string{"bob"}})))
	})
}

// TestChangeThatFailsHalfway: what was read for the users who are watched, and not returned, comes as a reset.
func TestChangeThatFailsHalfway(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.bounds.entries = 0 // nothing is in memory
		for _, begun := range []bool{true, false} {
			watcher := w.watch(Query{Users: []string{"ann"}})
			if begun {
				w.poll(watcher, 10)
			}
			failing := &mergedBatch{}
			_, _, err := watcher.step(w.t.Context(), 10)
			require.NoError(w.t, err)
			failing.add(Batch{Snapshot: !begun, Users: []Update{{User: "ann"}}})
			watcher.reset(failing)
			b := w.poll(watcher, 10)
			require.Equal(w.t, begun, b.Reset)
			require.Equal(w.t, !begun, b.Snapshot)
			require.Len(w.t, b.Users, 1)
		}
	})
}

// TestChangeAfterReset: a watcher that has to begin again does so with the change.
func TestChangeAfterReset(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		watcher := w.polled(1, "ann", "bob")
		w.beginAgain(true)
		w.set("bob", lastseen.Green)
		time.Sleep(time.Second)
		b := w.change(watcher, Change{Add: []string{"eve"}, Remove: []string{"ann"}})
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"eve", "bob"}, order(b))
		require.EqualValues(w.t, 1, w.count().Resets)
		require.Nil(w.t, w.next(watcher, time.Minute))

		w.beginAgain(true)
		time.Sleep(time.Second)
		b = w.change(watcher, Change{Remove: []string{"bob"}})
		require.Empty(w.t, b.Users)
		b = w.poll(watcher, 10)
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"eve"}, order(b))
	})
}
