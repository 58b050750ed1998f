package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/boltstore"
)

// TestJanitor erases whoever is past the retention, in every namespace, and nobody else.
func TestJanitor(t *testing.T) {
	const now = lastseen.Instant(1_700_000_000_000)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := boltstore.Open(boltstore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: time.Hour,
		Now: func() time.Time { return time.UnixMilli(int64(now)) },
	})
	require.NoError(t, err)
	defer s.Close()
	for n := range sweepPage + 2 { // more than are read at once
		batch := []store.Sighting{{User: "old", At: now - 3600_001}, {User: "edge", At: now - 3600_000}}
		if n == 0 {
			for i := range 2 * store.MaxTrim {
				batch = append(batch, store.Sighting{User: fmt.Sprint(i), At: 1})
			}
		}
		_, err := s.Ping(ctx, fmt.Sprintf("room-%04d", n), batch)
		require.NoError(t, err)
	}
	var paused []time.Duration
	j := &janitor{store: s, retention: time.Hour, logger: slog.New(slog.DiscardHandler), pause: func(_ context.Context, d time.Duration) {
		paused = append(paused, d)
		if d == sweepEvery {
			cancel()
		}
	}}
	j.run(ctx)
	for _, room := range []string{"room-0000", "room-0025", "room-0051"} {
		records, err := s.List(context.Background(), room, store.ListQuery{Limit: 10, Ranges: []lastseen.Range{{From: 1, To: now}}})
		require.NoError(t, err)
		require.Equal(t, []store.Record{{User: "edge", State: lastseen.State{At: now - 3600_000}}}, records, room)
	}
	require.Len(t, paused, sweepPage+2+2+1, "a pause after every call that erased, and one after the sweep")
}

// broken is a store of which one namespace cannot be trimmed, as a key of another type cannot.
type broken struct{ store.Store }

func (b broken) Trim(ctx context.Context, namespace string, cutoff lastseen.Instant) (int, error) {
	if namespace == "a" {
		return 0, store.ErrWrongType
	}
	return b.Store.Trim(ctx, namespace, cutoff)
}

// TestJanitorPassesOverABrokenNamespace: what comes after it is trimmed all the same.
func TestJanitorPassesOverABrokenNamespace(t *testing.T) {
	ctx := context.Background()
	s, err := boltstore.Open(boltstore.Options{Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: time.Hour})
	require.NoError(t, err)
	defer s.Close()
	for _, namespace := range []string{"a", "b"} {
		_, err := s.Ping(ctx, namespace, []store.Sighting{{User: "old", At: 1}})
		require.NoError(t, err)
	}
	j := &janitor{
		store: broken{s}, retention: time.Hour, logger: slog.New(slog.DiscardHandler),
		pause: func(context.Context, time.Duration) {},
	}
	require.ErrorIs(t, j.sweep(ctx), store.ErrWrongType)
	states, err := s.Lookup(ctx, "b", []string{"old"})
	require.NoError(t, err)
	require.Zero(t, states[0])
}

func TestRetentionSetting(t *testing.T) {
	s := start(t, "--retention", "1h")
	require.EqualValues(t, 3_600_000, s.get(t, "/v1/namespaces/any")["retention_ms"])
	s.post(t, "/v1/namespaces/chat/users/alice/ping", `{"at":100123}`)
	require.Nil(t, start(t, "--retention", "off").get(t, "/v1/namespaces/any")["retention_ms"])

	code, _, stderr := execute(t, "--retention", "4m")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "--retention")
}
