package connections

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestClosing: what was opened before is closed within a second, without a goodbye, and later connections are not. They
// are recorded once more, since the user may be deleted a moment after the closing.
func TestClosing(t *testing.T) {
	w := newWorld(t)
	before, other := w.open("alice"), w.open("bob")
	w.hear(25*time.Second, before)
	gone := w.open("alice")
	gone.End(Gone) // its goodbye waits
	w.store.take()
	w.store.close()
	after := w.open("alice")
	w.only()
	w.pass(750 * time.Millisecond)
	w.requireClosed("alice", Closed)
	w.requireNothing()
	require.Equal(t, Stats{Open: 3, Opened: 4, Forgotten: 1}, w.Stats())
	w.pass(activityEvery)
	require.Equal(t, after.record+after.o.Meta, func(d written) string { return d.ID + d.Meta }(w.only()))

	before.Heard()
	before.End(Gone)
	w.pass(time.Minute)
	w.requireNothing()
	after.Heard()
	other.Heard()
	w.pass(time.Second)
	require.Len(t, w.store.take(), 2)
	w.requireClosed("bob")
	require.Equal(t, 2, w.Stats().Open)
}

// TestClosingCancelsLeaves: a user who was forgotten does not come back with a leave that waits.
func TestClosingCancelsLeaves(t *testing.T) {
	w := newWorld(t)
	leaves := func(user string) {
		w.later(store.DeviceSighting{User: user, At: w.store.present()}, time.Minute)
	}
	leaves("alice")
	leaves("bob")
	w.pass(time.Second)
	w.store.close()
	w.pass(time.Second)
	leaves("alice") // of a new time
	require.Equal(t, 2, w.Stats().Waiting)
	require.Equal(t, 2, w.Registry.later)
	w.pass(2 * time.Minute)
	require.Equal(t, lastseen.State{At: seconds(2), Left: true}, w.store.state("alice"))
	require.Equal(t, lastseen.State{At: seconds(0), Left: true}, w.store.state("bob"))
	require.Zero(t, w.Registry.later)
}

// TestDeletedNamespaceStaysDeleted: nothing that was received before brings a deleted namespace back: neither what
// waits nor what is not written yet of open connections, which stay open. What is received afterwards counts.
func TestDeletedNamespaceStaysDeleted(t *testing.T) {
	w := newWorld(t)
	leaves := func(user string, at lastseen.Instant) {
		w.later(store.DeviceSighting{User: user, At: at}, time.Minute)
	}
	stays, ends, idles := w.open("stays"), w.open("ends"), w.open("idles")
	breaks, gone, stopped := w.open("breaks"), w.open("gone"), w.open("stopped")
	w.pass(time.Second)
	stays.Heard()
	idles.Heard()
	idles.SetIdle(true)
	stopped.Heard()
	ends.End(Gone)
	leaves("leaves", w.store.present())
	leaves("is ahead", w.store.present().Add(store.MaxAhead))
	require.NoError(t, w.Later(t.Context(), Departure{
		Namespace: "other", DeviceSighting: store.DeviceSighting{User: "alice", At: w.store.present()},
	}))
	w.store.take()
	w.store.deleted()
	w.pass(2 * time.Second)
	require.Equal(t, "other", w.only().namespace)
	require.Zero(t, w.Stats().Waiting)
	require.Zero(t, w.Registry.later)
	breaks.End(Gone)
	stopped.End(Ended)
	w.pass(2 * time.Minute)
	w.requireNothing()
	w.requireClosed("stays")

	leaves("leaves", w.store.present())
	gone.Heard()
	gone.End(Gone)
	stays.Heard()
	w.pass(2 * time.Minute)
	require.ElementsMatch(t, []string{"leaves", "gone", "stays"}, usersOf(w.store.take()))
}

// TestDeletedNamespaceInAnOutage: what could not be written before the namespace was deleted is not written afterwards.
func TestDeletedNamespaceInAnOutage(t *testing.T) {
	w := newWorld(t)
	c := w.open("alice")
	w.pass(time.Second)
	w.store.take()
	w.store.fail(store.ErrUnavailable)
	w.stay(time.Minute, c)
	require.Equal(t, 1, w.Stats().Evidence)
	w.store.deleted()
	w.store.fail(nil)
	w.store.take()
	w.pass(time.Minute)
	w.requireNothing()
	require.Zero(t, w.Stats().Evidence)
}

