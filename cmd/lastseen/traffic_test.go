package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func TestTrafficSummary(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--store", redistest.Start(t), "--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	s.Post(t, alice+"/ping", "")
	s.Post(t, alice+"/ping", "")
	s.Get(t, alice)
	require.Zero(t, s.Terminate(t), s.Log)
	require.Contains(t, s.Log.String(),
		"pings.queued=0 pings.batches=2 pings.members=2 pings.largest=1 pings.refused=0")
	require.Contains(t, s.Log.String(), "lookups.batches=1")

	s = testserver.Start(t)
	s.Post(t, alice+"/ping", "")
	require.Zero(t, s.Terminate(t), s.Log)
	require.NotContains(t, s.Log.String(), "batches", "there is no queue in front of a file")
}

// TestClockSummary: in the end the log says how often the store's clock moved.
func TestClockSummary(t *testing.T) {
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
	logTraffic(s, slog.New(slog.NewTextHandler(&log, nil)))
	require.Contains(t, log.String(), "steps=1 ignored=0")
}
