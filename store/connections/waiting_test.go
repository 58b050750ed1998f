package connections

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (f *fixture) later(s store.DeviceEvent, after time.Duration) {
	f.t.Helper()
	require.NoError(f.t, f.Later(f.t.Context(), DelayedLeave{Namespace: ns, DeviceEvent: s, After: after}))
}

// TestLater: a leave is written after its delay, at the time at which it was asked for.
func TestLater(t *testing.T) {
	f := newFixture(t)
	f.later(store.DeviceEvent{User: "alice", ID: "tab", Kind: lastseen.Web, At: base}, 5*time.Second)
	f.later(store.DeviceEvent{User: "bob", At: base}, time.Hour)
	f.pass(5*time.Second - tickEvery)
	f.requireNothing()
	f.store.step(time.Hour) // the time that was asserted stays
	f.pass(tickEvery)
	got := f.only()
	require.Equal(t, recordDevices, got.call)
	want := store.DeviceEvent{User: "alice", ID: "tab", Kind: lastseen.Web, At: base, Gone: true}
	require.Equal(t, want, got.DeviceEvent)
	f.pass(MaxGrace - 6*time.Second)
	f.requireNothing()
	f.pass(time.Second)
	got = f.only()
	require.Equal(t, leave, got.call)
	require.Equal(t, base, got.At)
	require.Equal(t, 2, f.left)
	require.Zero(t, f.Stats().Leaves, "these are not of connections")
}

// TestLaterIsHarmless if the user comes back meanwhile.
func TestLaterIsHarmless(t *testing.T) {
	f := newFixture(t)
	f.later(store.DeviceEvent{User: "alice", At: base}, 5*time.Second)
	f.pass(time.Second)
	f.open("alice")
	f.pass(time.Minute)
	require.Equal(t, lastseen.State{At: seconds(1)}, f.store.state("alice"))
	require.Zero(t, f.left)
}

func TestTooManyLeavesAreWrittenAtOnce(t *testing.T) {
	f := newFixture(t)
	for i := range MaxLater {
		f.later(store.DeviceEvent{User: fmt.Sprint("u", i), At: base}, time.Minute)
	}
	f.requireNothing()
	f.later(store.DeviceEvent{User: "alice", At: base}, time.Minute)
	require.Equal(t, "alice", f.only().User)
	calls := 0
	f.store.during = func(callKind) { calls++ }
	require.NoError(t, f.Later(t.Context(), make([]DelayedLeave, 100)...))
	require.Equal(t, 1, calls, "those of one request are written together")
	f.store.take()
	f.store.during = func(callKind) {}
	f.store.fail(store.ErrUnavailable)
	err := f.Later(t.Context(), DelayedLeave{Namespace: ns, DeviceEvent: store.DeviceEvent{User: "bob"}})
	require.ErrorIs(t, err, store.ErrUnavailable)
	f.store.fail(nil)
	f.pass(time.Minute)
	require.Zero(t, f.Stats().Waiting)
	f.store.take()
	f.later(store.DeviceEvent{User: "bob", At: base}, time.Minute)
	f.requireNothing()
}

// TestTooManyLeaves are dropped, as if those connections had ended in silence.
func TestTooManyLeaves(t *testing.T) {
	f := newFixture(t)
	f.waiting = make([]pending, maxWaiting-1)
	for i := range f.waiting {
		f.waiting[i].due = start + time.Hour
	}
	for _, user := range []string{"first", "second", "third"} {
		f.open(user).End(Gone)
	}
	f.pass(10 * time.Second)
	require.True(t, f.store.state("first").Left)
	require.False(t, f.store.state("second").Left)
	require.EqualValues(t, 2, f.Stats().Dropped)
	require.Equal(t, 1, f.logged("leaves are dropped"))
	f.later(store.DeviceEvent{User: "last", At: base}, time.Minute)
	f.later(store.DeviceEvent{User: "alice", At: base}, time.Minute)
	require.True(t, f.store.state("alice").Left, "written at once")
}

// TestStop writes all that waits and all that was received, and later ends write nothing.
func TestStop(t *testing.T) {
	f := newFixture(t)
	stays, gone := f.open("stays"), f.open("gone")
	f.receive(10*time.Second, stays, gone)
	gone.End(Gone)
	f.later(store.DeviceEvent{User: "later", At: seconds(10)}, time.Minute)
	f.store.take()
	f.Stop(t.Context())
	require.Equal(t, start+10*time.Second, f.monotonic(), "at once")
	require.Len(t, f.store.take(), 3)
	require.Equal(t, lastseen.State{At: seconds(10)}, f.store.state("stays"))
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, f.store.state("gone"))
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, f.store.state("later"))

	_, err := f.Open(t.Context(), f.opening("new"))
	require.ErrorIs(t, err, ErrStopping)
	f.requireNothing()
	f.later(store.DeviceEvent{User: "late", At: seconds(10)}, time.Minute)
	require.Equal(t, "late", f.only().User, "written at once")
	f.stay(50*time.Second, stays)
	require.Len(t, f.store.take(), 1, "heartbeats of connections that are open")
	stays.End(Gone)
	f.pass(time.Minute)
	f.requireNothing()
}

// TestLeaveWhileStopping: clients may still send leaves.
func TestLeaveWhileStopping(t *testing.T) {
	f, c := newConnection(t)
	f.Stop(t.Context())
	state, err := c.Leave(t.Context())
	require.NoError(t, err)
	require.True(t, state.Left)
}

// TestStopInAnOutage tries again until the context ends.
func TestStopInAnOutage(t *testing.T) {
	f := newFixture(t)
	f.open("alice").End(Gone)
	f.store.fail(store.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	pauses := 0
	f.pause = func(_ context.Context, d time.Duration) {
		f.store.pass(d)
		if pauses++; pauses == 3 {
			cancel()
		}
	}
	f.Stop(ctx)
	require.Equal(t, 3, pauses)
	require.False(t, f.store.state("alice").Left)
	f.pause = func(_ context.Context, d time.Duration) {
		f.store.pass(d)
		f.store.fail(nil)
	}
	f.Stop(t.Context())
	require.True(t, f.store.state("alice").Left)
}

// TestStopWithoutConnections returns at once, without a call.
func TestStopWithoutConnections(t *testing.T) {
	f := newFixture(t)
	f.store.fail(store.ErrUnavailable)
	f.Stop(t.Context())
	require.Zero(t, f.store.asked)
}
