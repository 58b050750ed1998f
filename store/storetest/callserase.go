package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testCallForget: nothing is left of the calls of a user who is forgotten, and the other parties are free.
func testCallForget(t *testing.T, c *calling) {
	ping(t, c, "alice", now(t, c))
	kept := c.call("alice", "bob")
	kept.Key, kept.Digest = "key", "digest"
	c.begin(kept)
	c.act(kept.ID, "alice", lastseen.End)
	to := c.ring("bob", "alice")
	c.act(to.ID, "alice", lastseen.Reject)
	other := c.ring("bob", "carol")
	c.act(other.ID, "carol", lastseen.Reject)
	call := c.active("alice", "bob")
	c.copyAll()
	forget(t, c, "alice")
	for _, id := range []string{kept.ID, to.ID, call.ID} {
		c.unknown(id)
		_, err := c.StepCall(t.Context(), ns, store.CallAct{ID: id, User: "bob", Action: lastseen.End})
		require.ErrorIs(t, err, store.ErrCallNotFound)
	}
	require.Equal(t, lastseen.Rejected, c.read(other.ID).State)
	require.Equal(t, []string{"", ""}, c.idsOf("alice", "bob"))
	require.Equal(t, store.ExpiredCalls{Kept: 1, Next: store.MaxCallGap / 2}, c.expire())
	require.Contains(t, c.unconfirmed(0), store.InCall{User: "bob"})
	require.Empty(t, c.inCall("alice"))
	c.copyAll()
	require.Empty(t, details(t, c, "alice", "bob"))
	c.begin(kept) // the key and the ID are free
	c.act(kept.ID, "bob", lastseen.Accept)
	forget(t, c, "nobody", "carol")
	require.Equal(t, lastseen.Active, c.read(kept.ID).State)
	c.unknown(other.ID)

	c.copyAll()
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	forget(t, c, "alice") // who has no state
	require.Equal(t, []string{"bob"}, c.inCall("alice", "bob"))
	ping(t, c, "alice", now(t, c))
	require.Equal(t, []string{"bob"}, c.inCall("alice", "bob"))
}

// testCallForgetOther: a callee who is forgotten frees a caller who waits, also if the callee is not a party.
func testCallForgetOther(t *testing.T, c *calling) {
	busy := c.active("bob", "carol")
	hidden := c.call("alice", "bob")
	hidden.CalleeHidden = true
	c.begin(hidden)
	ringing := c.ring("dave", "erin")
	forget(t, c, "bob", "erin")
	for _, id := range []string{busy.ID, hidden.ID, ringing.ID} {
		c.unknown(id)
	}
	require.Equal(t, make([]string, 5), c.idsOf("alice", "bob", "carol", "dave", "erin"))
	for range store.MaxCallsOfUser + 1 {
		c.ring("alice", "bob")
		forget(t, c, "bob")
	}
	require.Zero(t, c.expire().Kept)
}

func testCallDelete(t *testing.T, c *calling) {
	other := newCalling(t, c.Store)
	other.namespace = ns + "-"
	there := other.active("alice", "bob")
	for range 2 {
		call := c.call("alice", "bob")
		call.Key, call.Digest = "key", "digest"
		call.ID = "a"
		c.accepted(call)
		c.act(c.ring("carol", "dave").ID, "carol", lastseen.End)
		require.NotEmpty(t, c.unconfirmed(0))
		c.setInCall(c.unconfirmed(0)...)
		require.NoError(t, c.DeleteNamespace(t.Context(), ns))
		require.Equal(t, []string{other.namespace}, existing(t, c))
		c.unknown("a")
		require.Equal(t, []string{"", "", ""}, c.idsOf("alice", "bob", "carol"))
		require.Empty(t, c.unconfirmed(0))
		require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, c.expire())
		ping(t, c, "alice", now(t, c))
		require.Empty(t, details(t, c, "alice", "bob"))
	}
	require.Equal(t, there, other.read(there.ID))
	require.Len(t, other.unconfirmed(0), 2)
}

