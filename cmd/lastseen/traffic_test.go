package main

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestRefusalsAreLogged: once for those of a minute, with how deep the queue is and how large batches are.
func TestRefusalsAreLogged(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	refused := []int64{0, 7, 7, 9}
	tr := &traffic{logger: slog.New(slog.NewTextHandler(&log, nil))}
	tr.stats = func() coalesce.Stats {
		now := refused[0]
		refused = refused[1:]
		return coalesce.Stats{Pings: coalesce.CallStats{Queued: 65_000, Batches: 4, Members: 10, Largest: 5, Refused: now}}
	}
	tr.pause = func(_ context.Context, d time.Duration) {
		require.Equal(t, trafficEvery, d)
		if len(refused) == 1 {
			cancel()
		}
	}
	tr.run(ctx)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "level=WARN")
	require.Contains(t, lines[0], " refused=7 pings.queued=65000 pings.batches=4 pings.members=10 pings.largest=5 pings.refused=7 ")
	require.Contains(t, lines[1], " refused=2 ")
}

func TestTrafficIsSummedUp(t *testing.T) {
	s := start(t, "--store", redistest.Start(t), "--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	s.post(t, alice+"/ping", "")
	s.post(t, alice+"/ping", "")
	s.get(t, alice)
	require.Zero(t, s.terminate(t), s.log)
	require.Contains(t, s.log.String(), "pings.queued=0 pings.batches=2 pings.members=2 pings.largest=1 pings.refused=0")
	require.Contains(t, s.log.String(), "lookups.batches=1")

	s = start(t)
	s.post(t, alice+"/ping", "")
	require.Zero(t, s.terminate(t), s.log)
	require.NotContains(t, s.log.String(), "batches", "there is no queue in front of a file")
}

// TestClockIsSummedUp: in the end the log says how often the store's clock moved.
func TestClockIsSummedUp(t *testing.T) {
	var log bytes.Buffer
	var elapsed, wrong atomic.Int64
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time {
			return time.UnixMilli(1_700_000_000_000).Add(time.Duration(elapsed.Load() + wrong.Load()))
		},
		Monotonic: func() time.Duration { return time.Duration(elapsed.Load()) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	for range 3 {
		elapsed.Add(int64(time.Minute))
		_, err := s.Now(t.Context())
		require.NoError(t, err)
		wrong.Store(int64(time.Hour))
	}
	newTraffic(s, slog.New(slog.NewTextHandler(&log, nil))).sum()
	require.Contains(t, log.String(), "steps=1 ignored=0")
}
