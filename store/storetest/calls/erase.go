package calls

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testCallForget: nothing is left of the calls of a user who is forgotten, and the other parties are free.
func testCallForget(t *testing.T, c *Calling) {
	kit.Ping(t, c, "alice", kit.Now(t, c))
	kept := c.Call("alice", "bob")
	kept.Key, kept.Digest = "key", "digest"
	c.Begin(kept)
	c.Act(kept.ID, "alice", lastseen.End)
	to := c.Ring("bob", "alice")
	c.Act(to.ID, "alice", lastseen.Reject)
	other := c.Ring("bob", "carol")
	c.Act(other.ID, "carol", lastseen.Reject)
	call := c.active("alice", "bob")
	kit.Forget(t, c, "alice")
	for _, id := range []string{kept.ID, to.ID, call.ID} {
		c.Unknown(id)
		_, err := c.StepCall(t.Context(), kit.Namespace, store.CallAct{ID: id, User: "bob", Action: lastseen.End})
		require.ErrorIs(t, err, store.ErrCallNotFound)
	}
	require.Equal(t, lastseen.Rejected, c.Read(other.ID).State)
	require.Equal(t, []string{"", ""}, c.idsOf("alice", "bob"))
	require.Equal(t, store.ExpiredCalls{Kept: 1, Next: store.MaxCallGap / 2}, c.Expire())
	require.Empty(t, availability.Details(t, c, "alice", "bob"))
	c.Begin(kept) // the key and the ID are free
	c.Act(kept.ID, "bob", lastseen.Accept)
	kit.Forget(t, c, "nobody", "carol")
	require.Equal(t, lastseen.Active, c.Read(kept.ID).State)
	c.Unknown(other.ID)

	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	kit.Forget(t, c, "alice") // who has no state
	require.Empty(t, c.inCall("alice", "bob"))
	kit.Ping(t, c, "alice", kit.Now(t, c))
	require.Empty(t, c.inCall("alice", "bob"))
}

func testCallDelete(t *testing.T, c *Calling) {
	other := NewCalling(t, c.Store)
	other.namespace = kit.Namespace + "-"
	there := other.active("alice", "bob")
	for range 2 {
		call := c.Call("alice", "bob")
		call.Key, call.Digest = "key", "digest"
		call.ID = "a"
		c.Accepted(call)
		c.Act(c.Ring("carol", "dave").ID, "carol", lastseen.End)
		require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
		require.NoError(t, c.DeleteNamespace(t.Context(), kit.Namespace))
		require.Equal(t, []string{other.namespace}, kit.Existing(t, c))
		c.Unknown("a")
		require.Equal(t, []string{"", "", ""}, c.idsOf("alice", "bob", "carol"))
		require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, c.Expire())
		kit.Ping(t, c, "alice", kit.Now(t, c))
		require.Empty(t, availability.Details(t, c, "alice", "bob"))
	}
	require.Equal(t, there, other.Read(there.ID))
	require.Equal(t, []string{"alice", "bob"}, other.inCall("alice", "bob"))
}

// testCallRemoveEmpty: a namespace is not empty while a call continues in it.
func testCallRemoveEmpty(t *testing.T, c *Calling) {
	_, err := c.StepCall(t.Context(), kit.Namespace, store.CallAct{ID: "a", User: "alice", Action: lastseen.End})
	require.ErrorIs(t, err, store.ErrCallNotFound)
	c.KeepAlive("alice")
	c.Expire()
	refused := c.Call("alice", "bob")
	refused.CalleeUnavailable = true
	c.fail(store.ErrCalleeUnavailable, refused)
	require.Empty(t, kit.Existing(t, c), "only a call that rings creates a namespace")
	call := c.Ring("alice", "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, c, 10))
	require.False(t, kit.RemoveEmpty(t, c, kit.Namespace))
	kit.Ping(t, c, "alice", kit.Base)
	c.Act(call.ID, "bob", lastseen.Accept)
	require.False(t, kit.RemoveEmpty(t, c, kit.Namespace))
	require.Equal(t, []string{call.ID}, c.idsOf("alice"))
	c.Act(call.ID, "bob", lastseen.End)
	require.False(t, kit.RemoveEmpty(t, c, kit.Namespace), "a user has a state")
	kit.Forget(t, c, "alice")
	require.True(t, kit.RemoveEmpty(t, c, kit.Namespace))
	call = c.Ring("carol", "dave")
	c.Act(call.ID, "carol", lastseen.End)
	require.True(t, kit.RemoveEmpty(t, c, kit.Namespace), "a call that has ended keeps no namespace")
	require.Empty(t, kit.Existing(t, c))
	c.Ring("carol", "dave")
	require.Equal(t, []string{kit.Namespace}, kit.Existing(t, c), "it exists again")
}

func testCallRemoveEmptyWriters(t *testing.T, c *Calling) {
	call := func(w, i int) store.NewCall {
		n := c.Call(fmt.Sprint("from", w), fmt.Sprint("to", w))
		n.ID = fmt.Sprint("call", w, "-", i)
		return n
	}
	stepped := func(step store.CallStep, err error) error {
		if err == nil && step.Outcome != lastseen.Stepped {
			return fmt.Errorf("%+v", step)
		}
		return err
	}
	kit.RemoveWhile(t, c.Store, func(w, i int) error {
		return stepped(c.StartCall(context.Background(), kit.Namespace, call(w, i)))
	}, func(w, i int) error {
		n := call(w, i)
		end := store.CallAct{ID: n.ID, User: n.From, Action: lastseen.End}
		return stepped(c.StepCall(context.Background(), kit.Namespace, end))
	})
	require.Equal(t, []string{"call3-29"}, c.idsOf("from3"))
}

// testCallNamespaces: every namespace with calls is listed, in pages.
func testCallNamespaces(t *testing.T, c *Calling) {
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
		other := NewCalling(t, c.Store)
		other.namespace = fmt.Sprintf("ns%02d", i)
		want = append(want, other.namespace)
		call := other.Ring("alice", "bob")
		if i%2 == 0 {
			other.Act(call.ID, "alice", lastseen.End)
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
