package filestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
)

// TestChangesWhileThingsBreak: readers miss nothing without a reset while the store restarts and its clock is set.
func TestChangesWhileThingsBreak(t *testing.T) {
	t.Parallel()
	storetest.RunFaultyChanges(t, func(testing.TB) storetest.Breakable {
		m := &machine{}
		o := m.options(t)
		s := open(t, o)
		return storetest.Breakable{
			Store: s, Talks: true,
			Restart: func() store.Store {
				require.NoError(t, s.Close())
				s = open(t, o)
				return s
			},
			Pass: m.passed.add,
			Step: func(d time.Duration) time.Duration {
				m.wrong.add(d)
				const reading = 10 * time.Second // longer than from one reading of the clock to the next
				for range 3 {
					m.passed.add(reading)
					_, err := s.Now(t.Context())
					require.NoError(t, err)
				}
				return 3 * reading
			},
		}
	})
}
