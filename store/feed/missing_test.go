package feed

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *fakeStore) Now(context.Context) (lastseen.Instant, error) {
	defer s.lock()()
	return s.now().Add(s.ahead), nil
}

func (s *fakeStore) Exist(_ context.Context, namespaces []string) (exist []bool, err error) {
	defer s.lock()()
	s.checks = append(s.checks, len(namespaces))
	for _, name := range namespaces {
		exist = append(exist, !s.missing[name])
	}
	return exist, s.err
}

// create has a namespace exist or not.
func (w *fixture) create(namespace string, exists bool) {
	w.locked(func() {
		if w.missing[namespace] = !exists; !exists {
			w.feed(namespace).off = true
			clear(w.feed(namespace).states)
		}
	})
}

// TestNamespaceJustBegan: a watcher that begins after a user's first ping is sent it at once, and only once.
// The one before it is, too.
func TestNamespaceJustBegan(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.create("chat", false)
		query := Query{Users: []string{"ann"}}
		before := w.watch(query)
		require.Equal(w.t, []string{"ann grey"}, names(w.poll(before, 10)))
		w.create("chat", true)
		w.set("ann", lastseen.Green)
		after := w.watch(query)
		require.Equal(w.t, []string{"ann green"}, names(w.poll(after, 10)))
		b := w.must(w.next(before, 5*time.Second))
		require.Equal(w.t, []string{"ann green"}, names(*b))
		require.False(w.t, b.Reset)
		require.Nil(w.t, w.next(after, 15*time.Second))
	})
}

// TestReadingMakesNothing: nothing is recorded, followed or logged of namespaces that do not exist, and one check each
// half second is for all of those that are watched.
func TestReadingMakesNothing(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		for k := range 100 {
			name := fmt.Sprint("made up ", k)
			w.create(name, false)
			watcher, err := w.Watch(w.t.Context(), name, Query{Users: []string{"ann"}})
			require.NoError(w.t, err)
			b := w.poll(watcher, 10)
			require.True(w.t, b.Snapshot)
			require.Equal(w.t, []string{"ann grey"}, names(b))
			require.NotEmpty(w.t, b.Positions)
			require.NotZero(w.t, b.AsOf)
			if k%2 == 0 {
				watcher.Close()
				continue
			}
			defer watcher.Close()
		}
		synctest.Wait()
		require.Equal(w.t, Stats{Namespaces: 50, Watchers: 50, Watches: 50}, w.Stats())
		w.locked(func() { w.records, w.checks = 0, nil })
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		w.locked(func() {
			require.Zero(w.t, w.records)
			require.InDelta(w.t, 20, len(w.checks), 1)
			require.Equal(w.t, 50, w.checks[0])
			require.Empty(w.t, w.reads)
		})
		require.Empty(w.t, w.recorded)
		require.Empty(w.t, w.log.String())
	})
}

// TestNamespaceBegins: everyone is new to those who waited for a namespace, on this server or with a cursor of another
// one, and the changes follow.
func TestNamespaceBegins(t *testing.T) {
	withFixture(t, 3, func(w *fixture) {
		w.create("chat", false)
		named, everyone := w.polled(2, "ann", "bob"), w.watch(Query{Everyone: true})
		first := w.poll(everyone, 10)
		require.True(w.t, first.Snapshot)
		require.Nil(w.t, w.next(everyone, 10*time.Second))
		tick, complete := everyone.Tick()
		require.True(w.t, complete)
		require.Equal(w.t, first.Positions, tick.Positions)
		require.Greater(w.t, tick.AsOf, first.AsOf)
		elsewhere := w.watch(Query{Everyone: true, After: first.Positions})
		require.Empty(w.t, w.poll(elsewhere, 10).Users)

		w.publish("ann green", "old grey")
		w.update("dan", func(p *store.Published) { p.State = lastseen.State{At: 1, Left: true} })
		w.create("chat", true)
		for _, watcher := range []*Watcher{named, everyone, elsewhere} {
			b := w.must(w.next(watcher, time.Second))
			require.False(w.t, b.Reset || b.Snapshot)
			require.Subset(w.t, names(*b), []string{"ann green"})
			require.Equal(w.t, watcher.everyone, slices.Contains(names(*b), "dan grey"))
			w.publish("bob green", "bob grey")
			w.publish("bob yellow")
			require.Equal(w.t, []string{"bob yellow"}, names(*w.must(w.next(watcher, time.Second))))
			w.publish("bob grey")
			require.Equal(w.t, []string{"bob grey"}, names(*w.must(w.next(watcher, time.Second))))
		}
		require.Equal(w.t, []string{"chat"}, w.recorded)
		require.Zero(w.t, w.count().Resets)
		for _, q := range []Query{{Everyone: true}, {Users: []string{"ann"}}} {
			q.After = first.Positions
			b := w.poll(w.watch(q), 10)
			require.True(w.t, b.Reset, "anyone can say that they waited")
			require.Contains(w.t, names(b), "ann green")
		}
	})
}

