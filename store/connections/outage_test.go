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

// TestOutage: connections stay open while the store is away. When it is back, the newest evidence of each is written at
// once, and then its record, with all that the store may have lost.
func TestOutage(t *testing.T) {
	w := newWorld(t)
	heard, silent := w.open("heard"), w.open("silent")
	w.store.fail(store.ErrUnavailable)
	for range 3 {
		w.hear(25*time.Second, heard)
	}
	require.Equal(t, 1, w.Stats().Evidence)
	w.pass(time.Second)
	attempts := w.store.take()
	require.Less(t, len(attempts), 80)
	require.Equal(t, 1, w.logged("cannot record what is heard"))
	_, err := w.Open(t.Context(), w.opening("new"))
	require.ErrorIs(t, err, store.ErrUnavailable)

	w.store.fail(nil)
	w.store.take()
	w.pass(time.Second)
	got := w.only()
	require.Equal(t, ping, got.call)
	require.Equal(t, seconds(75), got.At)
	require.Zero(t, w.Stats().Evidence)
	require.Equal(t, 1, w.logged("recorded again"))
	w.pass(time.Second)
	got = w.only()
	require.Equal(t, heard.record, got.ID)
	require.Equal(t, seconds(75), got.At)
	require.JSONEq(t, `{"v":1}`, got.Meta)
	w.pass(time.Minute)
	w.requireNothing()

	silent.Heard() // it had no evidence to write meanwhile
	w.pass(time.Second)
	got = w.only()
	require.Equal(t, silent.record, got.ID)
	require.JSONEq(t, `{"v":1}`, got.Meta)
	require.Empty(t, w.closed)
}

// TestOutageReturns: a record that could not be written again is not forgotten, although nothing more is heard.
func TestOutageReturns(t *testing.T) {
	w, c := newConnection(t)
	w.hear(25*time.Second, c)
	w.store.fail(store.ErrUnavailable)
	w.pass(time.Minute)
	w.store.refuse = func(kind callKind, _ string) error {
		if kind == recordDevices {
			return store.ErrUnavailable
		}
		return nil
	}
	w.store.fail(nil)
	w.pass(time.Minute)
	w.store.refuse = func(callKind, string) error { return nil }
	w.store.take()
	w.pass(3 * time.Second)
	require.True(t, slices.ContainsFunc(w.store.take(), func(got written) bool { return got.ID == c.record }))
}

// TestRecordAgain: when a store may have lost its data, all connections of a namespace are recorded soon, with what the
// client said about the device, and not all at once. Once is enough.
func TestRecordAgain(t *testing.T) {
	next := 0.
	w := newWorld(t, func(o *Options) { o.Random = func() float64 { next = 0.75 - next; return next } })
	early, late, gone := w.open("early"), w.open("late"), w.open("gone")
	w.hear(10*time.Second, early, late)
	w.pass(25 * time.Second)
	w.store.take()
	w.store.states, w.store.devices = map[string]lastseen.State{}, map[string]lastseen.Devices{}
	w.RecordAgain("other")
	w.pass(10 * time.Second)
	w.requireNothing()
	next = 0
	w.RecordAgain(ns)
	gone.End(Ended)
	w.pass(againWithin / 2)
	got := w.store.take()
	require.Len(t, got, 2)
	w.pass(againWithin)
	got = append(got, w.store.take()...)
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
	w.pass(15 * time.Second)
	w.requireNothing()
}

// TestStoreLostData: if the store reports a loss, the connections of all namespaces are recorded again. Another report
// does not delay those that still wait.
func TestStoreLostData(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Random = func() float64 { return 0.75 } })
	w.open("alice")
	other := w.opening("bob")
	other.Namespace = "other"
	_, err := w.Open(t.Context(), other)
	require.NoError(t, err)
	w.pass(25 * time.Second)
	w.store.take()
	w.store.ask(store.Closing{})
	w.pass(againWithin / 2)
	w.requireNothing()
	w.RecordAgain(ns)
	w.pass(againWithin / 2)
	got := w.store.take()
	require.ElementsMatch(t, []string{"alice", "bob"}, usersOf(got))
	for _, d := range got {
		require.Equal(t, seconds(0), d.At)
		require.NotEmpty(t, d.ID)
		require.JSONEq(t, `{"v":1}`, d.Meta)
	}
	w.pass(time.Minute)
	w.requireNothing()
	require.Empty(t, w.closed)
}

