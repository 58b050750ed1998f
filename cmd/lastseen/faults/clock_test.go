//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
)

// steps are by how much clocks are set. Each is undone before the next, if tests run in full.
func steps() []time.Duration {
	return testenv.Choose([]time.Duration{
		3 * time.Second, -3 * time.Second, time.Hour, -time.Hour, 1000 * time.Hour, -1000 * time.Hour,
	}, []time.Duration{time.Hour})
}

// clockUsers is the number of users who ping in these tests.
const clockUsers = 20

// TestClocks sets clocks of machines while programs run on them.
func TestClocks(t *testing.T) {
	binary := buildWithClock(t)
	t.Run("one server", func(t *testing.T) { testClockOfOneServer(t, binary) })
	t.Run("store", func(t *testing.T) { testClockOfTheStore(t, binary) })
	t.Run("held connections", func(t *testing.T) { testHeldClocks(t, binary) })
}

// testClockOfOneServer sets the clock of one of two servers. Nothing changes for users: times are those of Redis.
func testClockOfOneServer(t *testing.T, binary string) {
	real, wrong := newSteppedClock(t), newSteppedClock(t)
	redis := real.startRedis(t)
	servers := []*server{
		real.startOn(t, binary, redis.URL()), wrong.startOn(t, binary, redis.URL(), "--retention", "5m"),
	}
	pingAll(t, servers)
	for _, step := range testenv.Choose(steps(), []time.Duration{1000 * time.Hour, -1000 * time.Hour}) {
		wrong.set(t, step)
		for until := time.Now().Add(testenv.Choose(12*time.Second, 2*time.Second)); time.Now().Before(until); {
			pingAll(t, servers)
			requireGreen(t, servers, 0, 0)
		}
	}
	require.NotContains(t, servers[0].log.String(), "the clock was set")
	require.NotContains(t, servers[1].log.String(), "the clock was set")
}

// testClockOfTheStore sets the clock of Redis, and of the machine of a file store. Servers follow it after a while.
// From then on, users who ping are green on every server. No user is deleted.
func testClockOfTheStore(t *testing.T, binary string) {
	clock := newSteppedClock(t)
	redis := clock.startRedis(t)
	onRedis := []*server{
		clock.startOn(t, binary, redis.URL(), "--retention", "5m"), clock.startOn(t, binary, redis.URL()),
	}
	onFile := []*server{clock.startOn(t, binary, filepath.Join(t.TempDir(), "lastseen.db"), "--retention", "5m")}
	highest, set := time.Duration(0), 0
	for _, group := range [][]*server{onRedis, onFile} {
		pingAll(t, group)
		requireGreen(t, group, 0, 0)
	}
	for _, step := range steps() {
		for _, off := range testenv.Choose([]time.Duration{step, 0}, []time.Duration{step}) {
			clock.set(t, off)
			highest, set = max(highest, off), set+1
			for _, group := range [][]*server{onRedis, onFile} {
				awaitSet(t, group, set)
				requireKnown(t, group)
				pingAll(t, group)
				requireGreen(t, group, off, highest)
			}
		}
	}
}

// awaitSet waits until servers have followed their clock n times. With the file store, requests make them read it.
func awaitSet(t testing.TB, servers []*server, n int) {
	t.Helper()
	for _, s := range servers {
		await(t, fmt.Sprintf("the log to say %d times that the clock was set", n), func() bool {
			lookUpAll(t, s)
			return strings.Count(s.log.String(), "the clock was set") == n
		})
		require.InDelta(t, n, s.metric(t, "lastseen_clock_steps_total"), 0)
	}
}

// pingAll pings each user at one of the servers. The response shows them green.
func pingAll(t testing.TB, servers []*server) {
	t.Helper()
	for i := range clockUsers {
		r := servers[i%len(servers)].request(t, http.MethodPost, fmt.Sprintf("/v1/namespaces/chat/users/user-%d/ping", i))
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		require.Contains(t, string(r.body), `"status":"green"`)
	}
}

// lookUpAll returns the users who ping as a server shows them, and its time.
func lookUpAll(t testing.TB, s *server) (users []presence, asOf lastseen.Instant) {
	t.Helper()
	query := url.Values{}
	for i := range clockUsers {
		query.Add("user", fmt.Sprintf("user-%d", i))
	}
	r := s.request(t, http.MethodGet, "/v1/namespaces/chat/lookup?"+query.Encode())
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	var found struct {
		evaluated
		Users []presence `json:"users"`
	}
	require.NoError(t, json.Unmarshal(r.body, &found))
	asOf, err := lastseen.ParseTime(found.AsOf)
	require.NoError(t, err)
	return found.Users, asOf
}

// requireKnown checks that nobody was erased.
func requireKnown(t testing.TB, servers []*server) {
	t.Helper()
	for _, s := range servers {
		users, _ := lookUpAll(t, s)
		for _, user := range users {
			require.NotNil(t, user.LastSeen, "%+v at %s", user, s.url)
		}
	}
}

// requireGreen checks that each server shows every user green, its time follows a clock that is off by off, and no user
// was seen later than a clock that is off by highest.
func requireGreen(t testing.TB, servers []*server, off, highest time.Duration) {
	t.Helper()
	const tolerance = 2 * time.Second // smaller steps are followed gradually
	now := time.Now()
	for _, s := range servers {
		users, asOf := lookUpAll(t, s)
		require.Len(t, users, clockUsers)
		require.LessOrEqual(t, asOf, lastseen.InstantOf(time.Now().Add(off+tolerance)))
		require.GreaterOrEqual(t, asOf, lastseen.InstantOf(now.Add(off-tolerance)))
		for _, user := range users {
			require.Equal(t, lastseen.Green, user.Status, "%+v at %s", user, s.url)
			state, err := user.state()
			require.NoError(t, err)
			require.LessOrEqual(t, state.At, lastseen.InstantOf(time.Now().Add(highest+tolerance)))
		}
	}
}
