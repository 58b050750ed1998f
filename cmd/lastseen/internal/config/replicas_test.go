package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReplicas(t *testing.T) {
	for content, lag := range map[string]time.Duration{
		"":                         0,
		"redis-max-lag: 5s":        0,
		"redis-read-from: primary": 0,
		"redis-read-from: replica": time.Second,
		"redis-read-from: replica\nredis-max-lag: 100ms": 100 * time.Millisecond,
		"redis-read-from: replica\nredis-max-lag: 1m":    time.Minute,
	} {
		c := load(t, "store: redis://127.0.0.1:1\n"+content)
		require.Equal(t, lag, c.RedisOptions().MaxLag, content)
	}
}
