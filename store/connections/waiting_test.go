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

func (w *world) later(s store.DeviceSighting, after time.Duration) {
	w.t.Helper()
	require.NoError(w.t, w.Later(w.t.Context(), Departure{Namespace: ns, DeviceSighting: s, After: after}))
}

// TestLater: a leave is written after its delay, at the time at which it was asked for.
func TestLater(t *testing.T) {
	w := newWorld(t)
	w.later(store.DeviceSighting{User: "alice", ID: "tab", Kind: lastseen.Web, At: base}, 5*time.Second)
	w.later(store.DeviceSighting{User: "bob", At: base}, time.Hour)
	w.pass(5*time.Second - tickEvery)
	w.requireNothing()
	w.store.step(time.Hour) // the time that was asserted stays
	w.pass(tickEvery)
	got := w.only()
	require.Equal(t, recordDevices, got.call)
	want := store.DeviceSighting{User: "alice", ID: "tab", Kind: lastseen.Web, At: base, Gone: true}
	require.Equal(t, want, got.DeviceSighting)
	w.pass(MaxGrace - 6*time.Second)
	w.requireNothing()
	w.pass(time.Second)
	got = w.only()
	require.Equal(t, leave, got.call)
	require.Equal(t, base, got.At)
	require.Equal(t, 2, w.left)
	require.Zero(t, w.Stats().Goodbyes, "these are not of connections")
}

// TestLaterIsHarmless if the user comes back meanwhile.
func TestLaterIsHarmless(t *testing.T) {
	w := newWorld(t)
	w.later(store.DeviceSighting{User: "alice", At: base}, 5*time.Second)
	w.pass(time.Second)
	w.open("alice")
	w.pass(time.Minute)
	require.Equal(t, lastseen.State{At: seconds(1)}, w.store.state("alice"))
	require.Zero(t, w.left)
}

func TestTooManyLeavesAreWrittenAtOnce(t *testing.T) {
	w := newWorld(t)
	for i := range MaxLater {
		w.later(store.DeviceSighting{User: fmt.Sprint("u", i), At: base}, time.Minute)
	}
	w.requireNothing()
	w.later(store.DeviceSighting{User: "alice", At: base}, time.Minute)
	require.Equal(t, "alice", w.only().User)
	calls := 0
	w.store.during = func(callKind) { calls++ }
	require.NoError(t, w.Later(t.Context(), make([]Departure, 100)...))
	require.Equal(t, 1, calls, "those of one request are written together")
	w.store.take()
	w.store.during = func(callKind) {}
	w.store.fail(store.ErrUnavailable)
	err := w.Later(t.Context(), Departure{Namespace: ns, DeviceSighting: store.DeviceSighting{User: "bob"}})
	require.ErrorIs(t, err, store.ErrUnavailable)
	w.store.fail(nil)
	w.pass(time.Minute)
	require.Zero(t, w.Stats().Waiting)
	w.store.take()
	w.later(store.DeviceSighting{User: "bob", At: base}, time.Minute)
	w.requireNothing()
}

// TestTooManyGoodbyes are dropped, as if those connections had ended in silence.
func TestTooManyGoodbyes(t *testing.T) {
	w := newWorld(t)
	w.waiting = make([]pending, maxWaiting-1)
	for i := range w.waiting {
		w.waiting[i].due = start + time.Hour
	}
	for _, user := range []string{"first", "second", "third"} {
		w.open(user).End(Gone)
	}
	w.pass(10 * time.Second)
	require.True(t, w.store.state("first").Left)
	require.False(t, w.store.state("second").Left)
	require.EqualValues(t, 2, w.Stats().Dropped)
	require.Equal(t, 1, w.logged("goodbyes are dropped"))
	w.later(store.DeviceSighting{User: "last", At: base}, time.Minute)
	w.later(store.DeviceSighting{User: "alice", At: base}, time.Minute)
	require.True(t, w.store.state("alice").Left, "written at once")
}

// TestStop writes all that waits and all that was heard, and later ends write nothing.
func TestStop(t *testing.T) {
	w := newWorld(t)
	stays, gone := w.open("stays"), w.open("gone")
	w.hear(10*time.Second, stays, gone)
	gone.End(Gone)
	w.later(store.DeviceSighting{User: "later", At: seconds(10)}, time.Minute)
	w.store.take()
	w.Stop(t.Context())
	require.Equal(t, start+10*time.Second, w.monotonic(), "at once")
	require.Len(t, w.store.take(), 3)
	require.Equal(t, lastseen.State{At: seconds(10)}, w.store.state("stays"))
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, w.store.state("gone"))
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, w.store.state("later"))

	_, err := w.Open(t.Context(), w.opening("new"))
	require.ErrorIs(t, err, ErrStopping)
	w.requireNothing()
	w.later(store.DeviceSighting{User: "late", At: seconds(10)}, time.Minute)
	require.Equal(t, "late", w.only().User, "written at once")
	w.stay(50*time.Second, stays)
	require.Len(t, w.store.take(), 1, "evidence of connections that are open")
	stays.End(Gone)
	w.pass(time.Minute)
	w.requireNothing()
}

// TestLeaveWhileStopping: clients may still say goodbye.
func TestLeaveWhileStopping(t *testing.T) {
	w, c := newConnection(t)
	w.Stop(t.Context())
	state, err := c.Leave(t.Context())
	require.NoError(t, err)
	require.True(t, state.Left)
}

// TestStopInAnOutage tries again until the context ends.
func TestStopInAnOutage(t *testing.T) {
	w := newWorld(t)
	w.open("alice").End(Gone)
	w.store.fail(store.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	pauses := 0
	w.pause = func(_ context.Context, d time.Duration) {
		w.store.pass(d)
		if pauses++; pauses == 3 {
			cancel()
		}
	}
	w.Stop(ctx)
	require.Equal(t, 3, pauses)
	require.False(t, w.store.state("alice").Left)
	w.pause = func(_ context.Context, d time.Duration) {
		w.store.pass(d)
		w.store.fail(nil)
	}
	w.Stop(t.Context())
	require.True(t, w.store.state("alice").Left)
}

// TestStopWithoutConnections returns at once, without a call.
func TestStopWithoutConnections(t *testing.T) {
	w := newWorld(t)
	w.store.fail(store.ErrUnavailable)
	w.Stop(t.Context())
	require.Zero(t, w.store.asked)
}
