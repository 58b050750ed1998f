package filestore

import (
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

func (d *duration) get() time.Duration { return time.Duration(d.Load()) }

func (d *duration) set(t time.Duration) { d.Store(int64(t)) }

func (d *duration) add(t time.Duration) { d.Add(int64(t)) }

func (m *machine) time() lastseen.Instant { return base.Add(m.passed.get() + m.wrong.get()) }

func (m *machine) options(t *testing.T) Options {
	return Options{
		Path: newPath(t), Sync: time.Hour,
		Now:       func() time.Time { return time.UnixMilli(int64(base)).Add(m.passed.get() + m.wrong.get()) },
		Monotonic: func() time.Duration { return m.passed.get() },
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
