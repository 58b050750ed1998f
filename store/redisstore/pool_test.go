package redisstore

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestConnections: a call opens one, which is idle afterwards.
func TestConnections(t *testing.T) {
	s, err := Open(Options{
		URL: redistest.Start(t), Timeout: time.Minute, DialTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Ready(t.Context()))
	require.Eventually(t, func() bool { // the store itself makes calls, too
		total, idle := s.Connections()
		return total > 0 && idle == total
	}, time.Minute, time.Millisecond)
}

// TestClockOffset is positive when Redis' clock is ahead of this machine's.
func TestClockOffset(t *testing.T) {
	var elapsed atomic.Int64
	s, err := Open(Options{
		URL: redistest.Start(t), Timeout: time.Minute, DialTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
		Now:       func() time.Time { return time.Now().Add(-time.Hour) },
		Monotonic: func() time.Duration { return time.Duration(elapsed.Load()) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.Eventually(t, func() bool {
		elapsed.Add(int64(sampleEvery))
		s.clock.refresh(t.Context())
		return s.ClockOffset() != 0
	}, time.Minute, time.Millisecond)
	require.InDelta(t, time.Hour, s.ClockOffset(), float64(time.Minute))
}
