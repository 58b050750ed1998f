package connections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestGone: a connection that breaks is a goodbye at the time last heard, after the grace.
func TestGone(t *testing.T) {
	w := newWorld(t)
	c := w.open("alice")
	w.only()
	w.pass(10 * time.Second)
	c.Heard()
	w.pass(time.Second)
	c.End(Gone)
	require.Equal(t, 1, w.Stats().Waiting)
	w.pass(5*time.Second - tickEvery)
	w.requireNothing()
	w.pass(tickEvery)
	got := w.only()
	require.True(t, got.Gone)
	require.Equal(t, seconds(10), got.At)
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, w.store.state("alice"))
	require.Equal(t, Stats{Opened: 1, Goodbyes: 1}, w.Stats())
	require.Equal(t, 1, w.left)
}

// TestReload: a page that is loaded again within the grace stays present.
func TestReload(t *testing.T) {
	w := newWorld(t)
	c := w.open("alice")
	w.pass(10 * time.Second)
	c.Heard()
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
		w := newWorld(t)
		c := w.open("alice")
		w.only()
		w.pass(10 * time.Second)
		c.Heard()
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
			w := newWorld(t)
			c := w.open("alice")
			w.pass(25 * time.Second)
			c.Heard()
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
		w := newWorld(t)
		c := w.open("alice")
		w.pass(10 * time.Second)
		c.Heard()
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
