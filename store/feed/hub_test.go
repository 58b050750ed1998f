package feed

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func TestWatch(t *testing.T) {
	withFixture(t, 3, func(w *fixture) {
		w.set("ann", lastseen.Green)
		watcher := w.watch(Query{Users: []string{"bob", "ann", "bob"}})
		b := w.must(w.next(watcher, time.Second))
		require.True(w.t, b.Snapshot)
		require.Equal(w.t, "bob", b.Users[0].User)
		require.Equal(w.t, []string{"ann green", "bob grey"}, names(*b))

		require.Nil(w.t, w.next(watcher, time.Minute))
		w.publish("eve green", "bob green")
		b = w.must(w.next(watcher, 300*time.Millisecond))
		require.Equal(w.t, []string{"bob green"}, names(*b))
		require.False(w.t, b.More || b.Reset || b.Snapshot)
		require.NotZero(w.t, b.Users[0].Recorded)
	})
}

// TestBatchesAreMerged: the first change is sent at once, later ones four times a second. Next paces as TryNext does.
func TestBatchesAreMerged(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		watcher := w.polled(1, "ann", "bob")
		w.changeOften("ann", 2*time.Second)
		batches := 0
		for begun := time.Now(); time.Since(begun) < 2*time.Second; {
			if b := w.next(watcher, 100*time.Millisecond); b != nil {
				require.Len(w.t, b.Users, 1)
				batches++
			}
		}
		require.GreaterOrEqual(w.t, batches, 4)
		require.LessOrEqual(w.t, batches, 9)
	})
}

// changeOften has a user change every 10 ms for a while.
func (w *fixture) changeOften(user string, d time.Duration) {
	go func() {
		for n := range int(d / (10 * time.Millisecond)) {
			w.set(user, lastseen.Statuses()[n%3])
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

func TestMergesThatChangeNothing(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		named, everyone := w.watch(Query{Users: []string{"ann"}}), w.watch(Query{Everyone: true})
		w.poll(named, 10)
		w.poll(everyone, 10)
		w.publish("ann green", "ann grey")
		w.requireSent(named)
		w.requireSent(everyone)
	})
}

// TestRestarted: data may be lost if a feed was removed, or begins again later than new feeds do until all servers know
// of them, or if the namespace was removed. Each loss is reported once.
func TestRestarted(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.polled(2, "ann")
		for _, step := range []struct {
			after    time.Duration
			recorded bool
			want     int
		}{{0, true, 0}, {0, false, 1}, {0, true, 1}, {time.Minute, true, 2}} {
			time.Sleep(step.after)
			w.beginAgain(step.recorded)
			time.Sleep(13 * time.Second)
			synctest.Wait()
			require.Len(w.t, w.restarted, step.want)
		}
		for _, exists := range []bool{false, true} {
			w.create("chat", exists)
			time.Sleep(13 * time.Second)
			synctest.Wait()
			require.Len(w.t, w.restarted, 3)
			w.beginAgain(exists)
		}
		time.Sleep(13 * time.Second)
		synctest.Wait()
		require.Len(w.t, w.restarted, 3)
	})
}

// TestResetsAreSpread: watchers that wait get their snapshots at random, those that poll at once.
func TestResetsAreSpread(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		watcher, polling := w.watch(Query{Users: []string{"ann"}}), w.watch(Query{Users: []string{"ann"}})
		w.poll(watcher, 10)
		w.poll(watcher, 10)
		w.poll(polling, 10)
		w.poll(polling, 10)
		w.random = 0.7
		w.beginAgain(true)
		synctest.Wait()
		asked := w.asked
		require.Nil(w.t, w.next(watcher, 5*time.Second))
		_, ok := watcher.Tick()
		require.False(w.t, ok)
		require.True(w.t, w.poll(polling, 10).Reset)
		b := w.must(w.next(watcher, 5*time.Second))
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"ann grey"}, names(*b))
		require.Equal(w.t, asked+2, w.asked)
		require.EqualValues(w.t, 2, w.count().Resets)
	})
}

// TestOutage: a watcher that waits lives through errors of the store, one that begins gets them.
func TestOutage(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		watcher := w.polled(1, "ann")
		w.fail(store.ErrUnavailable)
		_, err := w.watch(Query{Users: []string{"ann"}}).Poll(w.t.Context(), 10)
		require.ErrorIs(w.t, err, store.ErrUnavailable)
		_, err = w.Watch(w.t.Context(), "other", Query{Users: []string{"ann"}})
		require.ErrorIs(w.t, err, store.ErrUnavailable)
		w.beginAgain(false)
		require.Nil(w.t, w.next(watcher, 50*time.Second))
		_, ok := watcher.Tick()
		require.False(w.t, ok)
		synctest.Wait()
		require.Equal(w.t, 1, strings.Count(w.log.String(), "level=WARN"), w.log.String())

		w.set("ann", lastseen.Green)
		w.fail(nil)
		b := w.must(w.next(watcher, 20*time.Second))
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"ann green"}, names(*b))
	})
}

// TestReadsAreShared: the follower of each namespace reads, not each watcher, and all read in one call.
func TestReadsAreShared(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		for k := range 30 {
			watcher, err := w.Watch(w.t.Context(), fmt.Sprint("room", k%10), Query{Users: []string{"ann"}})
			require.NoError(w.t, err)
			defer watcher.Close()
			_, err = watcher.Poll(w.t.Context(), 1)
			require.NoError(w.t, err)
		}
		time.Sleep(10 * time.Second)
		w.locked(func() { w.reads = nil })
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
	withFixture(t, 1, func(w *fixture) {
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

func TestLimits(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
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

// TestTooManyNamespaces checks that those that nobody watches make room for others, then those that do not exist, and
// that the others do not.
func TestTooManyNamespaces(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
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
		second, err := watch("b")
		require.NoError(w.t, err)
		_, err = watch("c")
		require.ErrorIs(w.t, err, ErrTooManyWatches)
		require.Equal(w.t, 2, w.Stats().Watches)
		first.Close()
		_, err = watch("c")
		require.NoError(w.t, err)
		require.Equal(w.t, Stats{Namespaces: 2, Watchers: 2, Watches: 2}, w.Stats())
		w.create("b", false)
		for w.next(second, 20*time.Second) != nil {
		}
		_, err = watch("d")
		require.NoError(w.t, err, "those that do not exist make room, too")
		require.Equal(w.t, 2, w.Stats().Namespaces)
		_, err = await(w.t.Context(), second, 10)
		require.ErrorIs(w.t, err, ErrTooManyWatches)
		_, err = watch("e")
		require.ErrorIs(w.t, err, ErrTooManyWatches)
	})
}

// TestResetsOfFirstWaitsAreSpread: so does one that continued and has waited since, as long polls do.
func TestResetsOfFirstWaitsAreSpread(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		first := w.poll(w.watch(Query{Users: []string{"ann"}}), 10)
		watcher := w.watch(Query{Users: []string{"ann"}, After: first.Positions})
		require.Nil(w.t, w.next(watcher, time.Second))
		time.Sleep(time.Millisecond) // so that the feed is read while the watcher waits, not while it reads
		w.random = 0.7
		w.beginAgain(true)
		require.Nil(w.t, w.next(watcher, 5*time.Second))
		b := w.must(w.next(watcher, 5*time.Second))
		require.True(w.t, b.Reset)

		w.beginAgain(true)
		time.Sleep(time.Second)
		old := w.watch(Query{Users: []string{"ann"}, After: b.Positions})
		b = w.next(old, time.Second)
		require.NotNil(w.t, b, "one that begins does not wait")
		require.True(w.t, b.Reset)
	})
}
