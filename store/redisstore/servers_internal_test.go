package redisstore

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
