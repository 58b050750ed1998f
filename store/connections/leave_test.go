package connections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestReload: a page that is loaded again within the grace stays present.
func TestReload(t *testing.T) {
	f, c := newConnection(t)
	f.receive(10*time.Second, c)
	c.End(Gone)
	f.pass(time.Second)
	f.open("alice")
	f.pass(time.Minute)
	require.Equal(t, lastseen.State{At: seconds(11)}, f.store.state("alice"))
	require.Zero(t, f.left, "this leave does not make the user leave")
	require.EqualValues(t, 1, f.Stats().Leaves)
}

// TestNoLeave: silence and ends by the server write no leave, but what was received before.
func TestNoLeave(t *testing.T) {
	for _, how := range []Ending{Silent, Ended} {
		f, c := newConnection(t)
		f.receive(10*time.Second, c)
		c.End(how)
		f.pass(time.Minute)
		got := f.only()
		require.Equal(t, ping, got.call)
		require.Equal(t, seconds(10), got.At)
		require.Equal(t, how == Silent, f.Stats().Lost == 1)
		require.Zero(t, f.Stats().Open)

		f.open("bob").End(how)
		f.only()
		f.pass(time.Minute)
		f.requireNothing()
	}
}

// TestLeaveIsNotBeforeHeartbeat: when the store's clock was slowed down, a leave is still not older than the ping
// that was recorded for the same moment.
func TestLeaveIsNotBeforeHeartbeat(t *testing.T) {
	for name, end := range map[string]func(*Connection){
		"gone":  func(c *Connection) { c.End(Gone) },
		"leave": func(c *Connection) { _, _ = c.Leave(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			f, c := newConnection(t)
			f.receive(25*time.Second, c)
			f.pass(2 * time.Second)
			f.store.step(-4 * time.Second)
			end(c)
			f.pass(10 * time.Second)
			require.Equal(t, lastseen.State{At: seconds(25), Left: true}, f.store.state("alice"))
		})
	}
}

// TestClockIsSet: a clock that is wrong by years neither stops heartbeats nor moves them into the future.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 30 * 365 * 24 * time.Hour, -60 * 365 * 24 * time.Hour} {
		f, c := newConnection(t)
		f.receive(10*time.Second, c)
		f.store.step(by)
		f.store.take()
		f.pass(15 * time.Second)
		want := max(lastseen.MinInstant, seconds(10).Add(by))
		require.Equal(t, want, f.only().At)
		f.stay(time.Minute, c)
		f.store.step(-by)
		f.store.take()
		f.stay(time.Minute, c)
		for _, got := range f.store.take() {
			require.LessOrEqual(t, got.At, base.Add(got.when-start))
			require.GreaterOrEqual(t, got.At, base.Add(got.when-start-30*time.Second))
		}
		c.Received()
		received := f.store.present()
		c.End(Gone)
		f.pass(10 * time.Second)
		require.Equal(t, received, f.only().At, "nor the leave")
	}
}

// requireRenewed checks that alice is present by a complete record, which was written within a time.
func (f *fixture) requireRenewed(c *Connection, within time.Duration) {
	f.t.Helper()
	f.store.take()
	received := f.monotonic()
	c.Received()
	f.pass(within)
	writes := f.store.take()
	require.Len(f.t, writes, 1)
	require.Equal(f.t, recordDevices, writes[0].call)
	require.Equal(f.t, `{"v":1}`, writes[0].Meta)
	require.LessOrEqual(f.t, writes[0].when, received+within)
	require.False(f.t, f.store.state("alice").Left)
	require.Len(f.t, f.store.devices[ns+" alice"].Records, 1)
}

// TestInvisible: while the user is invisible, nothing changes. Afterwards the record is written by what is received
// next, since becoming invisible dropped it.
func TestInvisible(t *testing.T) {
	f, c := newConnection(t)
	f.stay(2*time.Minute, c)
	f.store.setInvisible(true)
	left := f.store.state("alice")
	f.store.take()
	f.stay(5*time.Minute, c)
	require.Equal(t, left, f.store.state("alice"))
	require.Less(t, len(f.store.writes), 5*60/20, "not more often than what is visible")
	f.store.setInvisible(false)
	f.requireRenewed(c, renewEvery+roundEvery)
	f.stay(time.Minute, c)
	require.Equal(t, ping, f.store.take()[0].call, "as always")
}

// TestInvisibleForAMoment: the record is renewed also if nothing was written in between, once the transport says so.
func TestInvisibleForAMoment(t *testing.T) {
	f, c := newConnection(t)
	f.stay(time.Minute, c)
	f.pass(2 * time.Second)
	f.store.setInvisible(true)
	f.pass(time.Second)
	f.store.setInvisible(false)
	f.pass(time.Second)
	c.Renew()
	f.requireRenewed(c, roundEvery)
}

// TestOpenWhileInvisible: a connection that begins in the hidden time is recorded after it.
func TestOpenWhileInvisible(t *testing.T) {
	for name, seen := range map[string]bool{"seen before": true, "never seen": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.store.setInvisible(true)
			if !seen { // the state was trimmed
				f.store.states[ns+" alice"] = lastseen.State{}
			}
			c := f.open("alice")
			f.pass(10 * time.Second)
			f.store.setInvisible(false)
			f.requireRenewed(c, roundEvery)
		})
	}
}

// TestInvisibleLeave: the leave of a connection that ends in the hidden time changes nothing.
func TestInvisibleLeave(t *testing.T) {
	f, c := newConnection(t)
	f.store.setInvisible(true)
	left := f.store.state("alice")
	f.receive(30*time.Second, c)
	c.End(Gone)
	f.pass(time.Minute)
	require.Equal(t, left, f.store.state("alice"))
}

// TestPeers: they are known from the moment on at which the connection is being opened.
func TestPeers(t *testing.T) {
	f := newFixture(t)
	require.Empty(t, f.Peers(ns, "alice"))
	o := f.opening("alice")
	o.Peer = 1
	f.store.during = func(kind callKind) {
		if kind == recordDevices {
			require.Equal(t, []any{1}, f.Peers(ns, "alice"))
		}
	}
	c, err := f.Open(t.Context(), o)
	require.NoError(t, err)
	f.store.during = func(callKind) {}
	o.Peer = 2
	_, err = f.Open(t.Context(), o)
	require.NoError(t, err)
	require.ElementsMatch(t, []any{1, 2}, f.Peers(ns, "alice"))
	require.Empty(t, f.Peers("other", "alice"))
	require.Empty(t, f.Peers(ns, "bob"))
	c.End(Gone)
	require.Equal(t, []any{2}, f.Peers(ns, "alice"))
}
