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
		c, err := loadText(t, "store: redis://127.0.0.1:1\n"+content)
		require.NoError(t, err, content)
		require.Equal(t, lag, c.RedisOptions().MaxLag, content)
	}
}

func TestWrongReplicas(t *testing.T) {
	for content, want := range map[string]string{
		"redis-read-from: secondary":                            "redis-read-from: \"secondary\" is not valid; use primary or replica",
		"redis-max-lag: 99ms":                                   "redis-max-lag is 99ms (lastseen.yaml:1): the minimum is 100ms, and the maximum 1m",
		"redis-max-lag: 61s":                                    "redis-max-lag is 61s (lastseen.yaml:1): the minimum is 100ms, and the maximum 1m",
		"redis-read-from: replica\nstore: rediss+cluster://a,b": "the replicas of a Cluster cannot be read from",
	} {
		problems := problemsOf(t, content)
		require.Len(t, problems, 1, content)
		require.Contains(t, problems[0], want)
	}
}
