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

// only returns the only event that was written since the last call.
func (f *fixture) only() written {
	f.t.Helper()
	writes := f.store.take()
	require.Len(f.t, writes, 1)
	return writes[0]
}

func (f *fixture) requireNothing() {
	f.t.Helper()
	require.Empty(f.t, f.store.take())
}

// TestIDsOfRecords: each connection has its own record, whose ID leads back to that of the device.
func TestIDsOfRecords(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for _, device := range []string{
		"", "t", "tab", "a.b", "~", "tab~abcdefgh", strings.Repeat("x", lastseen.MaxDeviceLen), strings.Repeat("é", 32),
	} {
		for range 2 {
			o := f.opening("alice")
			o.Device = device
			c, err := f.Open(t.Context(), o)
			require.NoError(t, err)
			id := f.only().ID
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

// TestHeartbeats: what is received is recorded at its own time, at most once in 3/4 of the ping interval.
func TestHeartbeats(t *testing.T) {
	f, c := newConnection(t)
	f.receive(22*time.Second+250*time.Millisecond, c)
	f.requireNothing()
	f.pass(time.Second)
	got := f.only()
	require.Equal(t, ping, got.call, "a heartbeat is a plain ping")
	require.Equal(t, seconds(22.25), got.At, "at the time when it was received")
	require.Equal(t, lastseen.State{At: seconds(22.25)}, f.store.state("alice"))
	f.pass(time.Minute)
	f.requireNothing() // nothing was received
	c.Received()
	f.pass(time.Second)
	require.NotZero(t, f.only(), "what is received late is recorded in the next round")
}

// TestHeartbeatsAreSpread: connections that were opened together do not stay together.
func TestHeartbeatsAreSpread(t *testing.T) {
	draws := []float64{0, 0.5, 0.99}
	f := newFixture(t, func(o *Options) {
		o.Random = func() float64 { draw := draws[0]; draws = draws[1:]; return draw }
	})
	open := []*Connection{f.open("a"), f.open("b"), f.open("c")}
	f.store.take()
	first := map[string]time.Duration{}
	for range 4 * 30 {
		f.pass(tickEvery)
		for _, c := range open {
			c.Received()
		}
		for _, got := range f.store.take() {
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

// TestRecordIsRenewed: while the client is active, its record always counts, also when the answer to a ping is lost.
func TestRecordIsRenewed(t *testing.T) {
	for name, period := range map[string]time.Duration{
		"often": 3 * time.Second, "at least": 25 * time.Second, "one lost": 50 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			f, c := newConnection(t)
			var records, pings int
			last, window := seconds(0), f.store.settings.window()
			for begun := f.monotonic(); f.monotonic() < begun+time.Hour; {
				if (f.monotonic()-begun)%period == 0 {
					c.Received()
				}
				f.pass(tickEvery)
				for _, got := range f.store.take() {
					if got.call == ping {
						pings++
						continue
					}
					records++
					last = got.At
					require.Equal(t, c.record, got.ID)
					require.Equal(t, got.At == base, got.Meta != "", "what is stored stays")
				}
				require.GreaterOrEqual(t, last, f.store.present().Add(-window))
			}
			require.InDelta(t, map[string]float64{"often": 3, "at least": 2, "one lost": 1}[name],
				float64(pings)/float64(records), 0.1)
		})
	}
}

// TestShorterPingInterval: a reload applies to connections that are open, at most a minute later.
func TestShorterPingInterval(t *testing.T) {
	for name, before := range map[string]time.Duration{
		"first heartbeat": time.Minute, "later heartbeats": 46 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.store.settings.PingInterval = time.Hour
			c := f.open("alice")
			f.receive(before, c)
			f.pass(2 * time.Second)
			f.store.take()
			f.store.settings.PingInterval = 20 * time.Second
			c.Received()
			f.pass(longestSleep)
			require.Equal(t, base.Add(before+2*time.Second), f.only().At)
		})
	}
}

func TestActivity(t *testing.T) {
	f, c := newConnection(t)
	f.receive(7*time.Second, c)
	c.SetIdle(true)
	c.SetIdle(true)
	f.pass(time.Second)
	got := f.only()
	require.Equal(t, c.record, got.ID)
	require.Equal(t, seconds(7), got.At)
	require.Equal(t, seconds(7), got.Idle)
	for range 8 { // at most once in 5 s
		c.SetIdle(false)
		c.SetIdle(true)
		f.pass(500 * time.Millisecond)
	}
	f.requireNothing()
	c.SetIdle(false)
	f.pass(2 * time.Second)
	require.Zero(t, f.only().Idle)
	c.Received()
	c.SetIdle(true)
	f.pass(6 * time.Second)
	require.NotZero(t, f.only().Idle, "as soon as it may be written")
}

// TestIdleSinceStays: it does not move with each record, unless the store's clock is set.
func TestIdleSinceStays(t *testing.T) {
	f, c := newConnection(t)
	f.receive(10*time.Second, c)
	c.SetIdle(true)
	f.stay(2*time.Minute, c)
	f.store.step(300 * time.Millisecond)
	f.stay(2*time.Minute, c)
	for _, got := range f.store.take() {
		if got.ID != "" {
			require.Equal(t, seconds(10), got.Idle)
		}
	}
	f.store.step(-time.Hour)
	f.stay(2*time.Minute, c)
	want := seconds(10).Add(300*time.Millisecond - time.Hour)
	require.True(t, slices.ContainsFunc(f.store.take(), func(got written) bool { return got.Idle == want }))
}

// TestLeave is a leave at this moment, and the end of heartbeats.
func TestLeave(t *testing.T) {
	f, c := newConnection(t)
	f.receive(10*time.Second, c)
	state, err := c.Leave(t.Context())
	require.NoError(t, err)
	require.Equal(t, lastseen.State{At: seconds(10), Left: true}, state)
	require.Equal(t, 1, f.left)
	got := f.only()
	require.True(t, got.Gone)
	require.Equal(t, c.record, got.ID)
	f.stay(2*time.Minute, c)
	f.requireNothing()
	c.End(Left)
	c.End(Gone)
	f.pass(time.Minute)
	f.requireNothing()
	require.Equal(t, Stats{Opened: 1, Leaves: 1}, f.Stats())
	_, err = c.Leave(t.Context())
	require.ErrorIs(t, err, ErrEnded)
}

// TestLeaveFails: the connection continues; if the client leaves nevertheless, its leave follows.
func TestLeaveFails(t *testing.T) {
	f, c := newConnection(t)
	f.receive(10*time.Second, c)
	f.store.fail(store.ErrUnavailable)
	_, err := c.Leave(t.Context())
	require.ErrorIs(t, err, store.ErrUnavailable)
	f.store.fail(nil)
	f.pass(15 * time.Second)
	require.Equal(t, lastseen.State{At: seconds(10)}, f.store.state("alice"), "heartbeats continue")
	f.store.fail(store.ErrUnavailable)
	c.Received()
	_, err = c.Leave(t.Context())
	require.Error(t, err)
	c.End(Left)
	f.pass(10 * time.Second)
	f.store.fail(nil)
	f.pass(2 * time.Second)
	require.Equal(t, lastseen.State{At: seconds(25), Left: true}, f.store.state("alice"))
	require.EqualValues(t, 1, f.Stats().Leaves)
}

// TestActiveWithin: a user, or one device, was active on connections that are open.
func TestActiveWithin(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tab := f.open("alice")
	o := f.opening("alice")
	o.Device = "phone"
	phone, err := f.Open(t.Context(), o)
	require.NoError(t, err)
	f.open("bob")
	received := func(want bool, device string, within time.Duration) {
		t.Helper()
		require.Equal(t, want, f.ActiveWithin(ns, "alice", device, within), "%s %s", device, within)
	}
	received(true, "tab", 0)
	f.store.pass(10 * time.Second)
	phone.Received()
	f.store.pass(5 * time.Second)
	received(true, "", 5*time.Second)
	received(false, "", 5*time.Second-1)
	received(true, "phone", 5*time.Second)
	received(false, "tab", 15*time.Second-1)
	received(true, "tab", 15*time.Second)
	received(false, "desk", time.Hour)
	require.False(t, f.ActiveWithin("other", "alice", "", time.Hour))
	require.False(t, f.ActiveWithin(ns, "carol", "", time.Hour))

	phone.End(Gone)
	received(false, "phone", time.Hour)
	received(true, "", time.Hour)
	_, err = tab.Leave(t.Context())
	require.NoError(t, err)
	tab.Received() // the answer to the close frame
	received(false, "", time.Hour)

	f.store.during = func(callKind) { received(false, "", time.Hour) }
	f.open("alice") // not before the store has its first ping
	received(true, "", 0)
}
