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
	sighting, everyone := []store.Sighting{{User: "alice", At: base}}, everyone()
	page, trim := store.ListQuery{Ranges: everyone, Limit: 5}, store.TrimQuery{Age: time.Hour}
	return map[string]func(context.Context) error{
		"Ping":            func(ctx context.Context) error { return errorOf(s.Ping(ctx, ns, sighting)) },
		"Leave":           func(ctx context.Context) error { return errorOf(s.Leave(ctx, ns, sighting)) },
		"Lookup":          func(ctx context.Context) error { return errorOf(s.Lookup(ctx, ns, []string{"alice"})) },
		"Count":           func(ctx context.Context) error { return errorOf(s.Count(ctx, ns, everyone)) },
		"Newest":          func(ctx context.Context) error { return errorOf(s.Newest(ctx, ns)) },
		"List":            func(ctx context.Context) error { return errorOf(s.List(ctx, ns, page)) },
		"Forget":          func(ctx context.Context) error { return s.Forget(ctx, ns, "alice") },
		"Trim":            func(ctx context.Context) error { return errorOf(s.Trim(ctx, ns, trim)) },
		"RemoveEmpty":     func(ctx context.Context) error { return errorOf(s.RemoveEmpty(ctx, "unused")) },
		"Namespaces":      func(ctx context.Context) error { return errorOf(s.Namespaces(ctx, "", 5)) },
		"DeleteNamespace": func(ctx context.Context) error { return s.DeleteNamespace(ctx, ns) },
		"Register":        func(ctx context.Context) error { return s.Register(ctx, []string{"alice"}) },
		"Lease":           func(ctx context.Context) error { return errorOf(s.Lease(ctx, "work", time.Hour)) },
		"Ready":           s.Ready,

		"CloseConnections": func(ctx context.Context) error { return s.CloseConnections(ctx, ns, "alice") },
		"Closings": func(ctx context.Context) error {
			_, _, err := s.Closings(ctx, "")
			return err
		},
	}
}

func errorOf[T any](_ T, err error) error { return err }

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
	last := now(t, s)
	require.Positive(t, last)
	for range 1000 {
		at := now(t, s)
		require.GreaterOrEqual(t, at, last, "time runs backwards")
		last = at
	}
}

func testReady(t *testing.T, s store.Store) {
	require.NoError(t, s.Ready(context.Background()))
	require.GreaterOrEqual(t, s.Load(), 0.0)
	require.LessOrEqual(t, s.Load(), 1.0)
}

func testClose(t *testing.T, s store.Store) {
	ping(t, s, "alice", base)
	require.NoError(t, s.Close())
	for name, call := range calls(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
	require.ErrorIs(t, errorOf(s.Now(context.Background())), store.ErrClosed)
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
