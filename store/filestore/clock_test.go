package filestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestRestartWithAWrongClock: opening the file deletes no user, whatever the machine's clock shows.
func TestRestartWithAWrongClock(t *testing.T) {
	t.Parallel()
	m := &kit.Machine{}
	o := optionsOf(t, m)
	s := open(t, o)
	ping(t, s, "alice", base)
	ping(t, s, "bob", base.Add(store.MaxAhead))
	held := truthOf(t, s)
	require.NoError(t, s.Close())
	for _, wrong := range []time.Duration{20 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour, 0} {
		m.Wrong.Set(wrong)
		s := open(t, o)
		require.Equal(t, held, truthOf(t, s))
		require.NoError(t, compactNow(s))
		require.NoError(t, s.Close())
	}
	require.Equal(t, held, truthOf(t, open(t, o)))
}

func optionsOf(t *testing.T, m *kit.Machine) Options {
	return Options{Path: newPath(t), Sync: time.Hour, Now: m.Wall, Monotonic: m.Monotonic}
}