// TestNamespaceBeginsWithMany: watchers of users are sent all users at once, those of everyone in pages.
func TestNamespaceBeginsWithMany(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.create("chat", false)
		named := w.watch(Query{Users: []string{"1", "2", "3"}})
		everyone := w.watch(Query{Everyone: true, NoSnapshot: true})
		w.poll(named, 2)
		w.poll(everyone, 2)
		w.publish("1 green", "2 green", "3 green")
		w.create("chat", true)
		time.Sleep(time.Second)
		require.Equal(w.t, [][]string{{"1 green", "2 green", "3 green"}}, w.pages(named, 2))
		require.Equal(w.t, [][]string{{"1 green", "2 green"}, {"3 green"}}, w.pages(everyone, 2))
	})
}

// TestArrivalsAreSpread: those who wait for a namespace do not all read when it begins, and a reset after that has its
// own turn.
func TestArrivalsAreSpread(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.create("chat", false)
		watchers := []*Watcher{w.polled(2, "ann"), w.polled(2, "bob")}
		w.random = 0.9
		w.publish("ann green")
		w.create("chat", true)
		for k, watcher := range watchers {
			time.Sleep(time.Second)
			asked := w.asked
			require.Nil(w.t, w.next(watcher, 800*time.Millisecond))
			require.Equal(w.t, asked, w.asked)
			require.Equal(w.t, k == 0, w.next(watcher, time.Second) != nil)
			require.Equal(w.t, asked+1, w.asked)
			w.publish("ann yellow")
		}
		w.beginAgain(true)
		require.Nil(w.t, w.next(watchers[1], 8*time.Second))
		require.True(w.t, w.must(w.next(watchers[1], 5*time.Second)).Reset)
	})
}

// TestMissingClockIsCorrected: a batch of a namespace that does not exist has the time of the store's clock.
func TestMissingClockIsCorrected(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.create("chat", false)
		w.locked(func() { w.ahead = 10000 * time.Hour })
		watcher := w.polled(2, "ann")
		w.locked(func() { w.ahead = 0 })
		time.Sleep(time.Second)
		require.LessOrEqual(w.t, w.poll(watcher, 10).AsOf, w.now())
	})
}

// TestNamespaceEnds: those who watch a namespace that is deleted get a reset, and wait for it to begin again.
func TestNamespaceEnds(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.set("ann", lastseen.Green)
		watcher := w.polled(2, "ann")
		w.create("chat", false)
		b := w.must(w.next(watcher, 5*time.Second))
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"ann grey"}, names(*b))
		w.fail(store.ErrUnavailable)
		require.Nil(w.t, w.next(watcher, 5*time.Second))
		_, complete := watcher.Tick()
		require.False(w.t, complete)
		w.fail(nil)
		require.Nil(w.t, w.next(watcher, 5*time.Second))
		_, complete = watcher.Tick()
		require.True(w.t, complete)
		w.publish("ann green")
		w.create("chat", true)
		b = w.must(w.next(watcher, time.Second))
		require.False(w.t, b.Reset)
		require.Equal(w.t, []string{"ann green"}, names(*b))
	})
}