// TestEndsInAnOutage: goodbyes wait for the store, and have the time at which the connection was heard.
func TestEndsInAnOutage(t *testing.T) {
	w := newWorld(t)
	gone, ended := w.open("gone"), w.open("ended")
	w.hear(10*time.Second, gone, ended)
	w.store.fail(store.ErrUnavailable)
	gone.End(Gone)
	ended.End(Ended)
	w.pass(time.Hour)
	require.Equal(t, 2, w.Stats().Waiting)
	require.InDelta(t, 2*3600, len(w.store.take()), 100, "an attempt a second")
	w.store.fail(nil)
	w.pass(2 * time.Second)
	require.Len(t, w.store.take(), 2)
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, w.store.state("gone"))
	require.Equal(t, lastseen.State{At: seconds(10)}, w.store.state("ended"))
	require.Zero(t, w.Stats().Waiting)
	require.Equal(t, 1, w.logged("cannot record"))
	require.Zero(t, w.logged("goodbyes are dropped"))
}

// TestOtherNamespacesInAnOutage: a namespace that the store cannot write now does not keep others from being written.
func TestOtherNamespacesInAnOutage(t *testing.T) {
	w := newWorld(t)
	var open []*Connection
	for i := range 20 {
		o := w.opening("alice")
		o.Namespace = fmt.Sprint("n", i)
		c, err := w.Open(t.Context(), o)
		require.NoError(t, err)
		open = append(open, c)
	}
	w.store.refuse = func(_ callKind, namespace string) error {
		if namespace == "n7" {
			return store.ErrUnavailable
		}
		return nil
	}
	w.store.take()
	w.stay(80*time.Second, open...)
	w.pass(time.Second)
	for i := range open {
		state := w.store.states[fmt.Sprint("n", i, " alice")]
		require.Equal(t, i == 7, state.At == base)
	}
	require.Equal(t, 1, w.Stats().Evidence)
}

// TestClosingsAway: evidence is written although the closings cannot be read.
func TestClosingsAway(t *testing.T) {
	w, c := newConnection(t)
	broken := brokenClosings{w.store}
	w.o.Store = broken
	c.Heard()
	w.stay(time.Minute, c)
	require.NotEmpty(t, w.store.take())
	require.Equal(t, 1, w.logged("cannot record"))
}

type brokenClosings struct{ *fakeStore }

func (brokenClosings) Closings(context.Context, store.ClosingPlace) ([]store.Closing, store.ClosingPlace, error) {
	return nil, "", store.ErrUnavailable
}

// TestImpossible: an error that does not pass closes the connections that it concerns.
func TestImpossible(t *testing.T) {
	for _, lasting := range []error{
		store.ErrNoDevices, &store.MismatchError{}, store.ErrWrongType, store.ErrNamespaceLimit,
	} {
		w := newWorld(t)
		c, quiet, goes := w.open("alice"), w.open("quiet"), w.open("goes")
		w.store.refuse = func(callKind, string) error { return lasting }
		w.store.take()
		w.hear(25*time.Second, c)
		goes.End(Gone)
		w.pass(10 * time.Second)
		require.Len(t, w.store.take(), 2, "there is no second attempt")
		w.requireClosed("alice", Impossible)
		w.requireClosed("quiet")
		require.Equal(t, 2, w.logged("cannot be recorded"), "once a round")
		require.Zero(t, w.logged("trying again"))
		c.Heard()
		c.SetIdle(true)
		_, err := c.Leave(t.Context())
		require.ErrorIs(t, err, ErrEnded)
		c.End(Gone)
		w.pass(time.Minute)
		w.requireNothing()
		require.Equal(t, Stats{Open: 1, Opened: 3, Dropped: 1}, w.Stats())
		quiet.End(Ended)
	}
}

// TestOtherErrors pass, as far as a registry can know.
func TestOtherErrors(t *testing.T) {
	for _, passing := range []error{
		store.ErrOverloaded, store.ErrFull, store.ErrClosed, context.DeadlineExceeded, errors.New("unknown"),
	} {
		w, c := newConnection(t)
		w.hear(25*time.Second, c)
		w.passWithError(time.Minute, passing)
		w.pass(time.Second)
		require.Equal(t, lastseen.State{At: seconds(25)}, w.store.state("alice"))
		require.Empty(t, w.closed)
	}
}

// TestCanceledIsNoOutage: a server that stops does not report one.
func TestCanceledIsNoOutage(t *testing.T) {
	w := newWorld(t)
	w.open("alice")
	w.store.fail(context.Canceled)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.store.pass(time.Minute)
	w.tick(ctx)
	require.Empty(t, w.log.String())
}

// TestManyConnections: calls have a bounded size.
func TestManyConnections(t *testing.T) {
	w := newWorld(t)
	var open []*Connection
	for i := range maxBatch + 100 {
		open = append(open, w.open(fmt.Sprint("u", i)))
	}
	w.store.take()
	w.store.pass(25 * time.Second)
	for _, c := range open {
		c.Heard()
	}
	w.pass(time.Second)
	writes := w.store.take()
	require.Len(t, writes, len(open))
	users := map[string]bool{}
	for _, got := range writes {
		require.False(t, got.failed)
		users[got.User] = true
	}
	require.Len(t, users, len(open))
}
