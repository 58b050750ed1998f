package filestore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// machine is a machine whose clock a test sets, while the store's goroutines read it.
type machine struct {
	passed duration // since base, truly
	wrong  duration
}

type duration struct{ atomic.Int64 }

func (d *duration) get() time.Duration  { return time.Duration(d.Load()) }
func (d *duration) set(t time.Duration) { d.Store(int64(t)) }
func (d *duration) add(t time.Duration) { d.Add(int64(t)) }

func (m *machine) options(t *testing.T) Options {
	return Options{
		Path: newPath(t), Sync: time.Hour,
		Now:       func() time.Time { return time.UnixMilli(int64(base)).Add(m.passed.get() + m.wrong.get()) },
		Monotonic: func() time.Duration { return m.passed.get() },
	}
}

// TestMachineClockWrongForAMoment: no user turns grey or is deleted, and nothing is recorded ahead.
func TestMachineClockWrongForAMoment(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const hours, years = 1000 * time.Hour, 30 * 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{hours, -hours, years, -years} {
		m := &machine{}
		s := open(t, m.options(t))
		ping(t, s, "alice", base)
		m.passed.add(time.Minute)
		m.wrong.set(wrong)
		for range 6 {
			now, err := s.Now(ctx)
			require.NoError(t, err)
			require.Equal(t, base.Add(m.passed.get()), now)
			states, err := s.Ping(ctx, "chat", []store.Sighting{{User: "bob", At: now.Add(1000 * time.Hour)}})
			require.NoError(t, err)
			require.Equal(t, []lastseen.State{{At: now}}, states, "recorded at the time of the store's clock")
			result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: 30 * 24 * time.Hour, Now: now, All: true})
			require.NoError(t, err)
			require.Zero(t, result)
			m.passed.add(100 * time.Millisecond)
		}
		m.wrong.set(0)
		m.passed.add(time.Hour)
		now, err := s.Now(ctx)
		require.NoError(t, err)
		require.Equal(t, base.Add(m.passed.get()), now)
		result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: 30 * 24 * time.Hour, Now: now, All: true})
		require.NoError(t, err)
		require.Zero(t, result)
		require.Zero(t, s.ClockStats().Steps)
	}
}

// TestMachineClockSet: a clock that stays different is followed.
func TestMachineClockSet(t *testing.T) {
	m := &machine{}
	m.wrong.set(1000 * time.Hour)
	s := open(t, m.options(t))
	for _, wrong := range []time.Duration{-time.Hour, 0} {
		m.wrong.set(wrong)
		for range 2 {
			m.passed.add(time.Minute)
			_, err := s.Now(context.Background())
			require.NoError(t, err)
		}
		now, err := s.Now(context.Background())
		require.NoError(t, err)
		require.Equal(t, base.Add(m.passed.get()+wrong), now)
	}
	require.EqualValues(t, 2, s.ClockStats().Steps)
}

// TestTrimKeepsTheEdge: a user last seen exactly the age ago stays.
func TestTrimKeepsTheEdge(t *testing.T) {
	ctx, m := context.Background(), &machine{}
	m.passed.add(time.Hour)
	s := open(t, m.options(t))
	ping(t, s, "edge", base)
	ping(t, s, "beyond", base-1)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: base.Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 1}, result)
	require.Contains(t, truthOf(t, s)["chat"], "edge")
	for drift, moved := range map[time.Duration]bool{
		store.MaxClockDrift: false, -store.MaxClockDrift: false,
		store.MaxClockDrift + time.Millisecond: true, -store.MaxClockDrift - time.Millisecond: true,
	} {
		_, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: base.Add(time.Hour + drift)})
		require.Equal(t, moved, err != nil, "%s: %v", drift, err)
	}
}

// TestRestartWithAWrongClock: opening the file deletes no user, whatever the machine's clock shows.
func TestRestartWithAWrongClock(t *testing.T) {
	t.Parallel()
	m := &machine{}
	o := m.options(t)
	s := open(t, o)
	ping(t, s, "alice", base)
	ping(t, s, "bob", base.Add(store.MaxAhead))
	held := truthOf(t, s)
	require.NoError(t, s.Close())
	for _, wrong := range []time.Duration{20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour, 0} {
		m.wrong.set(wrong)
		s := open(t, o)
		require.Equal(t, held, truthOf(t, s))
		require.NoError(t, compactNow(s))
		require.NoError(t, s.Close())
	}
	require.Equal(t, held, truthOf(t, open(t, o)))
}
