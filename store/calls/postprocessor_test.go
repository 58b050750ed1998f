package calls

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestParties: each step reaches the connections of both parties on all servers at once, and they are shown to be in a
// call while it is active.
func TestParties(t *testing.T) {
	f, a, b := newPair(t)
	a.connect("alice", "")
	connect(b, b)
	id := f.rings(a, "alice", "bob")
	f.settle()
	f.requireInCall()
	require.Equal(t, lastseen.Stepped, f.acts(b, id, "bob", lastseen.Accept))
	f.requireInCall("alice", "bob")
	f.settle()
	require.Equal(t, lastseen.Repeated, f.acts(b, id, "bob", lastseen.Alive))
	require.Equal(t, lastseen.Refused, f.acts(b, id, "bob", lastseen.Reject))
	require.Equal(t, lastseen.Stepped, f.acts(a, id, "alice", lastseen.End))
	f.requireInCall()
	f.settle()
	want := []lastseen.CallState{lastseen.Ringing, lastseen.Active, lastseen.Ended}
	for _, states := range [][]lastseen.CallState{a.states("alice"), b.states("alice"), b.states("bob")} {
		require.Equal(t, want, states)
	}
	require.Len(t, b.told["bob"], 3, "what changes nothing is not signalled")
	require.Equal(t, int64(1), a.Stats().Reached[lastseen.Ringing])
	require.Equal(t, int64(1), b.Stats().Reached[lastseen.Active])
	require.Equal(t, int64(1), a.Stats().Reached[lastseen.Ended])
}

// TestErrorsAreReturned: a step that was not done has no consequences.
func TestErrorsAreReturned(t *testing.T) {
	f, s := newSingle(t)
	f.rings(s, "alice", "bob")
	f.pass(time.Second)
	s.connect("alice", "")
	_, err := done(s.Start(t.Context(), ns, f.call("alice", "carol")))
	require.ErrorIs(t, err, store.ErrCallerBusy)
	_, err = done(s.Act(t.Context(), ns, store.CallAct{ID: "call-1", User: "carol", Action: lastseen.Accept}))
	require.ErrorIs(t, err, store.ErrCallNotFound)
	f.pass(time.Second)
	require.Empty(t, s.told)
	require.Zero(t, s.Stats().Unknown)
}

// TestCallerOnly: a callee who must not learn of a call is not signalled, whatever becomes of it.
func TestCallerOnly(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		f, a, b := newPair(t)
		a.connect("carol", "")
		b.connect("bob", "")
		busy := f.rings(b, "alice", "bob")
		f.acts(b, busy, "bob", lastseen.Accept)
		f.pass(time.Second)
		active := len(b.told["bob"])
		c := f.call("carol", "bob")
		c.CalleeHidden = true
		if unknown {
			a.lose = loseOnce("StartCall", a)
			_, err := done(a.Start(t.Context(), ns, c))
			require.ErrorIs(t, err, store.ErrUnavailable)
		} else {
			f.starts(a, c)
		}
		f.pass(ring + time.Second)
		f.requireState(c.ID, lastseen.Missed)
		require.Equal(t, []lastseen.CallState{lastseen.Ringing, lastseen.Missed}, a.states("carol"))
		require.Len(t, b.told["bob"], active, "%v", unknown)
	}
}

// TestSignals: each change is one signal, first for the caller and then for the callee. If the call does not reach the
// callee, it is for the caller alone. It is sent when the step is finished, and not before.
func TestSignals(t *testing.T) {
	for _, reaches := range []bool{true, false} {
		f := newFixture(t, 1)
		s, users := f.servers[0], []string{"carol", "bob"}
		if !reaches {
			f.acts(s, f.rings(s, "alice", "bob"), "bob", lastseen.Accept)
			users = []string{"carol"}
		}
		f.settle()
		c := f.call("carol", "bob")
		c.CalleeHidden = !reaches
		step, finish, err := s.Start(t.Context(), ns, c)
		require.NoError(t, err)
		require.Empty(t, s.signals)
		finish()
		require.Equal(t, []Change{{step.Call.ID, users, &step.Call}}, changesOf(s.signals))
		f.acts(s, step.Call.ID, "carol", lastseen.End)
		ended := changesOf(s.signals)[1]
		require.Equal(t, users, ended.Users)
		require.Equal(t, lastseen.Cancelled, ended.Call.State)
	}
}

// changesOf returns what signals are about.
func changesOf(signals []store.Signal) (changes []Change) {
	for _, s := range signals {
		changes = append(changes, OfSignal(s))
	}
	return changes
}

// TestOfSignal: what others publish is not a signal of a call, unless it names one and two parties at most. A call with
// a large App, or with another ID, has to be read.
func TestOfSignal(t *testing.T) {
	want := Change{ID: "id", Users: []string{"alice", "bob"}}
	require.Equal(t, want, OfSignal(Signal(ns, "id", "alice", "bob")))
	c := lastseen.Call{ID: "id", From: "alice", App: strings.Repeat("\"", maxSignalApp), Over: lastseen.MaxInstant}
	withCall := want
	withCall.Call = &c
	require.Equal(t, withCall, OfSignal(withCall.signal(ns)))
	c.App += "\""
	require.Equal(t, want, OfSignal(withCall.signal(ns)))
	c.ID, c.App = "other", ""
	require.Equal(t, want, OfSignal(withCall.signal(ns)))
	for _, s := range []store.Signal{
		{},
		{Kind: "self", Data: Signal(ns, "id", "alice").Data},
		{Kind: signalKind},
		{Kind: signalKind, Data: []byte("id")},
		Signal(ns, "id", "alice", "bob", "carol"),
	} {
		require.Equal(t, Change{}, OfSignal(s))
	}
}