// testCallRemoveEmpty: a namespace is not empty while a call goes on in it.
func testCallRemoveEmpty(t *testing.T, c *calling) {
	_, err := c.StepCall(t.Context(), ns, store.CallAct{ID: "a", User: "alice", Action: lastseen.End})
	require.ErrorIs(t, err, store.ErrCallNotFound)
	c.hear("alice")
	c.expire()
	c.confirm(store.InCall{User: "alice"})
	refused := c.call("alice", "bob")
	refused.CalleeUnavailable = true
	c.fail(store.ErrCalleeUnavailable, refused)
	require.Empty(t, existing(t, c), "only a call that rings creates a namespace")
	call := c.ring("alice", "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: ns}}, namespaces(t, c, 10))
	require.False(t, removeEmpty(t, c, ns))
	ping(t, c, "alice", base)
	c.act(call.ID, "bob", lastseen.Accept)
	require.False(t, removeEmpty(t, c, ns))
	require.Equal(t, []string{call.ID}, c.idsOf("alice"))
	c.act(call.ID, "bob", lastseen.End)
	require.False(t, removeEmpty(t, c, ns), "a user has a state")
	forget(t, c, "alice")
	c.copyAll()
	require.True(t, removeEmpty(t, c, ns))
	call = c.ring("carol", "dave")
	c.act(call.ID, "carol", lastseen.End)
	require.True(t, removeEmpty(t, c, ns), "a call that is over keeps no namespace")
	require.Empty(t, existing(t, c))
	c.ring("carol", "dave")
	require.Equal(t, []string{ns}, existing(t, c), "it exists again")
}

// testCallRemoveEmptyWriters removes a namespace again and again while calls come and go. The calls that began go on.
func testCallRemoveEmptyWriters(t *testing.T, c *calling) {
	const writers, rounds = 4, 20
	var writing sync.WaitGroup
	stop := keepRemoving(t, c.Store)
	last := make([]string, writers)
	for w := range writers {
		writing.Go(func() {
			from, to := fmt.Sprint("from", w), fmt.Sprint("to", w)
			for i := range rounds {
				call := c.call(from, to)
				step, err := c.StartCall(context.Background(), ns, call)
				if err != nil || step.Outcome != lastseen.Stepped {
					t.Errorf("%+v, %v", step, err)
					return
				}
				if last[w] = call.ID; i == rounds-1 {
					return
				}
				end := store.CallAct{ID: call.ID, User: from, Action: lastseen.End}
				step, err = c.StepCall(context.Background(), ns, end)
				if err != nil || step.Outcome != lastseen.Stepped {
					t.Errorf("%+v, %v", step, err)
				}
			}
		})
	}
	writing.Wait()
	stop()
	for w := range writers {
		require.Equal(t, []string{last[w]}, c.idsOf(fmt.Sprint("from", w)))
	}
	require.Equal(t, []string{ns}, existing(t, c))
	require.False(t, removeEmpty(t, c, ns))
}

// testCallNamespaces: every namespace with calls is listed, in pages.
func testCallNamespaces(t *testing.T, c *calling) {
	list := func(after string, limit int) []string {
		names, err := c.CallNamespaces(t.Context(), after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(names), limit)
		require.True(t, slices.IsSorted(names))
		return names
	}
	require.Empty(t, list("", 10))
	want := []string{}
	for i := range 25 {
		other := newCalling(t, c.Store)
		other.namespace = fmt.Sprintf("ns%02d", i)
		want = append(want, other.namespace)
		call := other.ring("alice", "bob")
		if i%2 == 0 {
			other.act(call.ID, "alice", lastseen.End)
		}
	}
	walked, after := []string{}, ""
	for page := list(after, 4); len(page) > 0; page = list(after, 4) {
		require.Greater(t, page[0], after)
		walked, after = append(walked, page...), page[len(page)-1]
	}
	require.Equal(t, want, walked)
	require.Equal(t, want, list("", 1000))
	require.Equal(t, want[24:], list("ns23", 1000))
	require.NoError(t, c.DeleteNamespace(t.Context(), "ns03"))
	require.NotContains(t, list("ns02", 1), "ns02")
}

// callCalls is every method of calls.
func callCalls(s store.Store) map[string]func(context.Context) error {
	call := store.NewCall{ID: "a", From: "alice", To: "bob", Ring: time.Hour, Quiet: time.Hour}
	act := store.CallAct{ID: "a", User: "alice", Action: lastseen.End}
	heard, in := []store.CallHeard{{User: "alice"}}, []store.InCall{{User: "alice", Until: base}}
	users := []string{"alice"}
	return map[string]func(context.Context) error{
		"StartCall":          func(ctx context.Context) error { return errorOf(s.StartCall(ctx, ns, call)) },
		"StepCall":           func(ctx context.Context) error { return errorOf(s.StepCall(ctx, ns, act)) },
		"HearCalls":          func(ctx context.Context) error { return errorOf(s.HearCalls(ctx, ns, heard)) },
		"ReadCall":           func(ctx context.Context) error { return errorOf(s.ReadCall(ctx, ns, "a")) },
		"ReadCalls":          func(ctx context.Context) error { return errorOf(s.ReadCalls(ctx, ns, users)) },
		"ExpireCalls":        func(ctx context.Context) error { return errorOf(s.ExpireCalls(ctx, ns)) },
		"UnconfirmedInCalls": func(ctx context.Context) error { return errorOf(s.UnconfirmedInCalls(ctx, ns, 0)) },
		"SetInCalls":         func(ctx context.Context) error { return s.SetInCalls(ctx, ns, in) },
		"ConfirmInCalls":     func(ctx context.Context) error { return errorOf(s.ConfirmInCalls(ctx, ns, in)) },
	}
}

// namesOfCalls is CallNamespaces, which never returns ErrNoCalls.
func namesOfCalls(s store.Store) func(context.Context) error {
	return func(ctx context.Context) error { return errorOf(s.CallNamespaces(ctx, "", 5)) }
}

func testCallsCancelled(t *testing.T, c *calling) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	all := callCalls(c.Store)
	all["CallNamespaces"] = namesOfCalls(c.Store)
	for name, call := range all {
		require.ErrorIs(t, call(ctx), context.Canceled, name)
	}
	require.Empty(t, existing(t, c), "nothing happened")
	c.unknown("a")
}

func testCallsClosed(t *testing.T, c *calling) {
	c.ring("alice", "bob")
	require.NoError(t, c.Close())
	all := callCalls(c.Store)
	all["CallNamespaces"] = namesOfCalls(c.Store)
	for name, call := range all {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
}

// testNoCalls: a namespace that cannot have calls says so, and everything else works.
func testNoCalls(t *testing.T, s store.Store) {
	for range 2 {
		for name, call := range callCalls(s) {
			require.ErrorIs(t, call(context.Background()), store.ErrNoCalls, name)
		}
		require.Equal(t, here(base), ping(t, s, "bob", base))
	}
	require.NoError(t, namesOfCalls(s)(context.Background()))
	forget(t, s, "bob")
	require.Empty(t, remaining(t, s))
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	require.Empty(t, namespaces(t, s, 10))
}
