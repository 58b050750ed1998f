package redisclient

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestCheckInfoLogsOnce: until they change or come back; each server has its own.
func TestCheckInfoLogsOnce(t *testing.T) {
	var log strings.Builder
	l := &OnceLogger{Logger: slog.New(slog.NewTextHandler(&log, nil))}
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

func TestVersions(t *testing.T) {
	for version, want := range map[string][2]bool{
		"6.2.0": {}, "6.2": {}, "7.0.15": {}, "8.0.0": {}, "10.0.0-rc1": {}, "255.255.255": {},
		"6.0.16": {true, false}, "5.0.14": {true, false}, "2.8.24": {true, false},
		"": {false, true}, "unstable": {false, true}, "7": {false, true},
	} {
		old, unknown := tooOld(version)
		require.Equal(t, want, [2]bool{old, unknown}, version)
	}
}

// connect returns a client of a Redis that has all the time it needs.
func connect(t *testing.T, o Options) *Client {
	t.Helper()
	o.URL, o.Timeout, o.DialTimeout = redistest.Start(t), time.Minute, time.Minute
	o.ProbeKey, o.ClockKey, o.Logger = "probe", "clock", slog.New(slog.DiscardHandler)
	if o.Now == nil {
		o.Now, o.Monotonic = time.Now, sinceNow()
	}
	c, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// TestConnections: a call opens one, which is idle afterwards.
func TestConnections(t *testing.T) {
	c := connect(t, Options{})
	require.NoError(t, c.Ping(t.Context()).Err())
	total, idle := c.Connections()
	require.Positive(t, total)
	require.Equal(t, total, idle)
}

// TestClockOffset is positive when Redis' clock is ahead of this machine's.
func TestClockOffset(t *testing.T) {
	var elapsed time.Duration
	c := connect(t, Options{
		Now:       func() time.Time { return time.Now().Add(-time.Hour) },
		Monotonic: func() time.Duration { return elapsed },
	})
	for range 2 {
		elapsed += clock.ReadEvery
		c.Clock.Refresh(t.Context())
	}
	require.InDelta(t, time.Hour, c.Clock.Offset(), float64(time.Minute))
}
