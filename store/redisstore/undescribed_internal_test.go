package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestGroups: scripts and servers agree on the groups, which all have about as many users.
func TestGroups(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(redistest.Start(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	script := redis.NewScript(luaSource("clock.lua", "details.lua") + "return group_of(ARGV[1])")
	for _, user := range []string{
		"a", "alice", "é", "日本語", "a@example.com", "0", "z z", strings.Repeat("~", 256),
		strings.Repeat("x", 63) + "é", strings.Repeat("x", 64) + "é",
	} {
		group, err := script.Run(context.Background(), client, nil, user).Int()
		require.NoError(t, err)
		require.Equal(t, groupOf(user), group, user)
	}
	for _, format := range []string{"%d", "user%04d", "%08x", "user%d@example.com", "7b0f4c52-%04x-4e5c-9c0f-0f6f0b8f4b1d"} {
		sizes := [groups]int{}
		for i := range 3200 {
			sizes[groupOf(fmt.Sprintf(format, i))]++
		}
		for _, size := range sizes {
			require.InDelta(t, 400, size, 100, format)
		}
	}
}

// TestRecentSet: the newest hashes are remembered, and the oldest ones forgotten.
func TestRecentSet(t *testing.T) {
	t.Parallel()
	var s recentSet
	require.False(t, s.has(setLines))
	for i := range uint64(lineSize + 1) {
		s.add(7 + setLines*(i+1))
	}
	require.False(t, s.has(7+setLines), "its line was full")
	for i := range uint64(lineSize) {
		require.True(t, s.has(7+setLines*(i+2)))
	}
	s.add(8 + setLines)
	require.True(t, s.has(8+setLines), "another line")
	require.True(t, s.has(7+setLines*2))
}

// TestKnownShards: servers know a limited number of shards.
func TestKnownShards(t *testing.T) {
	t.Parallel()
	u := newUndescribed(func() time.Duration { return 0 })
	text := strings.Repeat("x", groups*versionSize)
	for i := range maxKnownShards {
		require.NotNil(t, u.update(fmt.Sprint("shard", i), text))
	}
	require.NotNil(t, u.known("shard0"))
	require.NotNil(t, u.update("shard0", strings.Repeat("y", groups*versionSize)))
	require.NotNil(t, u.known("shard1"), "one that was known takes no more")
	require.NotNil(t, u.update("another", text))
	require.Nil(t, u.known("shard0"))
	require.Len(t, u.shards, 1)
	for _, text := range []string{"", "x", text + "x"} {
		require.Nil(t, u.update("another", text), "no versions")
	}
}
