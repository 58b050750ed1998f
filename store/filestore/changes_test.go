package filestore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	changestest "github.com/lastseen/lastseen/store/storetest/changes"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
)

// TestChangesWhileThingsBreak: readers miss nothing without a reset while the store restarts and its clock is set.
func TestChangesWhileThingsBreak(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]time.Duration{"delayed": time.Hour, "immediate": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changestest.RunFaulty(t, func(testing.TB) kit.Breakable { return steppable(t, sync) })
		})
	}
}

// TestScanAfterRestart: a scan that goes on after a restart misses nobody, although names are in other places.
func TestScanAfterRestart(t *testing.T) {
	path, ctx := newPath(t), context.Background()
	s := open(t, Options{Path: path})
	for _, user := range []string{"gone", "alice", "bob"} { // one after the other: then their names are in this order
		kit.Write(s.Ping).In(t, kit.Namespace, kit.Base, user)
	}
	users, next, err := s.ScanUsers(ctx, kit.Namespace, "", 1)
	require.NoError(t, err)
	require.Equal(t, []string{"gone"}, users)
	kit.Forget(t, s, "gone")
	require.NoError(t, compactNow(s))
	require.NoError(t, s.Close())
	found := presence.ScanFrom(t, open(t, Options{Path: path}), kit.Namespace, next, 1)
	require.Equal(t, map[string]bool{"alice": true, "bob": true}, found)
}

// steppable opens a store that a test restarts, and whose clock it sets.
func steppable(t *testing.T, sync time.Duration) kit.Breakable {
	m := &kit.Machine{}
	o := optionsOf(t, m)
	o.Sync = sync
	s := open(t, o)
	return kit.Breakable{
		Store: s, Talks: true,
		Restart: func() store.Store {
			require.NoError(t, s.Close())
			s = open(t, o)
			return s
		},
		Pass: m.Passed.Add,
		Step: func(d time.Duration) time.Duration {
			m.Wrong.Add(d)
			const reading = 10 * time.Second // longer than from one reading of the clock to the next
			for range 3 {
				m.Passed.Add(reading)
				kit.Now(t, s)
			}
			return 3 * reading
		},
	}
}
