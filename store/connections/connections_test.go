package connections

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// seconds returns the time by the store's clock so many seconds after the start of a test.
func seconds(s float64) lastseen.Instant { return base.Add(time.Duration(s * float64(time.Second))) }

// only returns the only sighting that was written since the last call.
func (w *world) only() written {
	w.t.Helper()
	writes := w.store.take()
	require.Len(w.t, writes, 1)
	return writes[0]
}

func (w *world) requireNothing() {
	w.t.Helper()
	require.Empty(w.t, w.store.take())
}

// TestIDsOfRecords: each connection has a record of its own, whose ID leads back to that of the device.
func TestIDsOfRecords(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	for _, device := range []string{
		"", "t", "tab", "a.b", "~", "tab~abcdefgh", strings.Repeat("x", lastseen.MaxDeviceLen), strings.Repeat("é", 32),
	} {
		for range 2 {
			o := w.opening("alice")
			o.Device = device
			c, err := w.Open(t.Context(), o)
			require.NoError(t, err)
			id := w.only().ID
			require.False(t, seen[id])
			seen[id] = true
			require.Equal(t, c.Device(), DeviceOf(id))
			require.NoError(t, lastseen.CheckDevice(c.Device()))
			if device != "" {
				require.Equal(t, device, c.Device())
			}
		}
	}
	for _, id := range []string{
		"", "~", "tab", "~abcdefgh", "tab~abcdefg", "tab~abcdefg0", "tab~ABCDEFGH", "tab.abcdefgh",
	} {
		require.Equal(t, id, DeviceOf(id), "an ID without a suffix")
	}
}

// TestEvidence: what is heard is recorded at its own time, at most once in 3/4 of the ping interval.
func TestEvidence(t *testing.T) {
	w, c := newConnection(t)
	w.hear(22*time.Second+250*time.Millisecond, c)
	w.requireNothing()
	w.pass(time.Second)
	got := w.only()
	require.Equal(t, ping, got.call, "a heartbeat is a plain ping")
	require.Equal(t, seconds(22.25), got.At, "at the time when it was heard")
	require.Equal(t, lastseen.State{At: seconds(22.25)}, w.store.state("alice"))
	w.pass(time.Minute)
	w.requireNothing() // nothing was heard
	c.Heard()
	w.pass(time.Second)
	require.NotZero(t, w.only(), "what is heard late is recorded in the next round")
}

// TestOpenEvidenceIsSpread: connections that were opened together do not stay together.
func TestEvidenceIsSpread(t *testing.T) {
	draws := []float64{0, 0.5, 0.99}
	w := newWorld(t, func(o *Options) {
		o.Random = func() float64 { draw := draws[0]; draws = draws[1:]; return draw }
	})
	open := []*Connection{w.open("a"), w.open("b"), w.open("c")}
	w.store.take()
	first := map[string]time.Duration{}
	for range 4 * 30 {
		w.pass(tickEvery)
		for _, c := range open {
			c.Heard()
		}
		for _, got := range w.store.take() {
			first[got.User] = got.when - start
		}
		if len(first) == len(open) {
			break
		}
	}
	require.InDelta(t, 22.5, first["a"].Seconds(), 1)
	require.InDelta(t, 17, first["b"].Seconds(), 1)
	require.InDelta(t, 11.5, first["c"].Seconds(), 1)
}

// TestRecordIsRenewed: while the client is heard, its record always counts, also when the answer to a ping is lost.
func TestRecordIsRenewed(t *testing.T) {
	for name, period := range map[string]time.Duration{
		"often": 3 * time.Second, "at least": 25 * time.Second, "one lost": 50 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newConnection(t)
			var records, pings int
			last, window := seconds(0), w.store.settings.window()
			for begun := w.monotonic(); w.monotonic() < begun+time.Hour; {
				if (w.monotonic()-begun)%period == 0 {
					c.Heard()
				}
				w.pass(tickEvery)
				for _, got := range w.store.take() {
					if got.call == ping {
						pings++
						continue
					}
					records++
					last = got.At
					require.Equal(t, c.record, got.ID)
					require.Equal(t, got.At == base, got.Meta != "", "what is stored stays")
				}
				require.GreaterOrEqual(t, last, w.store.present().Add(-window))
			}
			require.InDelta(t, map[string]float64{"often": 3, "at least": 2, "one lost": 1}[name],
				float64(pings)/float64(records), 0.1)
		})
	}
}

// TestShorterPingInterval: a reload applies to connections that are open, at most a minute later.
func TestShorterPingInterval(t *testing.T) {
	for name, before := range map[string]time.Duration{
		"first evidence": time.Minute, "later evidence": 46 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.store.settings.PingInterval = time.Hour
			c := w.open("alice")
			w.hear(before, c)
			w.pass(2 * time.Second)
			w.store.take()
			w.store.settings.PingInterval = 20 * time.Second
			c.Heard()
			w.pass(longestSleep)
			require.Equal(t, base.Add(before+2*time.Second), w.only().At)
		})
	}
}

