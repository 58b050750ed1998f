package config

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/feed"
)

func TestValues(t *testing.T) {
	c := load(t,
		"rate-limit: off\nuser-rate-limit: 7\ntrusted-proxies: [10.0.0.0/8, '::1']\ncors-origins: 'https://a.example.com,http://localhost:3000'\n")
	require.Zero(t, c.RateLimit)
	require.Equal(t, 7, c.UserRateLimit)
	require.Equal(t, "[10.0.0.0/8 ::1/128]", strings.TrimSpace(fmt.Sprint(c.TrustedProxies)))
	require.Equal(t, []string{"https://a.example.com", "http://localhost:3000"}, c.CORSOrigins)
	requireRoundTrip(t, c)
}

func TestBodyMemorySetting(t *testing.T) {
	for text, want := range map[string]int64{
		"24MiB": 24 << 20, "1024MiB": 1 << 30, "1GiB": 1 << 30, "1024GiB": 1 << 40,
		"64": 0, "64MB": 0, "23MiB": 0, "1025GiB": 0, "99999999999999999999GiB": 0, "-1GiB": 0,
	} {
		c, err := loadText(t, "body-memory: "+text)
		if want == 0 {
			require.ErrorContains(t, err, `"`+text+`" is not valid; use a size from 24MiB to 1024GiB`)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, c.BodyMemory, text)
	}
}

// TestNumbers: what is no number, or not within the bounds.
func TestNumbers(t *testing.T) {
	for content, takes := range map[string]string{
		"redis-shards: %s": "a number from 1 to 64", "max-connections: %s": "auto, or a number from 1 to ",
		"redis-pool-size: %s": "",
	} {
		for _, text := range []string{"0", "-1", "65", "99999999999999999999", "4.0", "many"} {
			if text == "65" && takes != "a number from 1 to 64" || text == "0" && takes == "" {
				continue
			}
			_, err := loadText(t, fmt.Sprintf(content, text))
			require.ErrorContains(t, err, strconv.Quote(text)+" is not valid; use "+takes, content)
		}
	}
	require.Len(t, problemsOf(t, "redis-score-unit: us"), 1)
	require.Len(t, problemsOf(t, "yellow: 11y"), 1)
}

func TestLeeway(t *testing.T) {
	require.Zero(t, load(t, "jwt-leeway: 0").JWTLeeway)
	require.Equal(t, 5*time.Minute, load(t, "jwt-leeway: 5m").JWTLeeway)
}

func TestWebSocketSettings(t *testing.T) {
	c := load(t, "disconnect-grace: 1m\nconnect-drain: 10m\nmax-connections: 10\nmax-websockets: 10\n"+
		"max-address-websockets: off\nnamespaces:\n  chat:\n    show-kinds: on\n    ping-interval: 7s\n")
	require.Equal(t, time.Minute, c.DisconnectGrace)
	require.Zero(t, c.MaxAddressWebsockets)
	require.True(t, c.Namespace("chat").ForAPI().ShowKinds)
	require.False(t, c.ForAPI().ShowKinds)
	require.Equal(t, 7*time.Second, c.Connections("chat").PingInterval)
	require.Equal(t, 30*time.Second, c.Connections("other").PingInterval)
	requireRoundTrip(t, c)
}

// TestFeedSettings: namespaces have their own settings of feeds or inherit them. What a store cannot record is fine as
// long as recording is not required, and settings of Redis have no effect on a file.
func TestFeedSettings(t *testing.T) {
	c := load(t, "changes: off\ngreen: 50s\nnamespaces: {a: {changes: on, yellow: 4m}, b: {}, c: {changes: auto}}")
	thresholds := lastseen.Thresholds{Green: 50 * time.Second, Yellow: 5 * time.Minute}
	require.Equal(t, feed.Settings{Thresholds: thresholds, Mode: feed.Off}, c.Feed("any"))
	require.Equal(t, feed.Settings{Thresholds: thresholds, Mode: feed.Off}, c.Feed("b"))
	require.Equal(t, feed.Settings{Thresholds: thresholds, Mode: feed.Auto}, c.Feed("c"))
	thresholds.Yellow = 4 * time.Minute
	require.Equal(t, feed.Settings{Thresholds: thresholds, Mode: feed.On}, c.Feed("a"))
	require.Equal(t, []string{"a"}, c.Recorded())
	require.Equal(t, feed.On, c.Namespace("a").ForAPI().Changes)

	for _, content := range []string{
		"store: redis://127.0.0.1:1\nredis-prefix: 'p{'\nnamespaces: {a: {redis-key: k}}",
		"redis-prefix: 'p{'\nredis-score-unit: s\nchanges: on",
	} {
		require.Empty(t, problemsOf(t, content), content)
	}
}

func TestNamespacesInherit(t *testing.T) {
	c := load(t, `
green: 50s
redis-score-unit: s
store: redis://127.0.0.1:1
namespaces:
  a: {green: 10s, redis-key: k}
  b: {redis-score-unit: ms, redis-shards: 2}
  c:
`)
	require.Equal(t, []string{"a", "b", "c"}, c.Names())
	require.Equal(t, "10s/5m0s/s", describeScope(c.Namespace("a")))
	require.Equal(t, "50s/5m0s/ms", describeScope(c.Namespace("b")))
	require.Equal(t, "50s/5m0s/s", describeScope(c.Namespace("c")))
	require.Equal(t, "50s/5m0s/s", describeScope(c.Namespace("another")))
	require.Equal(t, 2, c.Namespace("b").ForAPI().Shards)

	layouts := c.layouts()
	require.Len(t, layouts, 2, "c is stored as all others")
	require.Equal(t, "k", layouts["a"].Key)
	require.Empty(t, layouts["a"].Unit, "the unit for all is not one that the namespace was given")
	require.EqualValues(t, "ms", layouts["b"].Unit)
	require.EqualValues(t, "s", c.RedisOptions().Unit)
}

func describeScope(s *Values) string {
	return s.Green.String() + "/" + s.Yellow.String() + "/" + string(s.RedisScoreUnit)
}
