package connections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestOutage: connections stay open while the store is away. When it is back, the newest heartbeat of each is written
// at once, and then its record, with all that the store may have lost.
func TestOutage(t *testing.T) {
	f := newFixture(t)
	received, silent := f.open("received"), f.open("silent")
	f.store.fail(store.ErrUnavailable)
	for range 3 {
		f.receive(25*time.Second, received)
	}
	require.Equal(t, 1, f.Stats().Unwritten)
	f.pass(time.Second)
	attempts := f.store.take()
	require.Less(t, len(attempts), 80)
	require.Equal(t, 1, f.logged("cannot record pings of connections"))
	_, err := f.Open(t.Context(), f.opening("new"))
	require.ErrorIs(t, err, store.ErrUnavailable)

	f.store.fail(nil)
	f.store.take()
	f.pass(time.Second)
	got := f.only()
	require.Equal(t, ping, got.call)
	require.Equal(t, seconds(75), got.At)
	require.Zero(t, f.Stats().Unwritten)
	require.Equal(t, 1, f.logged("recorded again"))
	f.pass(time.Second)
	got = f.only()
	require.Equal(t, received.record, got.ID)
	require.Equal(t, seconds(75), got.At)
	require.JSONEq(t, `{"v":1}`, got.Meta)
	f.pass(time.Minute)
	f.requireNothing()

	silent.Received() // it had no heartbeats to write meanwhile
	f.pass(time.Second)
	got = f.only()
	require.Equal(t, silent.record, got.ID)
	require.JSONEq(t, `{"v":1}`, got.Meta)
	require.Empty(t, f.closed)
}

// TestOutageReturns: a record that could not be written again is not forgotten, although nothing more is received.
func TestOutageReturns(t *testing.T) {
	f, c := newConnection(t)
	f.receive(25*time.Second, c)
	f.store.fail(store.ErrUnavailable)
	f.pass(time.Minute)
	f.store.refuse = func(kind callKind, _ string) error {
		if kind == recordDevices {
			return store.ErrUnavailable
		}
		return nil
	}
	f.store.fail(nil)
	f.pass(time.Minute)
	f.store.refuse = func(callKind, string) error { return nil }
	f.store.take()
	f.pass(3 * time.Second)
	require.True(t, slices.ContainsFunc(f.store.take(), func(got written) bool { return got.ID == c.record }))
}

// TestRecordAgain: when a store may have lost its data, all connections of a namespace are recorded soon, with what the
// client said about the device, and not all at once. Once is enough.
func TestRecordAgain(t *testing.T) {
	next := 0.
	f := newFixture(t, func(o *Options) { o.Random = func() float64 { next = 0.75 - next; return next } })
	early, late, gone := f.open("early"), f.open("late"), f.open("gone")
	f.receive(10*time.Second, early, late)
	f.pass(25 * time.Second)
	f.store.take()
	f.store.states, f.store.devices = map[string]lastseen.State{}, map[string]lastseen.Devices{}
	f.RecordAgain("other")
	f.pass(10 * time.Second)
	f.requireNothing()
	next = 0
	f.RecordAgain(ns)
	gone.End(Ended)
	f.pass(againWithin / 2)
	got := f.store.take()
	require.Len(t, got, 2)
	f.pass(againWithin)
	got = append(got, f.store.take()...)
	require.Len(t, got, 3)
	for _, d := range got {
		switch d.User {
		case "gone":
			require.Equal(t, seconds(0), d.At)
		default:
			require.Equal(t, seconds(10), d.At)
			require.NotEmpty(t, d.ID)
			require.JSONEq(t, `{"v":1}`, d.Meta)
		}
	}
	f.pass(15 * time.Second)
	f.requireNothing()
}

// TestStoreLostData: if the store reports a loss, the connections of all namespaces are recorded again. Another report
// does not delay those that still wait.
func TestStoreLostData(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Random = func() float64 { return 0.75 } })
	f.open("alice")
	other := f.opening("bob")
	other.Namespace = "other"
	_, err := f.Open(t.Context(), other)
	require.NoError(t, err)
	f.pass(25 * time.Second)
	f.store.take()
	f.store.ask(store.Disconnect{})
	f.pass(againWithin / 2)
	f.requireNothing()
	f.RecordAgain(ns)
	f.pass(againWithin / 2)
	got := f.store.take()
	require.ElementsMatch(t, []string{"alice", "bob"}, usersOf(got))
	for _, d := range got {
		require.Equal(t, seconds(0), d.At)
		require.NotEmpty(t, d.ID)
		require.JSONEq(t, `{"v":1}`, d.Meta)
	}
	f.pass(time.Minute)
	f.requireNothing()
	require.Empty(t, f.closed)
}

