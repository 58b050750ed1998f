// Package servers has the conformance tests of the servers that use a store: leases, a clock, connections and signals.
package servers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests what stores promise to the servers that use them: leases, a clock, and connections that all of them
// close. Each subtest opens its own store.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Lease", testLease},
		{"Disconnects", testDisconnects},
		{"Disconnects/Again", testDisconnectsAgain},
		{"Disconnects/Positions", testDisconnectsPositions},
		{"Disconnects/UserIDs", testDisconnectsOfUserIDs},
		{"Disconnects/Concurrent", testDisconnectsConcurrent},
		{"Secret", testSecret},
		{"Now", testNow},
		{"Ready", testReady},
	})
}

func testNow(t *testing.T, s store.Store) {
	last := kit.Now(t, s)
	require.Positive(t, last)
	for range 1000 {
		at := kit.Now(t, s)
		require.GreaterOrEqual(t, at, last, "time runs backwards")
		last = at
	}
}

// testSecret: all get the same secret, also those who ask first at the same time.
func testSecret(t *testing.T, s store.Store) {
	secrets := make([][32]byte, 8)
	var asking errgroup.Group
	for k := range secrets {
		asking.Go(func() (err error) {
			secrets[k], err = s.Secret(context.Background())
			return err
		})
	}
	require.NoError(t, asking.Wait())
	require.NotZero(t, secrets[0])
	for _, secret := range secrets {
		require.Equal(t, secrets[0], secret)
	}
}

func testReady(t *testing.T, s store.Store) {
	require.NoError(t, s.Ready(context.Background()))
	require.GreaterOrEqual(t, s.Load(), 0.0)
	require.LessOrEqual(t, s.Load(), 1.0)
}

func testLease(t *testing.T, s store.Store) {
	for range 2 { // taken, and prolonged
		for _, name := range []string{"job", "other"} {
			granted, err := s.Lease(context.Background(), name, time.Hour)
			require.NoError(t, err)
			require.True(t, granted)
		}
	}
}
