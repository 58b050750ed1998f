package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
	"github.com/lastseen/lastseen/store/storetest/servers"
)

func TestMain(m *testing.M) {
	walks := 100
	if testenv.Race { // which takes ten times as long, and finds nothing in more of the same
		walks = 25
	}
	testenv.LimitWalks(walks)
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, staged := range testenv.Variants(false, true) {
		t.Run(fmt.Sprint("staged=", staged), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) store.Store { return opened(t, Options{}, staged) })
		})
	}
}

func TestGaps(t *testing.T) {
	presence.Gaps(t, func(gap func(string, time.Duration)) store.Store { return open(t, Options{Gap: gap}) })
}

func TestSignals(t *testing.T) {
	t.Parallel()
	servers.RunSignals(t, func(t testing.TB) (one, two store.Store) {
		s := open(t, Options{})
		return s, s
	})
}

func TestNamespaceLimit(t *testing.T) {
	t.Parallel()
	for _, staged := range []bool{false, true} {
		devices.NamespaceLimit(t, opened(t, Options{MaxNamespaces: 2}, staged))
	}
}

// TestLoad: what is in a snapshot makes the same tables, also if they receive it twice.
func TestLoad(t *testing.T) {
	s := newStore(Options{})
	fill(t, s)
	again := NewTables(Options{})
	require.NoError(t, again.Load(func(log Log) error {
		for range 2 {
			s.tables.Snapshot().Write(log, func() bool { return true })
		}
		return nil
	}))
	require.Equal(t, textOf(s.tables), textOf(again))
	users, bytes := s.tables.Size()
	usersAgain, bytesAgain := again.Size()
	require.Equal(t, users, usersAgain)
	require.Equal(t, bytes, bytesAgain)
}

func fill(t *testing.T, s *Store) {
	t.Helper()
	device := devices.On("alice", "phone", base)
	device.Meta = "{}"
	recordDevices(t, s, device, devices.On("alice", "web", base+1))
	ping(t, s, "bob", base+2)
	kit.Leave(t, s, "bob", base+3)
	contacts.Set(t, s, "alice", "bob", "carol")
	availability.SetIn(t, s, "chat", "alice", busy, base)
	availability.SetIn(t, s, "chat", "carol", away, base)
	availability.SetIn(t, s, "chat", "carol", invisible, base)
	require.NoError(t, s.Register(t.Context(), []string{"empty"}))
	availability.SetIn(t, s, "unlisted", "dave", invisible, base)
	now := s.tables.readClock()
	_, err := s.Trim(t.Context(), "unlisted", store.TrimQuery{Age: time.Minute, Now: now, All: true})
	require.NoError(t, err)
	require.True(t, kit.RemoveEmpty(t, s, "unlisted"))
}