func TestActivity(t *testing.T) {
	w, c := newConnection(t)
	w.hear(7*time.Second, c)
	c.SetIdle(true)
	c.SetIdle(true)
	w.pass(time.Second)
	got := w.only()
	require.Equal(t, c.record, got.ID)
	require.Equal(t, seconds(7), got.At)
	require.Equal(t, seconds(7), got.Idle)
	for range 8 { // at most once in 5 s
		c.SetIdle(false)
		c.SetIdle(true)
		w.pass(500 * time.Millisecond)
	}
	w.requireNothing()
	c.SetIdle(false)
	w.pass(2 * time.Second)
	require.Zero(t, w.only().Idle)
	c.Heard()
	c.SetIdle(true)
	w.pass(6 * time.Second)
	require.NotZero(t, w.only().Idle, "as soon as it may be written")
}

// TestIdleSinceStays: it does not move with each record, unless the store's clock is set.
func TestIdleSinceStays(t *testing.T) {
	w, c := newConnection(t)
	w.hear(10*time.Second, c)
	c.SetIdle(true)
	w.stay(2*time.Minute, c)
	w.store.step(300 * time.Millisecond)
	w.stay(2*time.Minute, c)
	for _, got := range w.store.take() {
		if got.ID != "" {
			require.Equal(t, seconds(10), got.Idle)
		}
	}
	w.store.step(-time.Hour)
	w.stay(2*time.Minute, c)
	want := seconds(10).Add(300*time.Millisecond - time.Hour)
	require.True(t, slices.ContainsFunc(w.store.take(), func(got written) bool { return got.Idle == want }))
}

// TestLeave is a goodbye at this moment, and the end of evidence.
func TestLeave(t *testing.T) {
	w, c := newConnection(t)
	w.hear(10*time.Second, c)
	state, err := c.Leave(t.Context())
	require.NoError(t, err)
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, state)
	require.Equal(t, 1, w.left)
	got := w.only()
	require.True(t, got.Gone)
	require.Equal(t, c.record, got.ID)
	w.stay(2*time.Minute, c)
	w.requireNothing()
	c.End(Left)
	c.End(Gone)
	w.pass(time.Minute)
	w.requireNothing()
	require.Equal(t, Stats{Opened: 1, Goodbyes: 1}, w.Stats())
	_, err = c.Leave(t.Context())
	require.ErrorIs(t, err, ErrEnded)
}

// TestLeaveFails: the connection continues; if the client leaves nevertheless, its goodbye follows.
func TestLeaveFails(t *testing.T) {
	w, c := newConnection(t)
	w.hear(10*time.Second, c)
	w.store.fail(store.ErrUnavailable)
	_, err := c.Leave(t.Context())
	require.ErrorIs(t, err, store.ErrUnavailable)
	w.store.fail(nil)
	w.pass(15 * time.Second)
	require.Equal(t, lastseen.State{At: seconds(10)}, w.store.state("alice"), "evidence continues")
	w.store.fail(store.ErrUnavailable)
	c.Heard()
	_, err = c.Leave(t.Context())
	require.Error(t, err)
	c.End(Left)
	w.pass(10 * time.Second)
	w.store.fail(nil)
	w.pass(2 * time.Second)
	require.Equal(t, lastseen.State{At: seconds(25), Left: true}, w.store.state("alice"))
	require.EqualValues(t, 1, w.Stats().Goodbyes)
}

// TestHeardWithin: a user, or one device, was heard on connections that are open.
func TestHeardWithin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.open("alice")
	o := w.opening("alice")
	o.Device = "phone"
	phone, err := w.Open(t.Context(), o)
	require.NoError(t, err)
	w.open("bob")
	heard := func(want bool, device string, within time.Duration) {
		t.Helper()
		require.Equal(t, want, w.HeardWithin(ns, "alice", device, within), "%s %s", device, within)
	}
	heard(true, "tab", 0)
	w.store.pass(10 * time.Second)
	phone.Heard()
	w.store.pass(5 * time.Second)
	heard(true, "", 5*time.Second)
	heard(false, "", 5*time.Second-1)
	heard(true, "phone", 5*time.Second)
	heard(false, "tab", 15*time.Second-1)
	heard(true, "tab", 15*time.Second)
	heard(false, "desk", time.Hour)
	require.False(t, w.HeardWithin("other", "alice", "", time.Hour))
	require.False(t, w.HeardWithin(ns, "carol", "", time.Hour))

	phone.End(Gone)
	heard(false, "phone", time.Hour)
	heard(true, "", time.Hour)
	_, err = tab.Leave(t.Context())
	require.NoError(t, err)
	tab.Heard() // the answer to the close frame
	heard(false, "", time.Hour)

	w.store.during = func(callKind) { heard(false, "", time.Hour) }
	w.open("alice") // not before the store has its first ping
	heard(true, "", 0)
}
