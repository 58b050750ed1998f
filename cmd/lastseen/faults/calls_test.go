//go:build faults

package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestCallsInSentinelFailover kills the primary in mid-call. The replica that takes over lacks the last steps, which
// were acknowledged. Every call is decided, both parties are sent how, and their users can be called again.
func TestCallsInSentinelFailover(t *testing.T) {
	t.Parallel()
	watched := redistest.StartSentinel(t)
	one, two := startServer(t, watched.URL(), callsArgs()...), startServer(t, watched.URL(), callsArgs()...)
	pairOf := func(name string) *ringing { return callers(t, name, one, two) }

	over := pairOf("over").ring(t).accept(t).end(t)
	active, ends := pairOf("active").ring(t).accept(t), pairOf("ends").ring(t).accept(t)
	rings, cancels, rejects := pairOf("rings").ring(t), pairOf("cancels").ring(t), pairOf("rejects").ring(t)
	accepts, talks, begins := pairOf("accepts").ring(t), pairOf("talks").ring(t), pairOf("begins")
	active.awaitInCall(t, two, true)
	ends.awaitInCall(t, two, true)

	cutReplica(t, watched)
	ends.end(t)
	cancels.act(t, "end", cancels.caller, "cancelled")
	rejects.act(t, "reject", rejects.callee, "rejected")
	accepts.accept(t)
	talks.accept(t).say(t, "one").say(t, "two").say(t, "three")
	begins.ring(t)
	watched.Nodes[0].Stop(t)
	await(t, "the replica to be the primary", func() bool { return watched.Primary() == watched.Nodes[1] })

	require.Empty(t, begins.stored(t, two), "its begin was lost")
	require.Equal(t, "ended", over.stored(t, two))
	require.Equal(t, "active", active.stored(t, two))
	active.end(t)
	rings.accept(t).end(t)
	active.requireSent(t, "ringing", "active", "ended")
	rings.requireSent(t, "ringing", "active", "ended")
	begins.await(t, "ended")
	begins.requireSent(t, "ringing", "ended")
	accepts.await(t, "missed")
	accepts.requireSent(t, "ringing", "active", "missed")
	talks.await(t, "missed")
	all := []*ringing{over, active, ends, rings, cancels, rejects, accepts, talks, begins}
	for _, r := range all {
		r.again(t, two)
	}
}

// cutReplica has the replica get nothing any longer of what the primary acknowledges.
func cutReplica(t testing.TB, watched *redistest.Sentinel) {
	t.Helper()
	primary, replica := watched.Nodes[0].Client(t), watched.Nodes[1].Client(t)
	require.Equal(t, int64(1), primary.Wait(t.Context(), 1, awaitFor).Val())
	require.NoError(t, replica.ConfigSet(t.Context(), "masterauth", "wrong").Err())
	require.NoError(t, primary.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	await(t, "the end of replication", func() bool {
		killed, err := primary.ClientKillByFilter(t.Context(), "TYPE", "replica").Result()
		return err == nil && killed == 0
	})
}

// TestCallsWhenServerKilled kills the server that ends calls, to which the callers are connected. The other one ends
// what rings and what nobody takes part in any longer. What goes on elsewhere is not affected.
func TestCallsWhenServerKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	killed, other := startServer(t, redis.URL(), callsArgs()...), startServer(t, redis.URL(), callsArgs()...)
	first := callers(t, "first", killed, other).ring(t)
	if endsCalls(t, killed, other) == other {
		killed, other = other, killed
	}
	first.act(t, "end", first.caller, "cancelled")
	elsewhere := callers(t, "elsewhere", other, other).ring(t).accept(t)
	rings, returns := callers(t, "rings", killed, other).ring(t), callers(t, "returns", killed, other).ring(t)
	active := callers(t, "active", killed, other).ring(t).accept(t)
	comes := callers(t, "comes", killed, other).ring(t).accept(t)
	active.awaitInCall(t, other, true)
	killed.kill(t)
	for _, r := range []*ringing{rings, returns, active, comes} {
		r.sockets[0].awaitEnd(t)
		r.sockets[0] = nil
	}
	returns.reconnect(t, other)
	comes.reconnect(t, other)

	rings.await(t, "missed")
	returns.await(t, "missed")
	active.await(t, "lost")
	for state, calls := range map[string]float64{"missed": 2, "lost": 1} { // not only for those who read them
		await(t, "the other server to end calls", func() bool {
			return other.metric(t, "lastseen_calls_total", "state", state) == calls
		})
	}
	for _, r := range []*ringing{rings, active} {
		r.reconnect(t, other)
		r.again(t, other)
	}
	returns.again(t, other)
	for _, r := range []*ringing{elsewhere, comes} { // longer than green
		require.Equal(t, "active", r.stored(t, other))
		r.awaitInCall(t, other, true)
		r.end(t)
		r.again(t, other)
	}
}

// endsCalls returns the one of the servers that ends calls whose time has passed.
func endsCalls(t testing.TB, servers ...*server) (found *server) {
	t.Helper()
	await(t, "a server to end calls", func() bool {
		for _, s := range servers {
			if s.metric(t, "lastseen_calls") > 0 {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// TestCallsWhenRedisIsEmpty restarts Redis in mid-call, without any data. The calls are gone: all parties are sent that
// theirs has ended, and can be called again.
func TestCallsWhenRedisIsEmpty(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t, "--appendonly", "no")
	one, two := startServer(t, redis.URL(), callsArgs()...), startServer(t, redis.URL(), callsArgs()...)
	rings, active := callers(t, "rings", one, two).ring(t), callers(t, "active", one, two).ring(t).accept(t)
	over := callers(t, "over", one, two).ring(t).accept(t).end(t)
	active.awaitInCall(t, two, true)
	redis.Stop(t)
	redis.Start(t)
	for _, r := range []*ringing{rings, active} {
		r.await(t, "ended")
	}
	await(t, "servers to count no calls", func() bool {
		return one.metric(t, "lastseen_calls")+two.metric(t, "lastseen_calls") == 0
	})
	for _, r := range []*ringing{rings, active, over} {
		require.Empty(t, r.stored(t, two))
		r.again(t, two)
	}
}
