package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func TestTick(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		for _, q := range []Query{{Users: []string{"ann"}}, {Everyone: true}} {
			watcher := w.watch(q)
			w.poll(watcher, 10)
			before := w.poll(watcher, 10)
			w.set("ann", lastseen.Green)
			time.Sleep(time.Second)
			_, ok := watcher.Tick()
			require.False(w.t, ok, "a change is waiting")
			require.Len(w.t, w.poll(watcher, 10).Users, 1)
			w.publish("bob yellow", "bob green")
			time.Sleep(time.Second)
			if q.Everyone {
				w.poll(watcher, 10)
			}
			b, ok := watcher.Tick()
			require.True(w.t, ok)
			require.NotEqual(w.t, before.Positions, b.Positions, "it moves although no user watched changed")
			require.Greater(w.t, b.AsOf, before.AsOf)
			w.set("ann", lastseen.Grey)
		}
	})
}

// TestNoTickWithoutWatermark: while no server moves the watermark, users who turned yellow or grey are not known.
func TestNoTickWithoutWatermark(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		watcher := w.polled(2, "ann")
		w.locked(func() { w.frozen = true })
		time.Sleep(10 * time.Second)
		_, ok := watcher.Tick()
		require.False(w.t, ok)
		w.locked(func() {
			w.frozen = false
			w.held = make(chan struct{})
		})
		time.Sleep(3 * time.Second)
		_, ok = watcher.Tick()
		require.False(w.t, ok, "the store does not respond")
		w.locked(func() {
			close(w.held)
			w.held = nil
		})
		time.Sleep(3 * time.Second)
		_, ok = watcher.Tick()
		require.True(w.t, ok)
	})
}

func TestFlaps(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.watch(Query{Users: []string{"eve"}})
		statuses := lastseen.Statuses()
		change := func(times int, pause time.Duration) {
			for n := range times {
				w.set("ann", statuses[n%2])
				time.Sleep(pause)
			}
		}
		change(4, time.Second)
		time.Sleep(time.Minute)
		require.Zero(w.t, w.count().Flaps)
		change(5, time.Second)
		require.EqualValues(w.t, 1, w.count().Flaps)
		change(30, time.Second)
		require.EqualValues(w.t, 1, w.count().Flaps, "not for each change")
		time.Sleep(2 * time.Minute)
		change(10, 16*time.Second)
		require.EqualValues(w.t, 1, w.count().Flaps)
	})
}

// TestBehind: a watcher of everyone that is too slow begins again, one of users does not.
func TestBehind(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.bounds.entries = 10
		everyone, named := w.watch(Query{Everyone: true}), w.watch(Query{Users: []string{"user1", "user7"}})
		for _, watcher := range []*Watcher{everyone, named} {
			w.poll(watcher, 1)
			w.poll(watcher, 1)
		}
		for k := range 50 {
			w.set(fmt.Sprint("user", k), lastseen.Green)
		}
		time.Sleep(time.Second)
		require.Equal(w.t, 10, w.Stats().Entries)
		b := w.poll(everyone, 100)
		require.True(w.t, b.Reset)
		require.Len(w.t, b.Users, 50)
		require.EqualValues(w.t, 1, w.count().Resets)
		require.EqualValues(w.t, 1, w.count().Behind)
		require.Equal(w.t, []string{"user1 green"}, names(w.poll(named, 1)))
		require.Equal(w.t, []string{"user7 green"}, names(w.poll(named, 1)))
		require.EqualValues(w.t, 1, w.count().Resets)
	})
}

// TestCatchUpIsBounded: a reader whose positions are too old begins again instead of reading everything.
func TestCatchUpIsBounded(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.bounds = bounds{followed: 10, entries: 10, allEntries: 10, catchUp: 100, page: 20}
		first := w.watch(Query{Users: []string{"ann"}})
		positions := w.poll(first, 1).Positions
		for k := range 90 {
			w.set(fmt.Sprint("user", k), lastseen.Green)
		}
		w.set("ann", lastseen.Yellow)
		time.Sleep(5 * time.Second)
		b := w.poll(w.watch(Query{Users: []string{"ann"}, After: positions}), 1)
		require.False(w.t, b.Reset)
		require.Equal(w.t, []string{"ann yellow"}, names(b))
		for k := range 90 {
			w.set(fmt.Sprint("user", k), lastseen.Grey)
		}
		time.Sleep(5 * time.Second)
		require.True(w.t, w.poll(w.watch(Query{Users: []string{"ann"}, After: positions}), 1).Reset)
	})
}

// TestForeignPositions: whatever a caller sends as positions, it gets a reset.
func TestForeignPositions(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		foreign := [][]store.Position{
			{}, {""}, {"", ""}, {"x", "y"}, {"1.0.0"}, {"1.1.0", "1.0.0"}, {"1.0.0", "1.1.0", "1.1.0"},
		}
		for _, after := range foreign {
			b := w.poll(w.watch(Query{Users: []string{"ann"}, After: after}), 1)
			require.True(w.t, b.Reset, after)
			require.Len(w.t, b.Users, 1)
			b = w.poll(w.watch(Query{Everyone: true, After: after}), 1)
			require.True(w.t, b.Reset, after)
		}
	})
}

// TestForgottenUsersLeaveMemory: nothing of a user who was forgotten is kept but the name.
func TestForgottenUsersLeaveMemory(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		everyone, named := w.watch(Query{Everyone: true}), w.watch(Query{Users: []string{"ann"}})
		w.poll(everyone, 1)
		w.poll(named, 1)
		w.poll(named, 1)
		w.publish("ann green", "ann yellow")
		w.forget("ann")
		time.Sleep(time.Second)
		for _, watcher := range []*Watcher{everyone, named} {
			b := w.poll(watcher, 1)
			require.Len(w.t, b.Users, 1)
			require.Equal(w.t, store.Published{Status: lastseen.Grey}, b.Users[0].Published)
		}
		m := &named.f.m
		for n := m.first; n <= m.last(); n++ {
			require.Zero(w.t, m.at(n).at)
		}
	})
}

// TestForgottenWhileCatchingUp: a watcher is not sent earlier changes of a user who is forgotten in its next batch.
func TestForgottenWhileCatchingUp(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.bounds.entries = 0
		first := w.poll(w.watch(Query{Users: []string{"ann", "bob"}}), 10)
		w.publish("ann green", "bob green")
		w.forget("ann")
		time.Sleep(time.Second)
		watcher := w.watch(Query{Users: []string{"ann", "bob"}, After: first.Positions})
		require.Equal(w.t, []string{"bob green"}, names(w.poll(watcher, 1)))
		require.Equal(w.t, []string{"ann grey"}, names(w.poll(watcher, 1)))
	})
}

// names lists the users of a batch with their statuses.
func names(b Batch) []string {
	list := []string{}
	for _, u := range b.Users {
		list = append(list, fmt.Sprint(u.User, " ", u.Status))
	}
	slices.Sort(list)
	return list
}
