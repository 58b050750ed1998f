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

// TestDisconnect: what was opened before is closed within a second, without a leave, and later connections are not.
// They are recorded once more, since the user may be deleted a moment after the disconnect.
func TestDisconnect(t *testing.T) {
	f := newFixture(t)
	before, other := f.open("alice"), f.open("bob")
	f.receive(25*time.Second, before)
	gone := f.open("alice")
	gone.End(Gone) // its leave waits
	f.store.take()
	f.store.close()
	after := f.open("alice")
	f.only()
	f.pass(750 * time.Millisecond)
	f.requireClosed("alice", Closed)
	f.requireNothing()
	require.Equal(t, Stats{Open: 3, Opened: 4, Forgotten: 1}, f.Stats())
	f.pass(activityEvery)
	require.Equal(t, after.record+after.o.Meta, func(d written) string { return d.ID + d.Meta }(f.only()))

	before.Received()
	before.End(Gone)
	f.pass(time.Minute)
	f.requireNothing()
	after.Received()
	other.Received()
	f.pass(time.Second)
	require.Len(t, f.store.take(), 2)
	f.requireClosed("bob")
	require.Equal(t, 2, f.Stats().Open)
}

// TestDisconnectCancelsLeaves: a user who was forgotten does not come back with a leave that waits.
func TestDisconnectCancelsLeaves(t *testing.T) {
	f := newFixture(t)
	leaves := func(user string) {
		f.later(store.DeviceEvent{User: user, At: f.store.present()}, time.Minute)
	}
	leaves("alice")
	leaves("bob")
	f.pass(time.Second)
	f.store.close()
	f.pass(time.Second)
	leaves("alice") // of a new time
	require.Equal(t, 2, f.Stats().Waiting)
	require.Equal(t, 2, f.Registry.later)
	f.pass(2 * time.Minute)
	require.Equal(t, lastseen.State{At: seconds(2), Left: true}, f.store.state("alice"))
	require.Equal(t, lastseen.State{At: seconds(0), Left: true}, f.store.state("bob"))
	require.Zero(t, f.Registry.later)
}

// TestDeletedNamespaceStaysDeleted: nothing that was received before brings a deleted namespace back: neither what
// waits nor what is not written yet of open connections, which stay open. What is received afterwards counts.
func TestDeletedNamespaceStaysDeleted(t *testing.T) {
	f := newFixture(t)
	leaves := func(user string, at lastseen.Instant) {
		f.later(store.DeviceEvent{User: user, At: at}, time.Minute)
	}
	stays, ends, idles := f.open("stays"), f.open("ends"), f.open("idles")
	breaks, gone, stopped := f.open("breaks"), f.open("gone"), f.open("stopped")
	f.pass(time.Second)
	stays.Received()
	idles.Received()
	idles.SetIdle(true)
	stopped.Received()
	ends.End(Gone)
	leaves("leaves", f.store.present())
	leaves("is ahead", f.store.present().Add(store.MaxAhead))
	require.NoError(t, f.Later(t.Context(), DelayedLeave{
		Namespace: "other", DeviceEvent: store.DeviceEvent{User: "alice", At: f.store.present()},
	}))
	f.store.take()
	f.store.deleted()
	f.pass(2 * time.Second)
	require.Equal(t, "other", f.only().namespace)
	require.Zero(t, f.Stats().Waiting)
	require.Zero(t, f.Registry.later)
	breaks.End(Gone)
	stopped.End(Ended)
	f.pass(2 * time.Minute)
	f.requireNothing()
	f.requireClosed("stays")

	leaves("leaves", f.store.present())
	gone.Received()
	gone.End(Gone)
	stays.Received()
	f.pass(2 * time.Minute)
	require.ElementsMatch(t, []string{"leaves", "gone", "stays"}, usersOf(f.store.take()))
}

// TestDeletedNamespaceInAnOutage: what could not be written before the namespace was deleted is not written afterwards.
func TestDeletedNamespaceInAnOutage(t *testing.T) {
	f := newFixture(t)
	c := f.open("alice")
	f.pass(time.Second)
	f.store.take()
	f.store.fail(store.ErrUnavailable)
	f.stay(time.Minute, c)
	require.Equal(t, 1, f.Stats().Unwritten)
	f.store.deleted()
	f.store.fail(nil)
	f.store.take()
	f.pass(time.Minute)
	f.requireNothing()
	require.Zero(t, f.Stats().Unwritten)
}

func usersOf(all []written) (users []string) {
	for _, f := range all {
		users = append(users, f.User)
	}
	return users
}

// TestFirstLeaveIsCancelled: a disconnect is not missed because it comes before this process reads disconnects for the
// first time.
func TestFirstLeaveIsCancelled(t *testing.T) {
	f := newFixture(t)
	f.later(store.DeviceEvent{User: "alice", At: f.store.present()}, time.Second)
	f.store.close()
	f.pass(time.Minute)
	f.requireNothing()
}

