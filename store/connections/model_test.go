package connections

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// model is what has to be written for connections, each of its own user, by rules simpler than the registry's.
type model struct {
	*fixture
	conns  []*modelConn
	okFrom time.Duration // since when the store works; 0 while it does not
	fault  time.Duration // when it last began or stopped to work
	steps  bool          // the store's clock was set
}

// modelConn is a connection and what happened to it. Times are monotonic.
type modelConn struct {
	*Connection
	user     string
	received []time.Duration // the last is the newest
	ended    time.Duration   // 0 if it is open
	how      Ending
	left     time.Duration // when Leave succeeded
	asked    time.Duration // when somebody asked to close it
	closed   bool

	toldIdle            bool
	seen                time.Duration // the newest heartbeat that is stored
	lastWrite, lastFull time.Duration // of heartbeats and of the record
	leaves              int
	ats                 []lastseen.Instant // of all attempts
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		random := func() float64 { return rapid.Float64Range(0, 0.99).Draw(rt, "random") }
		f := newFixture(t, func(o *Options) { o.Random = random })
		m := &model{fixture: f, okFrom: start}
		rt.Repeat(map[string]func(*rapid.T){
			"open": m.open, "receive": m.receive, "idle": m.idleness, "end": m.end, "leave": m.leave,
			"pass": m.pass, "pass long": m.pass, "stay": m.stay, "outage": m.outage, "step": m.step, "close": m.close,
		})
		if m.okFrom == 0 {
			m.outage(rt)
		}
		m.passFor(rt, 2*time.Minute)
		m.checkEnd(rt)
	})
}

func (m *model) open(t *rapid.T) {
	if m.okFrom == 0 || len(m.conns) > 20 {
		return
	}
	user := fmt.Sprint("u", len(m.conns))
	if len(m.conns) == 0 {
		user = "alice" // whom the store's disconnects are about
	}
	o := m.opening(user)
	o.Grace = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, time.Minute}).Draw(t, "grace")
	c, err := m.Open(m.t.Context(), o)
	require.NoError(t, err)
	now := m.monotonic()
	conn := &modelConn{
		Connection: c, user: user, received: []time.Duration{now}, seen: now, lastWrite: now, lastFull: now,
	}
	m.conns = append(m.conns, conn)
	m.check(t)
}

