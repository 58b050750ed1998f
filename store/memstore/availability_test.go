package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/availability"
)

// TestPurge: what ended is deleted once the store's clock and the caller's time are past the end, and the feed has it.
func TestPurge(t *testing.T) {
	t.Parallel()
	for _, staged := range []bool{false, true} {
		f := newFeedTest(t, staged)
		now := f.Instant()
		at := now.Add(-40 * 24 * time.Hour)
		for n := range 100 {
			state, hides := away, invisible
			state.Until, hides.Until = now+100, at.Add(24*time.Hour)
			availability.SetIn(t, f.Store, "chat", fmt.Sprint("user-", n), state, at)
			availability.SetIn(t, f.Store, "chat", fmt.Sprint("user-", n), hides, at)
		}
		table := f.tables.index.usersOf("chat").availability
		purge := func(at lastseen.Instant) {
			for range 20 {
				availability.SetIn(t, f.Store, "chat", "other", lastseen.AvailabilityState{Note: "no"}, at)
				availability.SetIn(t, f.Store, "chat", "other", busy, at)
			}
		}
		f.Passed.Add(time.Minute)
		purge(now + 99)
		require.Equal(t, 100, table.availabilities.Len()-1, "not by the caller's time")
		require.Zero(t, table.hidden.Len(), "they ended long ago")
		purge(f.Instant())
		require.Equal(t, 100, table.availabilities.Len()-1, "the feed has to have them")
		advance := func() {
			for f.advance(f.Instant()).More {
				continue
			}
		}
		advance()
		f.set(-2 * time.Hour)
		purge(now.Add(time.Minute))
		require.Equal(t, 100, table.availabilities.Len()-1, "not by the store's clock")
		f.set(0)
		advance() // the feed restarted
		purge(f.Instant())
		require.Equal(t, 1, table.availabilities.Len())
		require.Empty(t, firstUntil(table.ends, now+100, 1))
		require.Empty(t, table.details)
		require.NoError(t, f.Close())
	}
}
