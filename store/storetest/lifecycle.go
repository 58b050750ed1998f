package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// calls is every method that takes a context.
func calls(s store.Store) map[string]func(context.Context) error {
	sighting := []store.Sighting{{User: "alice", At: base}}
	return map[string]func(context.Context) error{
		"Ping":   func(ctx context.Context) error { _, err := s.Ping(ctx, ns, sighting); return err },
		"Leave":  func(ctx context.Context) error { _, err := s.Leave(ctx, ns, sighting); return err },
		"Lookup": func(ctx context.Context) error { _, err := s.Lookup(ctx, ns, []string{"alice"}); return err },
		"Count":  func(ctx context.Context) error { _, err := s.Count(ctx, ns, everyone()); return err },
		"Newest": func(ctx context.Context) error { _, err := s.Newest(ctx, ns); return err },
		"Forget": func(ctx context.Context) error { return s.Forget(ctx, ns, "alice") },
		"Trim": func(ctx context.Context) error {
			_, err := s.Trim(ctx, ns, store.TrimQuery{Age: time.Hour})
			return err
		},
		"RemoveEmpty":     func(ctx context.Context) error { _, err := s.RemoveEmpty(ctx, "unused"); return err },
		"Namespaces":      func(ctx context.Context) error { _, err := s.Namespaces(ctx, "", 5); return err },
		"DeleteNamespace": func(ctx context.Context) error { return s.DeleteNamespace(ctx, ns) },
		"Register":        func(ctx context.Context) error { return s.Register(ctx, []string{"alice"}) },
		"Lease":           func(ctx context.Context) error { _, err := s.Lease(ctx, "work", time.Hour); return err },
		"Ready":           s.Ready,
		"List": func(ctx context.Context) error {
			_, err := s.List(ctx, ns, store.ListQuery{Ranges: everyone(), Limit: 5})
			return err
		},
	}
}

func testCancelledContext(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ping(t, s, "bob", base)
	for name, call := range calls(s) {
		require.ErrorIs(t, call(ctx), context.Canceled, name)
	}
	require.Equal(t, here(base), lookup(t, s, "bob")[0], "nothing happened")
	require.Zero(t, lookup(t, s, "alice")[0], "nothing happened")
}

func testNow(t *testing.T, s store.Store) {
	ctx := context.Background()
	last, err := s.Now(ctx)
	require.NoError(t, err)
	require.Positive(t, last)
	for range 1000 {
		now, err := s.Now(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, now, last, "time runs backwards")
		last = now
	}
}

func testReady(t *testing.T, s store.Store) {
	require.NoError(t, s.Ready(context.Background()))
}

func testClose(t *testing.T, s store.Store) {
	ping(t, s, "alice", base)
	require.NoError(t, s.Close())
	for name, call := range calls(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
	_, err := s.Now(context.Background())
	require.ErrorIs(t, err, store.ErrClosed)
	require.NoError(t, s.Close(), "closing again does nothing")
}

func testLease(t *testing.T, s store.Store) {
	for range 2 { // taken, and prolonged
		for _, name := range []string{"sweep", "other"} {
			granted, err := s.Lease(context.Background(), name, time.Hour)
			require.NoError(t, err)
			require.True(t, granted)
		}
	}
}