// draw returns a connection that did not end; nil if there is none.
func (m *model) draw(t *rapid.T) *modelConn {
	var open []*modelConn
	for _, c := range m.conns {
		if c.ended == 0 {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return rapid.SampledFrom(open).Draw(t, "connection")
}

func (m *model) receive(t *rapid.T) {
	if c := m.draw(t); c != nil {
		c.Received()
		c.received = append(c.received, m.monotonic())
	}
}

func (m *model) idleness(t *rapid.T) {
	if c := m.draw(t); c != nil {
		c.SetIdle(rapid.Bool().Draw(t, "idle"))
		c.toldIdle = true
	}
}

func (m *model) end(t *rapid.T) {
	if c := m.draw(t); c != nil {
		c.ended, c.how = m.monotonic(), Ending(rapid.IntRange(0, 3).Draw(t, "how"))
		c.End(c.how)
	}
}

func (m *model) leave(t *rapid.T) {
	c := m.draw(t)
	if c == nil || c.left > 0 {
		return
	}
	state, err := c.Leave(m.t.Context())
	switch {
	case c.asked > 0 && errors.Is(err, ErrEnded): // closed by the last tick, or by an opening since
		return
	case c.closed:
		require.ErrorIs(t, err, ErrEnded)
	case m.okFrom == 0:
		require.Error(t, err)
	default:
		require.NoError(t, err)
	}
	if err == nil && !m.steps {
		require.Equal(t, lastseen.State{At: base.Add(m.monotonic() - start), Left: true}, state)
	}
	c.received = append(c.received, m.monotonic()) // its leave has this time
	m.check(t)
	if err == nil {
		c.left = m.monotonic()
	} else {
		c.received = c.received[:len(c.received)-1]
	}
}

func (m *model) pass(t *rapid.T) {
	m.passFor(t, rapid.SampledFrom([]time.Duration{tickEvery, time.Second, 7 * time.Second, time.Minute}).Draw(t, "d"))
}

// stay lets time pass with all connections active.
func (m *model) stay(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "times") {
		for _, c := range m.conns {
			if c.ended == 0 {
				c.Received()
				c.received = append(c.received, m.monotonic())
			}
		}
		m.passFor(t, time.Duration(rapid.IntRange(80, 100).Draw(t, "quarters"))*tickEvery)
	}
}

func (m *model) passFor(t *rapid.T, d time.Duration) {
	for ; d > 0; d -= tickEvery {
		m.fixture.pass(tickEvery)
		m.check(t)
		m.checkTimely(t)
	}
}

func (m *model) outage(*rapid.T) {
	m.fault = m.monotonic()
	if m.okFrom > 0 {
		m.okFrom = 0
		m.store.fail(store.ErrUnavailable)
		return
	}
	m.okFrom = m.fault
	m.store.fail(nil)
}

func (m *model) step(t *rapid.T) {
	m.steps = true
	m.store.step(rapid.SampledFrom([]time.Duration{
		300 * time.Millisecond, -300 * time.Millisecond, 4 * time.Second, -4 * time.Second, time.Hour, -time.Hour,
	}).Draw(t, "by"))
}

func (m *model) close(*rapid.T) {
	m.store.close()
	if len(m.conns) > 0 && m.conns[0].asked == 0 {
		m.conns[0].asked = m.monotonic()
	}
}

// check checks what was written since the last call.
func (m *model) check(t *rapid.T) {
	for _, got := range m.store.take() {
		i := slices.IndexFunc(m.conns, func(c *modelConn) bool { return c.user == got.User })
		require.GreaterOrEqual(t, i, 0)
		c := m.conns[i]
		require.False(t, c.closed, "a closed connection writes nothing")
		require.Zero(t, c.left, "nor does one after its leave")
		of := start + time.Duration(got.At-base)*time.Millisecond - got.offset
		known := slices.Contains(c.received, of)
		if got.Gone {
			// It may have the time of earlier heartbeats, reckoned by a clock that was set since.
			known = known || slices.Contains(c.ats, got.At)
			m.checkLeave(t, c, got)
		} else {
			require.True(t, c.ended == 0 || c.how == Silent || c.how == Ended)
			m.checkSpacing(t, c, got)
		}
		require.True(t, known, "%s at %s: not received then", got.User, got.At)
		if c.ats = append(c.ats, got.At); got.failed {
			continue
		}
		if c.seen = max(c.seen, of); got.Gone {
			continue
		}
		c.lastWrite = got.when
		if got.ID != "" {
			c.lastFull = got.when
		}
	}
}

func (m *model) checkLeave(t *rapid.T, c *modelConn, got written) {
	require.Equal(t, c.record, got.ID)
	if c.ended > 0 {
		require.True(t, c.how == Gone || c.how == Left, "no leave after silence")
		if c.how == Gone {
			require.GreaterOrEqual(t, got.when, c.ended+c.o.Grace)
		}
	}
	if !got.failed {
		c.leaves++
		require.Equal(t, 1, c.leaves)
	}
}

// checkSpacing: heartbeats are not written too often, and the record often enough. After faults and changes of activity
// it may be written more often.
func (m *model) checkSpacing(t *rapid.T, c *modelConn, got written) {
	if c.toldIdle || m.okFrom == 0 || m.fault > 0 && got.when < m.fault+2*time.Minute {
		return
	}
	gap := m.store.settings.heartbeatEvery()
	if c.lastWrite == c.opened.monotonic {
		gap /= 2
	}
	if c.ended == 0 && c.lastWrite != got.when {
		require.GreaterOrEqual(t, got.when, c.lastWrite+gap)
	}
	if got.ID == "" && c.ended == 0 {
		require.Less(t, got.when, c.lastFull+m.store.settings.recordEvery())
	}
}

// checkTimely checks that what had to be written by now was written.
func (m *model) checkTimely(t *rapid.T) {
	now := m.monotonic()
	late := func(due time.Duration) bool { return m.okFrom > 0 && now >= max(due, m.okFrom)+2*time.Second }
	for _, c := range m.conns {
		newest := c.received[len(c.received)-1]
		switch closed := m.isClosed(c); {
		case c.closed != closed:
			require.NotZero(t, c.asked)
			c.closed = true
		case c.closed || c.left > 0:
		case c.asked > 0 && c.ended == 0:
			// One that was opened just before may be missed, if the clock was set back by a little in between.
			just := m.steps && c.asked < c.opened.monotonic+5*time.Second
			require.False(t, late(c.asked) && !just, "%s: not closed", c.user)
		case c.asked > 0: // what waited may have been cancelled
		case c.ended > 0 && (c.how == Gone || c.how == Left):
			require.False(t, c.leaves == 0 && late(c.ended+c.o.Grace), "%s: no leave", c.user)
		case c.ended > 0:
			require.False(t, c.seen < newest && late(c.ended), "%s: the heartbeat before the end is missing", c.user)
		default:
			due := newest + m.store.settings.heartbeatEvery()
			require.False(t, c.seen < newest && late(due), "%s: a heartbeat is missing", c.user)
		}
	}
}

func (m *model) isClosed(c *modelConn) bool {
	m.Registry.mu.Lock()
	defer m.Registry.mu.Unlock()
	return c.Connection.closed
}

// checkEnd compares the states of users, if the clock ran evenly.
func (m *model) checkEnd(t *rapid.T) {
	stats := m.Stats()
	require.Zero(t, stats.Waiting)
	require.Zero(t, stats.Unwritten)
	open, leaves := 0, 0
	for _, c := range m.conns {
		leaves += c.leaves
		if c.ended == 0 {
			open++
		}
		if m.steps || c.asked > 0 {
			continue
		}
		at := c.received[len(c.received)-1]
		if c.left > 0 {
			at = c.left
		}
		left := c.left > 0 || c.ended > 0 && (c.how == Gone || c.how == Left)
		require.Equal(t, lastseen.State{At: base.Add(at - start), Left: left}, m.store.state(c.user))
	}
	require.Equal(t, open, stats.Open)
	require.EqualValues(t, leaves, stats.Leaves)
	require.EqualValues(t, len(m.conns), stats.Opened)
}