func usersOf(all []written) (users []string) {
	for _, w := range all {
		users = append(users, w.User)
	}
	return users
}

// TestFirstLeaveIsCancelled: a closing is not missed because it comes before this process reads closings for the first
// time.
func TestFirstLeaveIsCancelled(t *testing.T) {
	w := newWorld(t)
	w.later(store.DeviceSighting{User: "alice", At: w.store.present()}, time.Second)
	w.store.close()
	w.pass(time.Minute)
	w.requireNothing()
}

// TestClosingsBeforeTheFirstConnection are not about it, whenever they are read.
func TestClosingsBeforeTheFirstConnection(t *testing.T) {
	w := newWorld(t)
	w.store.close()
	w.store.pass(time.Second)
	w.open("alice")
	w.pass(time.Minute)
	w.requireClosed("alice")
	w.place = "place" // as after a failover: all are read again
	w.pass(time.Minute)
	w.requireClosed("alice")
}

// TestClosingRightAfterTheFirstOpen: the place is taken before the connection opens.
func TestClosingRightAfterTheFirstOpen(t *testing.T) {
	w := newWorld(t)
	w.open("alice")
	w.store.close()
	w.pass(time.Second)
	w.requireClosed("alice", Closed)
}

// TestClosingWhileOpening: the connection is closed as soon as it is open.
func TestClosingWhileOpening(t *testing.T) {
	w := newWorld(t)
	w.open("bob")
	w.store.during = func(kind callKind) {
		if kind != recordDevices {
			return
		}
		w.store.during = func(callKind) {}
		w.store.close()
		w.pass(time.Second)
		w.requireClosed("alice")
	}
	c := w.open("alice")
	w.requireClosed("alice", Closed)
	w.store.take()
	c.Heard()
	w.pass(time.Minute)
	w.requireNothing()
}

// TestClosingByAClockThatIsBehind: the store's clock can be a little behind what this server takes it to be.
func TestClosingByAClockThatIsBehind(t *testing.T) {
	w := newWorld(t)
	w.open("alice")
	w.store.closings = []store.Closing{{Namespace: ns, User: "alice", At: base.Add(-50 * time.Millisecond)}}
	w.pass(time.Second)
	w.requireClosed("alice", Closed)
}

// TestClosingAfterTheClockWasSet: connections that were opened before are closed, and later ones are not.
func TestClosingAfterTheClockWasSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		w := newWorld(t)
		w.open("alice")
		w.pass(time.Minute)
		w.store.step(by)
		w.pass(time.Minute)
		w.store.close()
		w.pass(time.Second)
		w.requireClosed("alice", Closed)
		w.open("alice")
		w.pass(time.Minute)
		w.requireClosed("alice", Closed)
	}
}

// TestClosingsAreReadOnlyIfNeeded: a server without connections does not ask.
func TestClosingsAreReadOnlyIfNeeded(t *testing.T) {
	w := newWorld(t)
	w.pass(time.Minute)
	require.Zero(t, w.store.asked)
	c := w.open("alice")
	w.pass(10 * time.Second)
	require.InDelta(t, 20, w.store.asked, 2)
	c.End(Ended)
	w.pass(time.Second)
	asked := w.store.asked
	w.pass(time.Minute)
	require.Equal(t, asked, w.store.asked)
}

// TestOpenNeedsThePlace: without it, a closing could be missed. With one, connections open although the node of Redis
// that has the closings is away, since the others may be there.
func TestOpenNeedsThePlace(t *testing.T) {
	w := newWorld(t)
	w.o.Store = brokenClosings{w.store}
	_, err := w.Open(t.Context(), w.opening("alice"))
	require.ErrorIs(t, err, store.ErrUnavailable)
	w.requireNothing()
	w.o.Store = w.store
	w.open("bob")
	w.o.Store = brokenClosings{w.store}
	w.open("alice")
}

// TestOpeningsShareReads: those that wait for a read of the closings share the next one.
func TestOpeningsShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.readingClosings <- struct{}{}
		for i := range 20 {
			go func() { w.open(fmt.Sprint("user", i)) }()
		}
		synctest.Wait()
		<-w.readingClosings
		synctest.Wait()
		require.Equal(t, 20, w.Stats().Open)
		require.Equal(t, 1, w.store.asked)
	})
}