// TestEndsInAnOutage: leaves wait for the store, and have the time at which the connection was active.
func TestEndsInAnOutage(t *testing.T) {
	f := newFixture(t)
	gone, ended := f.open("gone"), f.open("ended")
	f.receive(10*time.Second, gone, ended)
	f.store.fail(store.ErrUnavailable)
	gone.End(Gone)
	ended.End(Ended)
	f.pass(time.Hour)
	require.Equal(t, 2, f.Stats().Waiting)
	require.InDelta(t, 2*3600, len(f.store.take()), 100, "an attempt a second")
	f.store.fail(nil)
	f.pass(2 * time.Second)
	require.Len(t, f.store.take(), 2)
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, f.store.state("gone"))
	require.Equal(t, lastseen.State{At: seconds(10)}, f.store.state("ended"))
	require.Zero(t, f.Stats().Waiting)
	require.Equal(t, 1, f.logged("cannot record"))
	require.Zero(t, f.logged("leaves are dropped"))
}

// TestOtherNamespacesInAnOutage: a namespace that the store cannot write now does not keep others from being written.
func TestOtherNamespacesInAnOutage(t *testing.T) {
	f := newFixture(t)
	var open []*Connection
	for i := range 20 {
		o := f.opening("alice")
		o.Namespace = fmt.Sprint("n", i)
		c, err := f.Open(t.Context(), o)
		require.NoError(t, err)
		open = append(open, c)
	}
	f.store.refuse = func(_ callKind, namespace string) error {
		if namespace == "n7" {
			return store.ErrUnavailable
		}
		return nil
	}
	f.store.take()
	f.stay(80*time.Second, open...)
	f.pass(time.Second)
	for i := range open {
		state := f.store.states[fmt.Sprint("n", i, " alice")]
		require.Equal(t, i == 7, state.At == base)
	}
	require.Equal(t, 1, f.Stats().Unwritten)
}

// TestDisconnectsAway: heartbeats are written although the disconnects cannot be read.
func TestDisconnectsAway(t *testing.T) {
	f, c := newConnection(t)
	broken := brokenDisconnects{f.store}
	f.o.Store = broken
	c.Received()
	f.stay(time.Minute, c)
	require.NotEmpty(t, f.store.take())
	require.Equal(t, 1, f.logged("cannot record"))
}

type brokenDisconnects struct{ *fakeStore }

func (brokenDisconnects) Disconnects(
	context.Context, store.DisconnectPosition,
) ([]store.Disconnect, store.DisconnectPosition, error) {
	return nil, "", store.ErrUnavailable
}

// TestImpossible: an error that does not pass closes the connections that it concerns.
func TestImpossible(t *testing.T) {
	for _, lasting := range []error{
		store.ErrNoDevices, &store.MismatchError{}, store.ErrWrongType, store.ErrNamespaceLimit,
	} {
		f := newFixture(t)
		c, quiet, goes := f.open("alice"), f.open("quiet"), f.open("goes")
		f.store.refuse = func(callKind, string) error { return lasting }
		f.store.take()
		f.receive(25*time.Second, c)
		goes.End(Gone)
		f.pass(10 * time.Second)
		require.Len(t, f.store.take(), 2, "there is no second attempt")
		f.requireClosed("alice", Impossible)
		f.requireClosed("quiet")
		require.Equal(t, 2, f.logged("cannot be recorded"), "once a round")
		require.Zero(t, f.logged("trying again"))
		c.Received()
		c.SetIdle(true)
		_, err := c.Leave(t.Context())
		require.ErrorIs(t, err, ErrEnded)
		c.End(Gone)
		f.pass(time.Minute)
		f.requireNothing()
		require.Equal(t, Stats{Open: 1, Opened: 3, Dropped: 1}, f.Stats())
		quiet.End(Ended)
	}
}

// TestOtherErrors pass, as far as a registry can know.
func TestOtherErrors(t *testing.T) {
	for _, passing := range []error{
		store.ErrOverloaded, store.ErrFull, store.ErrClosed, context.DeadlineExceeded, errors.New("unknown"),
	} {
		f, c := newConnection(t)
		f.receive(25*time.Second, c)
		f.passWithError(time.Minute, passing)
		f.pass(time.Second)
		require.Equal(t, lastseen.State{At: seconds(25)}, f.store.state("alice"))
		require.Empty(t, f.closed)
	}
}

// TestCanceledIsNoOutage: a server that stops does not report one.
func TestCanceledIsNoOutage(t *testing.T) {
	f := newFixture(t)
	f.open("alice")
	f.store.fail(context.Canceled)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.store.pass(time.Minute)
	f.tick(ctx)
	require.Empty(t, f.log.String())
}

// TestManyConnections: calls have a bounded size.
func TestManyConnections(t *testing.T) {
	f := newFixture(t)
	var open []*Connection
	for i := range maxBatch + 100 {
		open = append(open, f.open(fmt.Sprint("u", i)))
	}
	f.store.take()
	f.store.pass(25 * time.Second)
	for _, c := range open {
		c.Received()
	}
	f.pass(time.Second)
	writes := f.store.take()
	require.Len(t, writes, len(open))
	users := map[string]bool{}
	for _, got := range writes {
		require.False(t, got.failed)
		users[got.User] = true
	}
	require.Len(t, users, len(open))
}
