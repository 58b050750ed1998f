package redisstore

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestCheckInfoLogsOnce: until they change or come back; each server has its own.
func TestCheckInfoLogsOnce(t *testing.T) {
	var log strings.Builder
	l := &onceLogger{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	lines := func(server, version, policy string) int {
		before := strings.Count(log.String(), "\n")
		_ = l.checkInfo(server, map[string]string{"redis_version": version, "maxmemory_policy": policy})
		return strings.Count(log.String(), "\n") - before
	}
	require.Equal(t, 0, lines("a", "7.0.15", "noeviction"))
	require.Equal(t, 1, lines("a", "7.0.15", "allkeys-lru"))
	require.Equal(t, 0, lines("a", "7.0.15", "allkeys-lru"))
	require.Equal(t, 1, lines("b", "7.0.15", "allkeys-lru"))
	require.Equal(t, 1, lines("a", "7.0.15", "allkeys-lfu"))
	require.Equal(t, 0, lines("a", "7.0.15", "volatile-lru"))
	require.Equal(t, 1, lines("a", "7.0.15", "allkeys-lfu"))
	require.Equal(t, 1, lines("a", "6.0.16", "allkeys-lfu"))
	require.Equal(t, 0, lines("a", "6.0.16", "allkeys-lfu"))
	require.Equal(t, 0, lines("a", "6.2.0", "noeviction"))
	require.Equal(t, 1, lines("a", "5", "noeviction"), "a version has a minor number")
}

func TestOlderThan(t *testing.T) {
	for version, want := range map[string][2]bool{
		"6.2.0": {}, "6.2": {}, "7.0.15": {}, "8.0.0": {}, "10.0.0-rc1": {}, "255.255.255": {},
		"6.0.16": {true, false}, "5.0.14": {true, false}, "2.8.24": {true, false},
		"": {false, true}, "unstable": {false, true}, "7": {false, true},
	} {
		older, unknown := olderThan(version, oldest)
		require.Equal(t, want, [2]bool{older, unknown}, version)
	}
}

// TestAgreementExpires: every sample also forgets which namespaces were checked, so that one which was
// deleted and created again by a server with other settings is not read as empty for long.
func TestAgreementExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		sampled, expired := 0, 0
		go repeat(ctx, sampleEvery, func(context.Context) { sampled++ }, func() { expired++ })
		time.Sleep(3*sampleEvery + time.Second)
		cancel()
		synctest.Wait()
		require.Equal(t, 3, expired)
		require.Equal(t, 4, sampled, "at once, too")
	})
}

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
