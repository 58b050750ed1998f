package memstore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestMachineClockWrongForAMoment: no user turns grey or is deleted, and nothing is recorded ahead.
func TestMachineClockWrongForAMoment(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const hours, years = 1000 * time.Hour, 30 * 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{hours, -hours, years, -years} {
		m := &kit.Machine{}
		s := open(t, optionsOf(m))
		ping(t, s, "alice", base)
		m.Passed.Add(time.Minute)
		m.Wrong.Set(wrong)
		for range 6 {
			now := kit.Now(t, s)
			require.Equal(t, base.Add(m.Passed.Get()), now)
			states, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: "bob", At: now.Add(1000 * time.Hour)}})
			require.NoError(t, err)
			require.Equal(t, []lastseen.State{{At: now}}, states, "recorded at the time of the store's clock")
			result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: 30 * 24 * time.Hour, Now: now, All: true})
			require.NoError(t, err)
			require.Zero(t, result)
			m.Passed.Add(100 * time.Millisecond)
		}
		m.Wrong.Set(0)
		m.Passed.Add(time.Hour)
		now := kit.Now(t, s)
		require.Equal(t, base.Add(m.Passed.Get()), now)
		result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: 30 * 24 * time.Hour, Now: now, All: true})
		require.NoError(t, err)
		require.Zero(t, result)
		require.Zero(t, s.ClockStats().Steps)
	}
}

// TestTrimKeepsTheEdge: a user last seen exactly the age ago stays.
func TestTrimKeepsTheEdge(t *testing.T) {
	ctx, m := context.Background(), &kit.Machine{}
	m.Passed.Add(time.Hour)
	s := open(t, optionsOf(m))
	ping(t, s, "edge", base)
	ping(t, s, "beyond", base-1)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: base.Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 1}, result)
	require.Equal(t, []lastseen.State{{At: base}, {}}, kit.Lookup(t, s, "edge", "beyond"))
	for drift, moved := range map[time.Duration]bool{
		store.MaxClockDrift: false, -store.MaxClockDrift: false,
		store.MaxClockDrift + time.Millisecond: true, -store.MaxClockDrift - time.Millisecond: true,
	} {
		_, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: base.Add(time.Hour + drift)})
		require.Equal(t, moved, err != nil, "%s: %v", drift, err)
	}
}
