package feed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func TestWatch(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.set("ann", lastseen.Green)
		watcher := w.watch(Query{Users: []string{"bob", "ann", "bob"}})
		b := w.next(watcher, 10, time.Second)
		require.NotNil(w.t, b)
		require.True(w.t, b.Snapshot)
		require.Equal(w.t, "bob", b.Users[0].User)
		require.Equal(w.t, []string{"ann green", "bob grey"}, names(*b))

		require.Nil(w.t, w.next(watcher, 10, time.Minute))
		w.set("eve", lastseen.Green)
		w.set("bob", lastseen.Green)
		b = w.next(watcher, 10, 300*time.Millisecond)
		require.NotNil(w.t, b)
		require.Equal(w.t, []string{"bob green"}, names(*b))
		require.False(w.t, b.More || b.Reset || b.Snapshot)
		require.NotZero(w.t, b.Users[0].Recorded)
	})
}

// TestBatchesAreGathered: the first change is told at once, later ones four times a second.
func TestBatchesAreGathered(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher := w.watch(Query{Users: []string{"ann", "bob"}})
		w.next(watcher, 10, time.Second)
		w.changeOften("ann", 2*time.Second)
		batches := 0
		for begun := time.Now(); time.Since(begun) < 2*time.Second; {
			if b := w.next(watcher, 10, 100*time.Millisecond); b != nil {
				require.Len(w.t, b.Users, 1)
				batches++
			}
		}
		require.GreaterOrEqual(w.t, batches, 4)
		require.LessOrEqual(w.t, batches, 9)
	})
}

// changeOften has a user change every 10 ms for a while.
func (w *world) changeOften(user string, d time.Duration) {
	go func() {
		for n := range int(d / (10 * time.Millisecond)) {
			w.set(user, lastseen.Statuses()[n%3])
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

func TestMergesThatChangeNothing(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		named, everyone := w.watch(Query{Users: []string{"ann"}}), w.watch(Query{Everyone: true})
		w.poll(named, 10)
		w.poll(everyone, 10)
		w.set("ann", lastseen.Green)
		w.set("ann", lastseen.Grey)
		time.Sleep(time.Second)
		require.Empty(w.t, w.poll(named, 10).Users)
		b := w.poll(everyone, 10)
		require.Equal(w.t, []string{"ann grey"}, names(b), "the list may have been read while ann was green")
	})
}

// TestResetsAreSpread: watchers that wait get their snapshots at random, those that poll at once.
func TestResetsAreSpread(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher, polling := w.watch(Query{Users: []string{"ann"}}), w.watch(Query{Users: []string{"ann"}})
		w.poll(watcher, 10)
		w.poll(watcher, 10)
		w.poll(polling, 10)
		w.poll(polling, 10)
		w.random = 0.7
		w.beginAgain(true)
		synctest.Wait()
		asked := w.asked
		require.Nil(w.t, w.next(watcher, 10, 5*time.Second))
		_, ok := watcher.Tick()
		require.False(w.t, ok)
		require.True(w.t, w.poll(polling, 10).Reset)
		b := w.next(watcher, 10, 5*time.Second)
		require.NotNil(w.t, b)
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"ann grey"}, names(*b))
		require.Equal(w.t, asked+2, w.asked)
		require.Equal(w.t, 2, w.count().resets)
	})
}

// TestOutage: a watcher that waits lives through errors of the store, one that begins gets them.
func TestOutage(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher := w.watch(Query{Users: []string{"ann"}})
		w.next(watcher, 10, time.Second)
		w.fail(store.ErrUnavailable)
		_, err := w.watch(Query{Users: []string{"ann"}}).Poll(w.t.Context(), 10)
		require.ErrorIs(w.t, err, store.ErrUnavailable)
		_, err = w.Watch(w.t.Context(), "other", Query{Users: []string{"ann"}})
		require.ErrorIs(w.t, err, store.ErrUnavailable)
		w.beginAgain(false)
		require.Nil(w.t, w.next(watcher, 10, 50*time.Second))
		_, ok := watcher.Tick()
		require.False(w.t, ok)
		synctest.Wait()
		require.Equal(w.t, 1, strings.Count(w.log.String(), "level=WARN"), w.log.String())

		w.set("ann", lastseen.Green)
		w.fail(nil)
		b := w.next(watcher, 10, 20*time.Second)
		require.NotNil(w.t, b)
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"ann green"}, names(*b))
	})
}

// TestReadsAreShared: the follower of each namespace reads, not each watcher, and all read in one call.
func TestReadsAreShared(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		for k := range 30 {
			watcher, err := w.Watch(w.t.Context(), fmt.Sprint("room", k%10), Query{Users: []string{"ann"}})
			require.NoError(w.t, err)
			defer watcher.Close()
			_, err = watcher.Poll(w.t.Context(), 1)
			require.NoError(w.t, err)
		}
		time.Sleep(10 * time.Second)
		w.fakeStore.mu.Lock()
		w.reads = nil
		w.fakeStore.mu.Unlock()
		time.Sleep(10 * time.Second)
		w.fakeStore.mu.Lock()
		defer w.fakeStore.mu.Unlock()
		require.LessOrEqual(w.t, len(w.reads), 50)
		require.Contains(w.t, w.reads, 10)
		require.Equal(w.t, Stats{Namespaces: 10, Watchers: 30, Watches: 30}, w.Stats())
	})
}

