package calls

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestMissed: a call that nobody accepts ends on time, and both parties learn it, wherever they are connected.
func TestMissed(t *testing.T) {
	for caller := range 2 {
		for starter := range 2 {
			f := newFixture(t, 2)
			f.pass(time.Minute)
			alice, bob := f.servers[caller], f.servers[1-caller]
			connect(alice, bob)
			id := f.rings(f.servers[starter], "alice", "bob")
			f.pass(ring - tick)
			f.requireState(id, lastseen.Ringing)
			f.pass(tick)
			f.requireState(id, lastseen.Missed)
			want := []lastseen.CallState{lastseen.Ringing, lastseen.Missed}
			require.Equal(t, want, alice.states("alice"))
			require.Equal(t, want, bob.states("bob"))
			require.Equal(t, int64(1), f.servers[starter].Stats().Reached[lastseen.Ringing])
			require.Equal(t, int64(1), f.servers[0].Stats().Reached[lastseen.Missed]+
				f.servers[1].Stats().Reached[lastseen.Missed])
			require.Empty(t, f.log.String())
		}
	}
}

// TestOneServerEndsCalls: of several servers, the one with the lease does the work.
func TestOneServerEndsCalls(t *testing.T) {
	f := newFixture(t, 3)
	for i := range 20 {
		f.rings(f.servers[i%3], fmt.Sprint("from-", i), fmt.Sprint("to-", i))
		f.pass(time.Second)
	}
	f.pass(time.Minute)
	var watching []*server
	for _, s := range f.servers {
		stats := s.Stats()
		if stats.Watching {
			watching = append(watching, s)
			require.Equal(t, int64(20), stats.Reached[lastseen.Missed])
			require.Len(t, s.late, 20)
			for _, lag := range s.late {
				require.LessOrEqual(t, lag, tick)
			}
			continue
		}
		require.Zero(t, s.counts["ExpireCalls"])
	}
	require.Len(t, watching, 1)
}

// TestTakeover: when the server with the lease dies, another one continues within eight seconds, and at once when it
// stops, since it gives up the lease.
func TestTakeover(t *testing.T) {
	for _, stops := range []bool{false, true} {
		f, first, second := newPair(t)
		f.pass(time.Second)
		id := f.rings(first, "alice", "bob")
		f.pass(ring - 3*time.Second)
		if first.handle != f.holder {
			first, second = second, first
		}
		second.connect("bob", "")
		if stops {
			first.watch.running.Wait()
			first.watch.release(t.Context())
			require.False(t, first.Stats().Watching)
		}
		f.kill(first)
		f.pass(3*time.Second - tick)
		f.requireState(id, lastseen.Ringing)
		f.pass(tick)
		if !stops {
			f.pass(leaseTime + leaseRenew - 3*time.Second)
		}
		f.requireState(id, lastseen.Missed)
		require.Equal(t, []lastseen.CallState{lastseen.Missed}, second.states("bob"))
		require.Same(t, second.handle, f.holder)
	}
}

// TestLeaseLost: a server that was stopped for a while and then finds another one with the lease stops its work.
func TestLeaseLost(t *testing.T) {
	f, first, second := newPair(t)
	f.rings(first, "alice", "bob")
	f.pass(time.Second)
	if first.handle != f.holder {
		first, second = second, first
	}
	require.Equal(t, 1, first.Stats().Ongoing)
	f.servers = []*server{second}
	f.pass(10 * time.Second)
	f.servers = []*server{first, second}
	f.pass(leaseRenew)
	require.Equal(t, Stats{Watching: false, Reached: first.Stats().Reached}, first.Stats())
	require.True(t, second.Stats().Watching)
	before := first.counts["ExpireCalls"]
	f.pass(time.Minute)
	require.Equal(t, before, first.counts["ExpireCalls"])
}

// TestManyAtOnce: calls that are due at the same time end at once, also if they are more than one call of the store
// takes. While they ring they cost few visits: signals together cost one for a pause.
func TestManyAtOnce(t *testing.T) {
	const n = 2*store.MaxCallBatch + 10
	f, s, bob := newPair(t)
	f.pass(time.Second)
	for i := range n {
		bob.connect(fmt.Sprint("to-", i), "")
		f.rings(s, fmt.Sprint("from-", i), fmt.Sprint("to-", i))
	}
	f.pass(ring - time.Second)
	require.Equal(t, n, s.Stats().Ongoing+bob.Stats().Ongoing)
	require.Less(t, s.counts["ExpireCalls"]+bob.counts["ExpireCalls"], 15)
	f.pass(time.Second)
	require.Zero(t, s.Stats().Ongoing+bob.Stats().Ongoing)
	for i := range n {
		f.requireState(fmt.Sprint("call-", i+1), lastseen.Missed)
		require.Equal(t, []lastseen.CallState{lastseen.Ringing, lastseen.Missed}, bob.states(fmt.Sprint("to-", i)))
	}
}