// FuzzOfSignal: whatever others publish, a change is within the bounds of signals.
func FuzzOfSignal(f *testing.F) {
	f.Add(Signal(ns, "id", "alice", "bob").Data)
	f.Add(Change{ID: "id", Users: []string{"alice"}, Call: &lastseen.Call{ID: "id", App: "1"}}.signal(ns).Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := OfSignal(store.Signal{Kind: signalKind, Data: data})
		require.LessOrEqual(t, len(c.Users), 2)
		if c.Call != nil {
			require.Equal(t, c.ID, c.Call.ID)
			require.LessOrEqual(t, len(c.Call.App), maxSignalApp)
		}
		require.Equal(t, c, OfSignal(c.signal(ns)))
	})
}

// loseOnce has a method do its work once without a result.
func loseOnce(name string, h *server) func(string) error {
	return func(method string) error {
		if method != name {
			return nil
		}
		h.lose = func(string) error { return nil }
		return store.ErrUnavailable
	}
}

// TestUnknownOutcome: if a step returned no result, the parties learn what became of the call, once the store works.
func TestUnknownOutcome(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		f, a, b := newPair(t)
		connect(a, b)
		c := f.call("alice", "bob")
		a.lose = loseOnce("StartCall", a)
		_, err := done(a.Start(t.Context(), ns, c))
		require.ErrorIs(t, err, store.ErrUnavailable)
		f.pass(2 * time.Second)
		require.Equal(t, []lastseen.CallState{lastseen.Ringing}, a.states("alice"))
		require.Equal(t, []lastseen.CallState{lastseen.Ringing}, b.states("bob"))

		ctx, cancel := context.WithCancel(t.Context())
		a.lose = loseOnce("StepCall", a)
		if canceled {
			a.lose = func(string) error {
				cancel()
				return ctx.Err()
			}
		}
		_, err = done(a.Act(ctx, ns, store.CallAct{ID: c.ID, User: "bob", Action: lastseen.Accept}))
		require.Error(t, err)
		cancel()
		f.away()
		f.pass(20 * time.Second)
		a.lose = func(string) error { return nil }
		f.back()
		f.pass(10 * time.Second)
		require.Equal(t, []lastseen.CallState{lastseen.Ringing, lastseen.Active}, a.states("alice"))
		require.Equal(t, []lastseen.CallState{lastseen.Ringing, lastseen.Active}, b.states("bob"))
		f.requireInCall("alice", "bob")
		require.Zero(t, a.Stats().Unknown)
	}
}

// TestCanceledRequest: what was done reaches everyone although the client is gone.
func TestCanceledRequest(t *testing.T) {
	f, a, b := newPair(t)
	b.connect("bob", "")
	id := f.rings(a, "alice", "bob")
	ctx, cancel := context.WithCancel(t.Context())
	a.lose = func(string) error {
		cancel()
		return nil
	}
	_, err := done(a.Act(ctx, ns, store.CallAct{ID: id, User: "bob", Action: lastseen.Accept}))
	require.NoError(t, err)
	f.requireInCall("alice", "bob")
	f.settle()
	require.Equal(t, []lastseen.CallState{lastseen.Active}, b.states("bob"))
}

// TestRepeatedStart: a client that repeats a call has its parties signalled again.
func TestRepeatedStart(t *testing.T) {
	f, a, b := newPair(t)
	b.connect("bob", "")
	c := f.call("alice", "bob")
	b.deaf = true
	f.starts(a, c)
	b.deaf = false
	f.settle()
	require.Empty(t, b.states("bob"))
	step, err := done(a.Start(t.Context(), ns, c))
	require.NoError(t, err)
	require.Equal(t, lastseen.Repeated, step.Outcome)
	f.settle()
	require.Equal(t, []lastseen.CallState{lastseen.Ringing}, b.states("bob"))
	require.Equal(t, int64(1), a.Stats().Reached[lastseen.Ringing])
}

// TestSignalsThatFail are sent again.
func TestSignalsThatFail(t *testing.T) {
	f, a, b := newPair(t)
	b.connect("bob", "")
	a.failing("Signal", store.ErrOverloaded)
	f.rings(a, "alice", "bob")
	f.pass(3 * time.Second)
	require.Empty(t, b.states("bob"))
	a.fail = func(string) error { return nil }
	f.pass(retryAfter)
	require.Equal(t, []lastseen.CallState{lastseen.Ringing}, b.states("bob"))
	require.Zero(t, a.Stats().Unknown)
}

// TestUnknownOutcomesAreBounded, in number and in time.
func TestUnknownOutcomesAreBounded(t *testing.T) {
	f, s := newSingle(t)
	f.away()
	for i := range maxUnknown + 10 {
		_, err := done(s.Act(t.Context(), ns, store.CallAct{ID: fmt.Sprint(i), User: "bob", Action: lastseen.Accept}))
		require.ErrorIs(t, err, store.ErrUnavailable)
	}
	require.Equal(t, maxUnknown, s.Stats().Unknown)
	require.Equal(t, 1, countLines(f.log.String()))
	before := s.counts["ReadCalls"]
	f.pass(10 * time.Second)
	require.LessOrEqual(t, s.counts["ReadCalls"]-before, 10, "one at a time finds out whether the store is back")
	f.elapsed.Add(int64(unknownKept))
	f.settle()
	require.Zero(t, s.Stats().Unknown)
	f.back()
	f.pass(time.Second)
	require.Zero(t, s.postprocessor.due.rest(0, 0))
}
