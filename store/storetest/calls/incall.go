package calls

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// SetInCall records until when a user is in a call.
func (c *Calling) SetInCall(user string, until lastseen.Instant) {
	kit.SetInCall(c.t, c.Store, c.namespace, user, until)
}

// inCall returns those of some users who are in a call by their details.
func (c *Calling) inCall(users ...string) []string {
	found := []string{}
	at := kit.Now(c.t, c)
	for user, d := range availability.DetailsIn(c.t, c.Store, c.namespace, users...) {
		if d.InCallUntil > at {
			found = append(found, user)
		}
	}
	slices.Sort(found)
	return found
}

// Until returns until when users are in a call by their details; 0 for not.
func (c *Calling) Until(users ...string) []lastseen.Instant {
	details, ends := availability.DetailsIn(c.t, c.Store, c.namespace, users...), make([]lastseen.Instant, len(users))
	for i, user := range users {
		ends[i] = details[user].InCallUntil
	}
	return ends
}

// testInCall: both parties are in the call from when it becomes active until it ends.
func testInCall(t *testing.T, c *Calling) {
	kit.Ping(t, c, "alice", kit.Now(t, c))
	call := c.Ring("alice", "bob")
	require.Empty(t, availability.Details(t, c, "alice", "bob"))
	call = c.Act(call.ID, "bob", lastseen.Accept).Call
	for _, until := range c.Until("alice", "bob") {
		requireNear(t, call.Expires, until, 10)
	}
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob", "carol"))
	c.Act(call.ID, "bob", lastseen.End)
	require.Empty(t, availability.Details(t, c, "alice", "bob"))
}

// testInCallForgotten: who is deleted is in no call any longer, also a user who was never seen.
func testInCallForgotten(t *testing.T, c *Calling) {
	kit.Ping(t, c, "alice", kit.Now(t, c))
	for _, user := range []string{"alice", "bob"} {
		c.SetInCall(user, kit.Now(t, c).Add(time.Hour))
		kit.Forget(t, c, user)
		kit.Ping(t, c, user, kit.Now(t, c))
	}
	require.Empty(t, availability.Details(t, c, "alice", "bob"))
}

// testInCallNotShown: where calls are not shown, nobody is in a call.
func testInCallNotShown(t *testing.T, c *Calling) {
	for _, timeout := range []time.Duration{long, soon} {
		call := c.Call("alice", "bob")
		call.Shown, call.Timeout = false, timeout
		c.Accepted(call)
		require.Empty(t, availability.Details(t, c, "alice", "bob"))
		if timeout == soon {
			c.expireOne()
		} else {
			require.Empty(t, c.KeepAlive("alice", "bob"))
			c.Act(call.ID, "bob", lastseen.End)
		}
		require.Empty(t, availability.Details(t, c, "alice", "bob"))
	}
}

// testInCallLost: parties of calls that are lost are in no call, however many are lost at once.
func testInCallLost(t *testing.T, c *Calling) {
	const n = store.MaxCallBatch/2 + 10
	users := make([]string, 0, 2*n)
	for i := range n {
		call := c.Call(fmt.Sprint("from", i), fmt.Sprint("to", i))
		call.Timeout = soon
		users = append(users, call.From, call.To)
		c.Accepted(call)
	}
	steps := 0
	c.poll("all calls are lost", func() bool {
		steps += len(c.Expire().Steps)
		return steps == n
	})
	for part := range slices.Chunk(users, 500) {
		require.Empty(t, availability.Details(t, c, part...))
	}
}

// testInCallRenewed: while both parties are active, until when they are in the call moves before it passes, but not
// each time.
func testInCallRenewed(t *testing.T, c *Calling) {
	still := c.active("carol", "dave")
	call := c.Call("alice", "bob")
	call.Timeout = 4 * time.Second
	c.Accepted(call)
	first, sent := c.Until("alice", "bob", "carol", "dave"), 0
	renewed := func() bool {
		now := kit.Now(t, c)
		ends := c.Until("alice", "bob")
		require.Equal(t, ends[0], ends[1])
		require.Greater(t, ends[0], now, "it has passed")
		moved := ends[0] != first[0]
		if moved {
			require.GreaterOrEqual(t, ends[0], first[0]+900)
			first[0] = ends[0]
		}
		return moved
	}
	c.poll("the call is renewed", func() bool {
		require.Empty(t, c.KeepAlive("alice", "bob", "carol", "dave"))
		sent++
		return renewed()
	})
	require.Greater(t, sent, 1, "it is not renewed each time")
	require.Equal(t, first[2:], c.Until("carol", "dave"))
	require.Equal(t, lastseen.Active, c.Read(still.ID).State)
	c.poll("being alive renews it, too", func() bool {
		for _, user := range []string{"alice", "bob"} {
			c.step(call.ID, user, "", lastseen.Alive, "")
		}
		return renewed()
	})
}

