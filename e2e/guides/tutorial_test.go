package guides

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// tutorialExample returns the n-th example of the guide for users of the Redis tutorial, for another Redis.
func tutorialExample(t *testing.T, n int, url string) string {
	t.Helper()
	blocks := testguide.Blocks(t, "from-the-redis-tutorial.md", "yaml")
	require.Len(t, blocks, 2)
	return strings.ReplaceAll(blocks[n], "redis://127.0.0.1:6379", url)
}

// TestTutorialExamples runs the example of docs/from-the-redis-tutorial.md as it stands there, but for
// Redis' address.
func TestTutorialExamples(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	ctx := context.Background()
	now := time.Now().Unix()
	require.NoError(t, client.ZAdd(ctx, "presence", redis.Z{Score: float64(now - 10), Member: "alice"},
		redis.Z{Score: 100123, Member: "bob"}).Err())

	file := testserver.WriteConfig(t, tutorialExample(t, 0, url))
	s := testserver.Start(t, "--config", file, "--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	require.Equal(t, "green", s.Get(t, alice)["status"])
	require.Equal(t, "1970-01-02T03:48:43.000Z", s.Get(t, "/v1/namespaces/chat/users/bob")["last_seen"])
	s.Post(t, "/v1/namespaces/chat/users/carol/ping", `{"at":100200.5}`)
	score, err := client.ZScore(ctx, "presence", "carol").Result()
	require.NoError(t, err)
	require.InDelta(t, 100200.5, score, 0)
	require.Contains(t, fmt.Sprint(s.Get(t, "/v1/namespaces")), "chat")

	// The second example has only the unit, for all namespaces.
	require.NoError(t, client.ZAdd(ctx, "presence:room", redis.Z{Score: float64(now - 10), Member: "dave"}).Err())
	other := testserver.WriteConfig(t, tutorialExample(t, 1, url))
	s = testserver.Start(t, "--store", url, "--config", other, "--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	require.Equal(t, "green", s.Get(t, "/v1/namespaces/room/users/dave")["status"])
}