// TestFollowing: a namespace is recorded once a minute while it is watched, and followed a minute longer.
func TestFollowing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher := w.watch(Query{Users: []string{"ann", "bob"}})
		time.Sleep(150 * time.Second)
		synctest.Wait()
		require.Len(w.t, w.recorded, 3)
		w.set("eve", lastseen.Green)
		time.Sleep(time.Second)
		require.Equal(w.t, Stats{Namespaces: 1, Watchers: 1, Watches: 2, Entries: 1}, w.Stats())
		watcher.Close()
		watcher.Close()
		time.Sleep(50 * time.Second)
		require.Equal(w.t, Stats{Namespaces: 1, Entries: 1}, w.Stats())
		time.Sleep(20 * time.Second)
		require.Zero(w.t, w.Stats())
		synctest.Wait()
		records := w.records
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(w.t, records, w.records)
	})
}

func TestSwitchedOff(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher := w.watch(Query{Users: []string{"ann"}})
		w.next(watcher, 1, time.Second)
		ended := make(chan error)
		go func() {
			_, err := watcher.Next(w.t.Context(), 1)
			ended <- err
		}()
		time.Sleep(time.Second)
		w.fakeStore.mu.Lock()
		w.mode = Off
		w.fakeStore.mu.Unlock()
		require.ErrorIs(w.t, <-ended, store.ErrNoFeed)
		_, err := w.Watch(w.t.Context(), "chat", Query{Users: []string{"ann"}})
		require.ErrorIs(w.t, err, store.ErrNoFeed)
		require.Zero(w.t, w.Stats().Namespaces)
	})
}

func TestEndOfHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{Store: newFakeStore(1), Settings: func(string) Settings { return Settings{} }})
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx)
		watcher, err := h.Watch(t.Context(), "chat", Query{Everyone: true})
		require.NoError(t, err)
		defer watcher.Close()
		_, err = watcher.Next(t.Context(), 1)
		require.NoError(t, err)
		time.AfterFunc(time.Second, cancel)
		_, err = watcher.Next(t.Context(), 1)
		require.ErrorIs(t, err, store.ErrClosed)
		_, err = h.Watch(t.Context(), "other", Query{Everyone: true})
		require.ErrorIs(t, err, store.ErrClosed)
	})
}

func TestLimits(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		many := []string{}
		for k := range store.MaxWatched + 1 {
			many = append(many, fmt.Sprint(k))
		}
		_, err := w.Watch(w.t.Context(), "chat", Query{Users: many})
		require.ErrorIs(w.t, err, ErrTooManyWatches)
		first := w.watch(Query{Users: many[:5000]})
		w.watch(Query{Everyone: true})
		w.watch(Query{Users: append(many[:999:999], many[:999]...)})
		_, err = w.Watch(w.t.Context(), "chat", Query{Everyone: true})
		require.ErrorIs(w.t, err, ErrTooManyWatches)
		first.Close()
		w.watch(Query{Users: many[:5000]})
		require.Equal(w.t, 6000, w.Stats().Watches)
	}, func(o *Options) { o.MaxWatches = 6000 })
}

// TestTooManyNamespaces checks that those that nobody watches make room for others, and that the others do not.
func TestTooManyNamespaces(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bounds.followed = 2
		watch := func(namespace string) (*Watcher, error) {
			watcher, err := w.Watch(w.t.Context(), namespace, Query{Everyone: true})
			if err == nil {
				w.t.Cleanup(watcher.Close)
			}
			return watcher, err
		}
		first, err := watch("a")
		require.NoError(w.t, err)
		_, err = watch("b")
		require.NoError(w.t, err)
		_, err = watch("c")
		require.ErrorIs(w.t, err, ErrTooManyWatches)
		require.Equal(w.t, 2, w.Stats().Watches)
		first.Close()
		_, err = watch("c")
		require.NoError(w.t, err)
		require.Equal(w.t, Stats{Namespaces: 2, Watchers: 2, Watches: 2}, w.Stats())

		w.bounds.followed = 10
		w.begins = rate.NewLimiter(1, 1)
		_, err = watch("d")
		require.NoError(w.t, err)
		_, err = watch("one too many")
		require.ErrorIs(w.t, err, ErrTooManyWatches)
		time.Sleep(time.Second)
		_, err = watch("later")
		require.NoError(w.t, err)
	})
}

// TestResetsOfFirstWaitsAreSpread: so does one that continued and has waited since, as long polls do.
func TestResetsOfFirstWaitsAreSpread(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		first := w.poll(w.watch(Query{Users: []string{"ann"}}), 10)
		watcher := w.watch(Query{Users: []string{"ann"}, After: first.Places})
		require.Nil(w.t, w.next(watcher, 10, time.Second))
		w.random = 0.7
		w.beginAgain(true)
		require.Nil(w.t, w.next(watcher, 10, 5*time.Second))
		b := w.next(watcher, 10, 5*time.Second)
		require.NotNil(w.t, b)
		require.True(w.t, b.Reset)

		w.beginAgain(true)
		time.Sleep(time.Second)
		old := w.watch(Query{Users: []string{"ann"}, After: b.Places})
		b = w.next(old, 10, time.Second)
		require.NotNil(w.t, b, "one that begins does not wait")
		require.True(w.t, b.Reset)
	})
}
