package connections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestReload: a page that is loaded again within the grace stays present.
func TestReload(t *testing.T) {
	w, c := newConnection(t)
	w.hear(10*time.Second, c)
	c.End(Gone)
	w.pass(time.Second)
	w.open("alice")
	w.pass(time.Minute)
	require.Equal(t, lastseen.State{At: seconds(11)}, w.store.state("alice"))
	require.Zero(t, w.left, "this goodbye does not make the user leave")
	require.EqualValues(t, 1, w.Stats().Goodbyes)
}

// TestNoGoodbye: silence and ends by the server write no goodbye, but what was heard before.
func TestNoGoodbye(t *testing.T) {
	for _, how := range []Ending{Silent, Ended} {
		w, c := newConnection(t)
		w.hear(10*time.Second, c)
		c.End(how)
		w.pass(time.Minute)
		got := w.only()
		require.Equal(t, ping, got.call)
		require.Equal(t, seconds(10), got.At)
		require.Equal(t, how == Silent, w.Stats().Lost == 1)
		require.Zero(t, w.Stats().Open)

		w.open("bob").End(how)
		w.only()
		w.pass(time.Minute)
		w.requireNothing()
	}
}

// TestGoodbyeIsNotBeforeEvidence: when the store's clock was slowed down, a goodbye is still not older than the ping
// that was recorded for the same moment.
func TestGoodbyeIsNotBeforeEvidence(t *testing.T) {
	for name, end := range map[string]func(*Connection){
		"gone":  func(c *Connection) { c.End(Gone) },
		"leave": func(c *Connection) { _, _ = c.Leave(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newConnection(t)
			w.hear(25*time.Second, c)
			w.pass(2 * time.Second)
			w.store.step(-4 * time.Second)
			end(c)
			w.pass(10 * time.Second)
			require.Equal(t, lastseen.State{At: seconds(25), Left: true}, w.store.state("alice"))
		})
	}
}

// TestClockIsSet: a clock that is wrong by years neither stops evidence nor moves it into the future.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 30 * 365 * 24 * time.Hour, -60 * 365 * 24 * time.Hour} {
		w, c := newConnection(t)
		w.hear(10*time.Second, c)
		w.store.step(by)
		w.store.take()
		w.pass(15 * time.Second)
		want := max(lastseen.MinInstant, seconds(10).Add(by))
		require.Equal(t, want, w.only().At)
		w.stay(time.Minute, c)
		w.store.step(-by)
		w.store.take()
		w.stay(time.Minute, c)
		for _, got := range w.store.take() {
			require.LessOrEqual(t, got.At, base.Add(got.when-start))
			require.GreaterOrEqual(t, got.At, base.Add(got.when-start-30*time.Second))
		}
		c.Heard()
		heard := w.store.present()
		c.End(Gone)
		w.pass(10 * time.Second)
		require.Equal(t, heard, w.only().At, "nor the goodbye")
	}
}

// requireRenewed checks that alice is present by a complete record, which was written within a time.
func (w *world) requireRenewed(c *Connection, within time.Duration) {
	w.t.Helper()
	w.store.take()
	heard := w.monotonic()
	c.Heard()
	w.pass(within)
	writes := w.store.take()
	require.Len(w.t, writes, 1)
	require.Equal(w.t, recordDevices, writes[0].call)
	require.Equal(w.t, `{"v":1}`, writes[0].Meta)
	require.LessOrEqual(w.t, writes[0].when, heard+within)
	require.False(w.t, w.store.state("alice").Left)
	require.Len(w.t, w.store.devices[ns+" alice"].Records, 1)
}

// TestInvisible: while the user is invisible, nothing changes. Afterwards the record is written by what is heard next,
// since becoming invisible dropped it.
func TestInvisible(t *testing.T) {
	w, c := newConnection(t)
	w.stay(2*time.Minute, c)
	w.store.setInvisible(true)
	left := w.store.state("alice")
	w.store.take()
	w.stay(5*time.Minute, c)
	require.Equal(t, left, w.store.state("alice"))
	require.Less(t, len(w.store.writes), 5*60/20, "not more often than what is visible")
	w.store.setInvisible(false)
	w.requireRenewed(c, renewEvery+roundEvery)
	w.stay(time.Minute, c)
	require.Equal(t, ping, w.store.take()[0].call, "as always")
}

// TestInvisibleForAMoment: the record is renewed also if nothing was written in between, once the transport says so.
func TestInvisibleForAMoment(t *testing.T) {
	w, c := newConnection(t)
	w.stay(time.Minute, c)
	w.pass(2 * time.Second)
	w.store.setInvisible(true)
	w.pass(time.Second)
	w.store.setInvisible(false)
	w.pass(time.Second)
	c.Renew()
	w.requireRenewed(c, roundEvery)
}

// TestOpenWhileInvisible: a connection that begins in the hidden time is recorded after it.
func TestOpenWhileInvisible(t *testing.T) {
	for name, seen := range map[string]bool{"seen before": true, "never seen": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.store.setInvisible(true)
			if !seen { // the state was trimmed
				w.store.states[ns+" alice"] = lastseen.State{}
			}
			c := w.open("alice")
			w.pass(10 * time.Second)
			w.store.setInvisible(false)
			w.requireRenewed(c, roundEvery)
		})
	}
}

// TestInvisibleGoodbye: the goodbye of a connection that ends in the hidden time changes nothing.
func TestInvisibleGoodbye(t *testing.T) {
	w, c := newConnection(t)
	w.store.setInvisible(true)
	left := w.store.state("alice")
	w.hear(30*time.Second, c)
	c.End(Gone)
	w.pass(time.Minute)
	require.Equal(t, left, w.store.state("alice"))
}

// TestPeers: they are known from the moment on at which the connection is being opened.
func TestPeers(t *testing.T) {
	w := newWorld(t)
	require.Empty(t, w.Peers(ns, "alice"))
	o := w.opening("alice")
	o.Peer = 1
	w.store.during = func(kind callKind) {
		if kind == recordDevices {
			require.Equal(t, []any{1}, w.Peers(ns, "alice"))
		}
	}
	c, err := w.Open(t.Context(), o)
	require.NoError(t, err)
	w.store.during = func(callKind) {}
	o.Peer = 2
	_, err = w.Open(t.Context(), o)
	require.NoError(t, err)
	require.ElementsMatch(t, []any{1, 2}, w.Peers(ns, "alice"))
	require.Empty(t, w.Peers("other", "alice"))
	require.Empty(t, w.Peers(ns, "bob"))
	c.End(Gone)
	require.Equal(t, []any{2}, w.Peers(ns, "alice"))
}
