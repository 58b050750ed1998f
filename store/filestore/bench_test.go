package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const benchUsers = 1_000_000

// benchUser returns one of a million IDs of 16 bytes.
func benchUser(n int) string { return fmt.Sprintf("%016x", uint64(n)*0x9E3779B97F4A7C15) }

// filled returns the path of a data file with a million users.
func filled(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "lastseen.db") // on a disk
	s, err := Open(Options{Path: path, Sync: DefaultSync, Logger: quiet()})
	require.NoError(b, err)
	batch := make([]store.Sighting, 0, 10_000)
	for n := range benchUsers {
		batch = append(batch, store.Sighting{User: benchUser(n), At: base + lastseen.Instant(rand.IntN(300_000))})
		if len(batch) == cap(batch) {
			_, err := s.Ping(context.Background(), "chat", batch)
			require.NoError(b, err)
			batch = batch[:0]
		}
	}
	require.NoError(b, s.Close())
	return path
}

// BenchmarkOpen loads a million users.
func BenchmarkOpen(b *testing.B) {
	path := filled(b)
	for b.Loop() {
		s, err := Open(Options{Path: path, Sync: DefaultSync, Logger: quiet()})
		require.NoError(b, err)
		require.NoError(b, s.Close())
	}
}

// BenchmarkOneMillionUsers asks a store of a million users.
func BenchmarkOneMillionUsers(b *testing.B) {
	ctx := context.Background()
	s, err := Open(Options{Path: filled(b), Sync: DefaultSync, Logger: quiet()})
	require.NoError(b, err)
	defer s.Close()
	b.Run("ping", func(b *testing.B) {
		at := base + 300_000
		for b.Loop() {
			at++
			_, err := s.Ping(ctx, "chat", []store.Sighting{{User: benchUser(rand.IntN(benchUsers)), At: at}})
			require.NoError(b, err)
		}
	})
	b.Run("lookup of 100", func(b *testing.B) {
		users := make([]string, 100)
		for b.Loop() {
			for i := range users {
				users[i] = benchUser(rand.IntN(benchUsers))
			}
			_, err := s.Lookup(ctx, "chat", users)
			require.NoError(b, err)
		}
	})
	b.Run("page of 50", func(b *testing.B) {
		for b.Loop() {
			_, err := s.List(ctx, "chat", store.ListQuery{
				Limit:  50,
				Ranges: []lastseen.Range{{From: base, To: base + 150_000}},
			})
			require.NoError(b, err)
		}
	})
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Count(ctx, "chat", []lastseen.Range{{From: base, To: base + 150_000}})
			require.NoError(b, err)
		}
	})
}
