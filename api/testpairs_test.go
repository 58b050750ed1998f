package api

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// eachPair runs a test on two servers that share all data: in one process on the file store, and on one Redis.
func eachPair(t *testing.T, test func(t *testing.T, one, two *testServer)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		s := fileStore(t)
		test(t, newSocketServerOn(t, s), newSocketServerOn(t, s))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		url := redistest.Start(t)
		setInvisible(t, url)
		test(t, newRedisSocketServer(t, url), newRedisSocketServer(t, url))
	})
}

// setInvisible has all servers know from the start that the namespace chat has invisible users. Otherwise tests would
// have to wait until they do: see docs/decisions/people.md.
func setInvisible(t *testing.T, url string) {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	require.NoError(t, client.HSet(t.Context(), "presence::meta", "chat:hidden", 1).Err())
}

// newRedisSocketServer serves WebSockets on a Redis. It returns once signals of other servers arrive.
func newRedisSocketServer(t *testing.T, url string) *testServer {
	t.Helper()
	s, err := redisstore.Open(redisstore.Options{
		URL: url, Timeout: 30 * time.Second, DialTimeout: 30 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := newSocketServerOn(t, s)
	require.Eventually(t, func() bool { return s.SignalStats().Listening }, eventually, tick)
	return w
}