// TestShorterRing: a call that is due before those that are known is ended on time, whichever server starts it.
func TestShorterRing(t *testing.T) {
	f := newFixture(t, 2)
	f.rings(f.servers[0], "alice", "bob")
	f.pass(time.Second)
	for i, s := range f.servers {
		c := f.call(fmt.Sprint("from-", i), fmt.Sprint("to-", i))
		c.Ring = time.Second
		f.starts(s, c)
		f.pass(c.Ring - tick)
		f.requireState(c.ID, lastseen.Ringing)
		f.pass(tick)
		f.requireState(c.ID, lastseen.Missed)
	}
}

// TestWithoutSignals: everything still works, some seconds later.
func TestWithoutSignals(t *testing.T) {
	f := newFixture(t, 2)
	f.rings(f.servers[0], "carol", "dave") // the lease is taken
	f.pass(time.Minute)
	starter := f.servers[0]
	if starter.handle == f.holder {
		starter = f.servers[1]
	}
	for _, s := range f.servers {
		s.failing("Signal", store.ErrNoSignals)
	}
	id := f.rings(starter, "alice", "bob")
	f.pass(ring + visitEvery)
	f.requireState(id, lastseen.Missed)
	require.Zero(t, starter.Stats().Unknown)
	require.Empty(t, f.log.String())
}

// TestIdle: what servers do without calls does not grow with their number, and is little.
func TestIdle(t *testing.T) {
	f := newFixture(t, 2)
	f.pass(time.Hour)
	for _, s := range f.servers {
		require.Equal(t, map[string]int{"CallNamespaces": int(time.Hour/listEvery) + 1}, s.counts)
	}
}

// TestManyNamespaces: namespaces without calls are visited at a bounded rate, and forgotten with the last call.
func TestManyNamespaces(t *testing.T) {
	const n = 5000
	f, s := newSingle(t)
	for i := range n {
		s.listed = append(s.listed, fmt.Sprintf("ns-%04d", i))
	}
	f.pass(time.Minute)
	require.Len(t, s.watch.namespaces, n)
	before := s.counts["ExpireCalls"]
	f.pass(time.Minute)
	require.InEpsilon(t, 60*time.Second/idleSpread, s.counts["ExpireCalls"]-before, 0.1)

	id := f.rings(s, "alice", "bob")
	f.pass(ring)
	f.requireState(id, lastseen.Missed)
	s.listed = []string{}
	f.pass(time.Minute)
	require.Empty(t, s.watch.namespaces)
	require.Zero(t, s.watch.due.rest(0, 0))
	require.False(t, s.Stats().Watching)
	require.Empty(t, f.log.String())
}

// TestPace: calls that begin all the time cost a bounded number of visits.
func TestPace(t *testing.T) {
	f, s := newSingle(t)
	f.pass(time.Second)
	visits := s.counts["ExpireCalls"]
	for i := range 10 * time.Second / tick {
		f.rings(s, fmt.Sprint("from-", i), fmt.Sprint("to-", i))
		f.pass(tick)
	}
	require.LessOrEqual(t, s.counts["ExpireCalls"]-visits, int(10*time.Second/visitPause)+1)
}

// TestBeginsDuringAVisit: a call that begins while its namespace is visited is ended on time.
func TestBeginsDuringAVisit(t *testing.T) {
	f, s := newSingle(t)
	f.rings(s, "alice", "bob")
	f.pass(time.Second)
	short := f.call("carol", "dave")
	short.Ring = time.Second
	s.lose = func(method string) error {
		if method == "ExpireCalls" {
			s.lose = func(string) error { return nil }
			f.starts(s, short)
		}
		return nil
	}
	s.watch.expect(ns)
	f.pass(short.Ring + visitPause)
	f.requireState(short.ID, lastseen.Missed)
}

// TestLeaseEnds: a server that cannot renew the lease does not act as if it had it for longer than that lasts.
func TestLeaseEnds(t *testing.T) {
	f, s := newSingle(t)
	f.rings(s, "alice", "bob")
	f.pass(time.Second)
	require.True(t, s.Stats().Watching)
	s.failing("Lease", store.ErrUnavailable)
	f.pass(leaseTime - leaseRenew - time.Second)
	require.True(t, s.Stats().Watching, "others cannot have it yet")
	f.pass(2 * leaseRenew)
	require.False(t, s.Stats().Watching)
	require.Zero(t, s.Stats().Ongoing)
}

// TestOutageOfTheWatch: while the store is away, calls neither end nor are forgotten, and it is logged once.
func TestOutageOfTheWatch(t *testing.T) {
	f := newFixture(t, 2)
	id := f.rings(f.servers[0], "alice", "bob")
	f.pass(10 * time.Second)
	f.away()
	f.pass(10 * time.Minute)
	f.back()
	f.pass(5 * time.Second)
	f.requireState(id, lastseen.Ringing)
	f.pass(leaseTime + ring - 20*time.Second)
	f.requireState(id, lastseen.Missed)
	require.LessOrEqual(t, countLines(f.log.String()), 2, f.log.String())
}

// TestNoCalls: namespaces that cannot have calls are not asked more often than others.
func TestNoCalls(t *testing.T) {
	f, s := newSingle(t)
	s.failing("ExpireCalls", store.ErrNoCalls)
	s.listed = []string{ns}
	f.pass(time.Minute)
	require.InDelta(t, time.Minute/visitEvery, s.counts["ExpireCalls"], 2)
	require.Empty(t, f.log.String())
}
