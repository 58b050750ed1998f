//go:build faults

package faults

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
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
	t.Run("store", testClockOfTheStore)
	t.Run("one server", testClockOfOneServer)
	t.Run("held connections", testHeldClocks)
}

// testClockOfOneServer sets the clock of one of two servers. Nothing changes for users: times are those of Redis.
func testClockOfOneServer(t *testing.T) {
	t.Parallel()
	wrong, redis := newSteppedClock(t), redistest.StartProcess(t)
	servers := []*server{startServer(t, redis.URL()), wrong.startOn(t, redis.URL(), "--retention", "5m")}
	pingAll(t, servers)
	for _, step := range testenv.Choose(steps(), []time.Duration{1000 * time.Hour, -1000 * time.Hour}) {
		wrong.set(t, step)
		for until := time.Now().Add(testenv.Choose(12*time.Second, 2*time.Second)); time.Now().Before(until); {
			pingAll(t, servers)
			requireGreen(t, servers, 0, 0)
		}
	}
	for _, s := range servers {
		require.NotContains(t, s.log.String(), "the clock was set")
	}
}

// testHeldClocks has servers whose clocks differ by a second, and then by an hour. Times are those of Redis, so users
// who hold connections to both do not notice.
func testHeldClocks(t *testing.T) {
	t.Parallel()
	wrong, redis := newSteppedClock(t), redistest.StartProcess(t)
	servers := []*server{startServer(t, redis.URL(), holdArgs()...), wrong.startOn(t, redis.URL(), holdArgs()...)}
	for _, off := range []time.Duration{time.Second, -time.Second, time.Hour} {
		wrong.set(t, off)
		user, marker := "user "+off.String(), "marker "+off.String()
		trails := []*trail{watch(t, servers[0], user, marker), watch(t, servers[1], user, marker)}
		first, second := here(t, trails[0], servers[0], user), here(t, trails[1], servers[1], user)
		first.close()
		passGrace(t, trails[1], servers[0], marker, holdGrace)
		trails[1].requireOnlyGreen(t, user)
		second.close()
		for _, tr := range trails {
			tr.requireLeft(t, user)
		}
	}
}

// testClockOfTheStore sets the clock of Redis, and of the machine of a file store. Servers follow it after a while.
// From then on, users who ping are green on every server. No user is deleted.
func testClockOfTheStore(t *testing.T) {
	clock := newSteppedClock(t)
	redis := clock.startRedis(t)
	onRedis := []*server{
		clock.startOn(t, redis.URL(), "--retention", "5m"), clock.startOn(t, redis.URL()),
	}
	onFile := []*server{clock.startOn(t, filepath.Join(t.TempDir(), "lastseen.db"), "--retention", "5m")}
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
				for _, s := range group {
					users, _ := lookUpAll(t, s)
					for _, user := range users {
						require.NotNil(t, user.LastSeen, "%+v was deleted at %s", user, s.url)
					}
				}
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
		r := servers[i%len(servers)].request(t, http.MethodPost, userPath(fmt.Sprintf("user-%d", i))+"/ping")
		require.Equal(t, lastseen.Green, decode[presence](t, r).Status)
	}
}

// lookUpAll returns the users who ping as a server shows them, and its time.
func lookUpAll(t testing.TB, s *server) (users []presence, asOf lastseen.Instant) {
	t.Helper()
	query := url.Values{}
	for i := range clockUsers {
		query.Add("user", fmt.Sprintf("user-%d", i))
	}
	found := decode[lookup](t, s.request(t, http.MethodGet, "/v1/namespaces/chat/lookup?"+query.Encode()))
	return found.Users, must(lastseen.ParseTime(found.AsOf))
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
			require.LessOrEqual(t, must(user.state()).At, lastseen.InstantOf(time.Now().Add(highest+tolerance)))
		}
	}
}

// clockVar is the environment variable that testdata/clock.c and a build with the tag faults read.
const clockVar = "FAULTS_CLOCK_OFFSET"

// steppedClock is a machine's clock that a test can set while programs run.
type steppedClock struct{ path string }

func newSteppedClock(t testing.TB) steppedClock {
	t.Helper()
	c := steppedClock{filepath.Join(t.TempDir(), "offset")}
	require.NoError(t, os.WriteFile(c.path, make([]byte, 8), 0o600))
	return c
}

// set makes the clock be off by some seconds. It does not cut the file, which programs read at any time.
func (c steppedClock) set(t testing.TB, off time.Duration) {
	t.Helper()
	file, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(off/time.Second)), 0)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// startRedis starts a Redis on the clock.
func (c steppedClock) startRedis(t *testing.T) *redistest.Process {
	t.Helper()
	compiler := testenv.Program(t, "cc", "cc")
	library := filepath.Join(t.TempDir(), "clock.so")
	runCommand(t, compiler, "-shared", "-fPIC", "-O2", "-o", library, "testdata/clock.c")
	t.Setenv("LD_PRELOAD", library)
	t.Setenv(clockVar, c.path)
	defer func() { // for all other programs
		os.Unsetenv("LD_PRELOAD")
		os.Unsetenv(clockVar)
	}()
	return redistest.StartProcess(t)
}

// startOn starts a server on the clock.
func (c steppedClock) startOn(t testing.TB, store string, args ...string) *server {
	t.Helper()
	s := newServer(t, "127.0.0.1", store, args...)
	s.prefix = []string{"env", clockVar + "=" + c.path}
	s.start(t)
	return s
}
