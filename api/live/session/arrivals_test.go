package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
)

// fewArrivals returns arrivals with some slots. It runs in a bubble, whose time is time.Now.
func fewArrivals(slots int) *arrivals {
	a := newArrivals(time.Now)
	a.slots = slots
	return a
}

// waiters has clients wait, in order. It returns where each reports how its waiting ended, by number.
func waiters(ctx context.Context, a *arrivals, n int) <-chan int {
	ended := make(chan int, n)
	for i := range n {
		go func() {
			if a.enter(ctx) != nil {
				i = -1
			}
			ended <- i
		}()
		synctest.Wait() // so that the next one comes later
	}
	return ended
}

// TestArrivalsInOrder: clients get slots in the order in which they came; those who go away lose nothing for others.
func TestArrivalsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := fewArrivals(2)
		require.NoError(t, a.enter(t.Context()))
		require.NoError(t, a.enter(t.Context()))
		first := waiters(t.Context(), a, 2)
		impatient, goAway := context.WithCancel(t.Context())
		second := waiters(impatient, a, 1)
		third := waiters(t.Context(), a, 1)
		a.leave()
		require.Equal(t, 0, <-first)
		goAway()
		require.Equal(t, -1, <-second)
		a.leave()
		require.Equal(t, 1, <-first)
		a.leave()
		require.Equal(t, 0, <-third)
		a.leave()
		a.leave()
		require.Zero(t, a.taken)
		require.Zero(t, a.queue.Len())
	})
}

// TestArrivalsAbandonTurn: a client that goes away when it has got its slot gives it to the next one.
func TestArrivalsAbandonTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := fewArrivals(1)
		turn := make(chan struct{})
		place := a.queue.PushBack(turn)
		a.taken = 1
		next := waiters(t.Context(), a, 1)
		a.leave()
		a.abandon(place)
		require.Equal(t, 0, <-next)
		a.leave()
		require.Zero(t, a.taken)
	})
}

// TestArrivalsRefuse: clients are refused when those before them would take too long at the current rate, and no longer
// when it has risen.
func TestArrivalsRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := fewArrivals(1)
		require.NoError(t, a.enter(ctx))
		ended := waiters(ctx, a, 11)
		time.Sleep(arrivalsWindow)
		a.leave() // one a second, and 10 are left
		e, ok := errors.AsType[*problem.Error](a.enter(ctx))
		require.True(t, ok)
		require.Equal(t, problem.Overloaded, e.Code)
		require.Equal(t, 10, a.queue.Len())
		time.Sleep(arrivalsWindow)
		a.leave()
		a.leave()
		synctest.Wait()
		require.Len(t, ended, 3)
		ended = waiters(ctx, a, 1)
		require.Equal(t, 9, a.queue.Len(), "8 clients take 8 seconds")
		cancel()
		require.Equal(t, -1, <-ended)
	})
}

// TestArrivalsRefuseWhenStuck: a store that hangs is noticed without any client being served.
func TestArrivalsRefuseWhenStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := fewArrivals(1)
		require.NoError(t, a.enter(ctx))
		ended := waiters(ctx, a, 2)
		time.Sleep(maxArrivalWait)
		require.Error(t, a.enter(ctx), "2 clients, and not even one was served in 8 seconds")
		cancel()
		require.Equal(t, -2, <-ended+<-ended)
	})
}

// TestArrivalsComeBackInTurn: refused clients are asked to come back at the rate at which they can be served.
func TestArrivalsComeBackInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := fewArrivals(1)
		times := map[int64]int{}
		for range 4 * usualArrivals {
			times[a.book()]++
		}
		for second, n := range times {
			require.InDelta(t, usualArrivals, n, 2, second)
		}
		require.Len(t, times, 4)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 3, a.book(), "time has passed")
		for range int(maxReturn/time.Second) * usualArrivals {
			require.LessOrEqual(t, a.book(), int64(maxReturn/time.Second)+1)
		}
	})
}
