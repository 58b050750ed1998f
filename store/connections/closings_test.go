package connections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestClosing: what was opened before is closed within a second, without a goodbye, and later connections are not.
func TestClosing(t *testing.T) {
	w := newWorld(t)
	before, other := w.open("alice"), w.open("bob")
	w.pass(25 * time.Second)
	before.Heard()
	gone := w.open("alice")
	gone.End(Gone) // its goodbye waits
	w.store.take()
	w.store.close()
	w.store.pass(clockError + time.Millisecond)
	after := w.open("alice")
	w.only()
	w.pass(750 * time.Millisecond)
	w.requireClosed("alice", Closed)
	w.requireNothing()
	require.Equal(t, Stats{Open: 3, Opened: 4, Forgotten: 1}, w.Stats())

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

// TestClosingBeforeOpening: one that is read while a connection opens, but was asked for before, is not about it.
func TestClosingBeforeOpening(t *testing.T) {
	w := newWorld(t)
	w.open("bob")
	w.store.close()
	w.store.pass(time.Second)
	w.store.during = func(kind callKind) {
		if kind == readClock {
			w.store.during = func(callKind) {}
			w.tick(t.Context())
		}
	}
	w.open("alice")
	w.pass(time.Second)
	require.Zero(t, w.Stats().Forgotten)
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

// TestOpenNeedsThePlace: without it, a closing could be missed.
func TestOpenNeedsThePlace(t *testing.T) {
	w := newWorld(t)
	w.o.Store = brokenClosings{w.store}
	_, err := w.Open(t.Context(), w.opening("alice"))
	require.ErrorIs(t, err, store.ErrUnavailable)
	w.requireNothing()
}