// testInCallDetails: being in a call is one of the details, beside the others.
func testInCallDetails(t *testing.T, c *Calling) {
	start := kit.Now(t, c)
	end := start + 60*kit.Minute
	devices.Record(t, c, availability.IdleAt("alice", "a", start))
	availability.Set(t, c, "alice", availability.Busy)
	all := func() store.Details { return availability.Details(t, c, "alice")["alice"] }
	require.Equal(t, store.Details{Availability: availability.Busy, IdleSince: start - 10}, all())
	c.SetInCall("alice", end)
	require.Equal(t, store.Details{Availability: availability.Busy, IdleSince: start - 10, InCallUntil: end}, all())
	c.SetInCall("alice", end+1)
	availability.Set(t, c, "alice", availability.Until(end, availability.Away))
	require.Equal(t,
		store.Details{
			Availability: availability.Until(end, availability.Away), IdleSince: start - 10, InCallUntil: end + 1,
		},
		all())
	devices.Record(t, c, devices.On("alice", "a", start+1))
	away := availability.Until(end, availability.Away)
	require.Equal(t, store.Details{Availability: away, InCallUntil: end + 1}, all())
	availability.Set(t, c, "alice", availability.Nothing)
	require.Equal(t, store.Details{InCallUntil: end + 1}, all())
	kit.Leave(t, c, "alice", start+2)
	kit.Ping(t, c, "alice", start+3)
	require.Equal(t, store.Details{InCallUntil: end + 1}, all())
	availability.Set(t, c, "alice", availability.Until(end, availability.Busy))
	c.SetInCall("alice", 0)
	require.Equal(t, store.Details{Availability: availability.Until(end, availability.Busy)}, all())
	c.SetInCall("alice", end)
	availability.Set(t, c, "alice", availability.Nothing)
	c.SetInCall("alice", 0)
	c.SetInCall("bob", 0)
	require.Empty(t, availability.Details(t, c, "alice", "bob"), "nothing is left")
}

// testInCallNeverSeen: a user who was never seen can be in a call, and is so when seen.
func testInCallNeverSeen(t *testing.T, c *Calling) {
	end := kit.Now(t, c) + 60*kit.Minute
	c.active("alice", "bob")
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	require.Zero(t, kit.Lookup(t, c, "alice")[0])
	kit.Ping(t, c, "alice", kit.Now(t, c))
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	availability.Set(t, c, "bob", availability.Busy)
	require.Equal(t, availability.Busy, availability.Details(t, c, "bob")["bob"].Availability)
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	availability.Set(t, c, "bob", availability.Nothing)
	c.SetInCall("carol", end)
	c.SetInCall("bob", 0)
	require.Equal(t, map[string]store.Details{"carol": {InCallUntil: end}}, availability.Details(t, c, "bob", "carol"))
}

// testInCallNoNamespace: being in a call creates no namespace.
func testInCallNoNamespace(t *testing.T, c *Calling) {
	end := kit.Now(t, c) + 60*kit.Minute
	c.SetInCall("alice", end)
	c.SetInCall("bob", 0)
	require.Empty(t, kit.Existing(t, c))
	require.NoError(t, c.Register(t.Context(), []string{kit.Namespace}))
	c.SetInCall("alice", 0)
	require.Empty(t, availability.Details(t, c, "alice"))
	require.True(t, kit.RemoveEmpty(t, c, kit.Namespace))
}

func testInCallUserIDs(t *testing.T, c *Calling) {
	end := kit.Now(t, c) + 60*kit.Minute
	ids := kit.OddIDs()
	require.NoError(t, c.Register(t.Context(), []string{kit.Namespace}))
	want := map[string]store.Details{}
	for i, id := range ids {
		if i%2 == 0 {
			kit.Ping(t, c, id, kit.Base)
		}
		c.SetInCall(id, end+lastseen.Instant(i))
		want[id] = store.Details{InCallUntil: end + lastseen.Instant(i)}
	}
	require.Equal(t, want, availability.Details(t, c, ids...))
	for _, id := range ids {
		c.SetInCall(id, 0)
	}
	require.Empty(t, availability.Details(t, c, ids...))
}

// testInCallTrim: a user whose state is trimmed stays in the call.
func testInCallTrim(t *testing.T, c *Calling) {
	old := kit.Now(t, c) - 60*kit.Minute
	kit.Ping(t, c, "alice", old)
	call := c.active("alice", "bob")
	require.Equal(t, 1, kit.Trim(t, c, kit.Namespace, old.Add(30*time.Minute), true).Deleted)
	require.Equal(t, []string{call.ID}, c.idsOf("alice"))
	kit.Ping(t, c, "alice", kit.Now(t, c))
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	c.Act(call.ID, "alice", lastseen.End)
	require.Empty(t, c.inCall("alice", "bob"))
}
