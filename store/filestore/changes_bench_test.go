package filestore

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// BenchmarkFeed pings a store of few users, where a ping costs least, without and with a feed, and sweeps it.
func BenchmarkFeed(b *testing.B) {
	ctx := context.Background()
	s := open(b, Options{Path: newPath(b), Sync: DefaultSync})
	record := func() { require.NoError(b, s.RecordChanges(ctx, "chat", minutes)) }
	write := func(write func(context.Context, string, []store.Sighting) ([]lastseen.State, error)) {
		user := benchUser(rand.IntN(store.MaxSweep))
		_, err := write(ctx, "chat", []store.Sighting{{User: user, At: lastseen.InstantOf(time.Now())}})
		if err != nil {
			b.Fatal(err)
		}
	}
	pings := func(b *testing.B) {
		for b.Loop() {
			write(s.Ping)
		}
	}
	b.Run("ping/off", pings)
	record()
	b.Run("ping/on", pings)
	b.Run("change/on", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			if n%2 == 0 {
				write(s.Leave)
			} else {
				write(s.Ping)
			}
		}
	})
	require.NoError(b, s.DeleteNamespace(ctx, "chat"))
	b.Run("sweep of 1000", func(b *testing.B) {
		for n := lastseen.Instant(0); b.Loop(); n++ {
			b.StopTimer()
			record()
			begun := base + n
			batch := make([]store.Sighting, store.MaxSweep)
			for i := range batch {
				batch[i] = store.Sighting{User: benchUser(i), At: begun.Add(-minutes.Green) + 1}
			}
			s.mu.Lock()
			s.index.feeds.byName["chat"].watermark = begun
			s.mu.Unlock()
			_, err := s.Ping(ctx, "chat", batch)
			require.NoError(b, err)
			w := &store.ChangesSweep{Namespace: "chat", Thresholds: minutes, Now: begun + 1}
			b.StartTimer()
			s.SweepChanges(ctx, []*store.ChangesSweep{w})
			require.Equal(b, store.MaxSweep, w.Decays)
		}
	})
}