// TestDisconnectsBeforeTheFirstConnection are not about it, whenever they are read.
func TestDisconnectsBeforeTheFirstConnection(t *testing.T) {
	f := newFixture(t)
	f.store.close()
	f.store.pass(time.Second)
	f.open("alice")
	f.pass(time.Minute)
	f.requireClosed("alice")
	f.position = "lost" // as after a failover: all are read again
	f.pass(time.Minute)
	require.Zero(t, f.Stats().Forgotten)
}

// TestDisconnectWhileTheClockIsBack: a connection that was open is closed, also if the store's clock was set back and
// forth again before this process reads the disconnect.
func TestDisconnectWhileTheClockIsBack(t *testing.T) {
	f := newFixture(t)
	f.open("alice")
	f.pass(2 * time.Second)
	f.store.step(-time.Hour)
	f.store.close()
	f.store.step(time.Hour)
	f.pass(time.Second)
	f.requireClosed("alice", Closed)
}

// TestDisconnectsWhileTheClockIsBack: the same holds for leaves that wait, and for a namespace that is deleted.
func TestDisconnectsWhileTheClockIsBack(t *testing.T) {
	for _, all := range []bool{false, true} {
		f := newFixture(t)
		c, stays := f.open("alice"), f.open("stays")
		f.later(store.DeviceEvent{User: "alice", At: f.store.present()}, time.Minute)
		f.pass(time.Second)
		stays.Received()
		f.pass(2 * time.Second)
		c.End(Gone)
		f.pass(1500 * time.Millisecond)
		f.store.take()
		f.store.step(-time.Hour)
		if all {
			f.store.deleted()
		} else {
			f.store.close()
		}
		f.store.step(time.Hour)
		f.pass(2 * time.Minute)
		for _, got := range f.store.take() {
			require.NotEqual(t, "alice", got.User)
			require.False(t, all && got.At == seconds(1), "it was received before")
		}
	}
}

// TestDisconnectRightAfterTheFirstOpen: the position is taken before the connection opens.
func TestDisconnectRightAfterTheFirstOpen(t *testing.T) {
	f := newFixture(t)
	f.open("alice")
	f.store.close()
	f.pass(time.Second)
	f.requireClosed("alice", Closed)
}

// TestDisconnectWhileOpening: the connection is closed as soon as it is open.
func TestDisconnectWhileOpening(t *testing.T) {
	f := newFixture(t)
	f.open("bob")
	f.store.during = func(kind callKind) {
		if kind != recordDevices {
			return
		}
		f.store.during = func(callKind) {}
		f.store.close()
		f.pass(time.Second)
		f.requireClosed("alice")
	}
	c := f.open("alice")
	f.requireClosed("alice", Closed)
	f.store.take()
	c.Received()
	f.pass(time.Minute)
	f.requireNothing()
}

// TestDisconnectByAClockThatIsBehind: the store's clock can be a little behind what this server takes it to be.
func TestDisconnectByAClockThatIsBehind(t *testing.T) {
	f := newFixture(t)
	f.open("alice")
	f.store.disconnects = []store.Disconnect{{Namespace: ns, User: "alice", At: base.Add(-50 * time.Millisecond)}}
	f.pass(time.Second)
	f.requireClosed("alice", Closed)
}

// TestDisconnectAfterTheClockWasSet: connections that were opened before are closed, and later ones are not.
func TestDisconnectAfterTheClockWasSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		f := newFixture(t)
		f.open("alice")
		f.pass(time.Minute)
		f.store.step(by)
		f.pass(time.Minute)
		f.store.close()
		f.pass(time.Second)
		f.requireClosed("alice", Closed)
		f.open("alice")
		f.pass(time.Minute)
		f.requireClosed("alice", Closed)
	}
}

// TestDisconnectsAreReadOnlyIfNeeded: a server without connections does not ask.
func TestDisconnectsAreReadOnlyIfNeeded(t *testing.T) {
	f := newFixture(t)
	f.pass(time.Minute)
	require.Zero(t, f.store.asked)
	c := f.open("alice")
	f.pass(10 * time.Second)
	require.InDelta(t, 20, f.store.asked, 2)
	c.End(Ended)
	f.pass(time.Second)
	asked := f.store.asked
	f.pass(time.Minute)
	require.Equal(t, asked, f.store.asked)
}

// TestOpenNeedsThePosition: without it, a disconnect could be missed. With one, connections open although the node of
// Redis that has the disconnects is away, since the others may be there.
func TestOpenNeedsThePosition(t *testing.T) {
	f := newFixture(t)
	f.o.Store = brokenDisconnects{f.store}
	_, err := f.Open(t.Context(), f.opening("alice"))
	require.ErrorIs(t, err, store.ErrUnavailable)
	f.requireNothing()
	f.o.Store = f.store
	f.open("bob")
	f.o.Store = brokenDisconnects{f.store}
	f.open("alice")
}

// TestOpeningsShareReads: those that wait for a read of the disconnects share the next one.
func TestOpeningsShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.readingDisconnects <- struct{}{}
		for i := range 20 {
			go func() { f.open(fmt.Sprint("user", i)) }()
		}
		synctest.Wait()
		<-f.readingDisconnects
		synctest.Wait()
		require.Equal(t, 20, f.Stats().Open)
		require.Equal(t, 1, f.store.asked)
	})
}
