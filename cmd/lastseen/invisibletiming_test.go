package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// TestInvisibleTiming checks that lookups of a user who is invisible, and goes on pinging meanwhile, take as long as
// those of a user who left, and that lists and counts take as long with the one as with the other, on all servers. Each
// comparison can fail at random once in 10,000 times, so one that fails has to fail three times.
func TestInvisibleTiming(t *testing.T) {
	requireTiming(t)
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := newTwins(0, servers, s)
		now := time.Now()
		w.seed(t, now)
		// A user who leaves after doing and saying the same as davey, so that all else is the same.
		w.both(t, "POST", "/users/carla/ping",
			fmt.Sprintf(`{"at":%q,"device":{"id":"app","kind":"mobile"},"activity":"idle"}`, exact(now)))
		w.hide(t, twinUsers, `"note":"x"`)
		w.both(t, "PUT", "/users/carla/availability", `{"availability":"busy","note":"writing"}`)
		w.both(t, "POST", "/users/carla/leave", fmt.Sprintf(`{"at":%q}`, exact(time.Now())))
		w.pingOn(t, "davey") // whichever request is next is drawn: this delays both as often
		read := func(user string) func() {
			return func() {
				if _, _, err := s.Describe(t.Context(), w.hidden, []string{user}); err != nil {
					t.Error(err)
				}
			}
		}
		for _, path := range []string{
			"/users/%s", "/users/%s/dot.svg", "/users/%s/devices", "/lookup?user=%s", "/changes?user=%s",
		} {
			left, hidden := fmt.Sprintf(path, "carla"), fmt.Sprintf(path, "davey")
			w.sameTimes(t, w.hidden+left, w.hidden+hidden)
		}
		for _, path := range []string{"/users?limit=10", "/counts"} {
			w.sameTimes(t, w.left+path, w.hidden+path)
		}
		sameTime(t, 3000, timed(read("carla")), timed(read("davey")))
	})
}

// pingOn has the devices of a user go on pinging until the test ends.
func (w twins) pingOn(t *testing.T, user string) {
	t.Helper()
	path := "/v1/namespaces/" + w.hidden + "/users/" + user + "/ping"
	background(t, func(ctx context.Context) error {
		for i := 0; ; i++ {
			body := strings.NewReader(`{"device":{"id":"app","kind":"mobile"}}`)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.servers[i%len(w.servers)]+path, body)
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer ls_all")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("a ping: %s", answer.Status)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pingEvery):
			}
		}
	})
}

// pingEvery is how long the user who is invisible waits between pings: long enough that most requests meet none.
const pingEvery = 5 * time.Millisecond

// sameTimes fails the test if a request of one resource takes longer than one of another, which is as long, on any
// server.
func (w twins) sameTimes(t *testing.T, left, hidden string) {
	t.Helper()
	for _, server := range w.servers {
		sizes := [2]int{}
		get := func(path, credential string, size *int) timer {
			target := server + "/v1/namespaces/" + path
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+credential)
			return timed(func() {
				answer, err := http.DefaultClient.Do(r)
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Errorf("%s: %v, %v", path, answer, err)
					return
				}
				length, _ := io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				*size = int(length)
			})
		}
		credential := "ls_hide"
		if strings.HasPrefix(left, w.left) {
			credential = "ls_left"
		}
		one, other := get(left, credential, &sizes[0]), get(hidden, "ls_hide", &sizes[1])
		sameTime(t, timingRounds/len(w.servers), one, other)
		require.Equal(t, sizes[0], sizes[1], "%s and %s", left, hidden)
	}
}

// timingRounds is how often each request is timed.
const timingRounds = 2000

// timer does something once, and returns how long that took.
type timer func() time.Duration

func timed(do func()) timer {
	return func() time.Duration {
		begun := time.Now()
		do()
		return time.Since(begun)
	}
}

// sameTime fails the test if one of two things takes longer than the other one, three times.
func sameTime(t *testing.T, rounds int, one, other timer) {
	t.Helper()
	var p float64
	for range 3 {
		if p = differ(timeBoth(rounds, one, other)); p > 1e-4 {
			return
		}
	}
	t.Errorf("the times differ: p = %g", p)
}

// requireTiming skips a test that compares times, unless tests run in full.
func requireTiming(t *testing.T) {
	t.Helper()
	testenv.RequireFull(t)
	testenv.SkipWithRace(t, "it slows some calls more than others")
}

// TestTimingNotices checks that the comparison notices 5 µs, and does not notice nothing. Times vary here as those of
// requests do: without that, it notices the nanosecond by which two copies of the same code differ.
func TestTimingNotices(t *testing.T) {
	requireTiming(t)
	spin := func(least time.Duration) timer {
		return timed(func() {
			end := least + rand.N(20*time.Microsecond) //nolint:gosec // not a secret
			for begun := time.Now(); time.Since(begun) < end; {
				continue
			}
		})
	}
	const rounds = timingRounds / 2 // as of each of two servers
	p := differ(timeBoth(rounds, spin(50*time.Microsecond), spin(55*time.Microsecond)))
	require.Less(t, p, 1e-4)
	sameTime(t, rounds, spin(50*time.Microsecond), spin(50*time.Microsecond))
}

// timeBoth does two things about as often as asked each, and returns how long it took each time. Which one is next does
// not depend on the last one: what that left to do delays both as often.
func timeBoth(rounds int, one, other timer) (a, b []time.Duration) {
	timers := [2]timer{one, other}
	var took [2][]time.Duration
	for range 2 * rounds {
		which := rand.N(2) //nolint:gosec // not a secret
		took[which] = append(took[which], timers[which]())
	}
	return took[0], took[1]
}

// differ returns the probability that two samples of the same distribution differ as much as these do, by the test of
// Mann and Whitney.
func differ(a, b []time.Duration) float64 {
	type sample struct {
		d     time.Duration
		first bool
	}
	var all []sample
	for _, d := range a {
		all = append(all, sample{d, true})
	}
	for _, d := range b {
		all = append(all, sample{d, false})
	}
	slices.SortFunc(all, func(x, y sample) int { return cmp.Compare(x.d, y.d) })
	ranks, ties := 0.0, 0.0
	for i := 0; i < len(all); {
		end := i
		for end < len(all) && all[end].d == all[i].d {
			end++
		}
		size := float64(end - i)
		ties += size*size*size - size
		for ; i < end; i++ {
			if all[i].first {
				ranks += float64(end) - (size-1)/2
			}
		}
	}
	n, m := float64(len(a)), float64(len(b))
	total := n + m
	u, mean := ranks-n*(n+1)/2, n*m/2
	deviation := math.Sqrt(n * m / 12 * (total + 1 - ties/(total*(total-1))))
	if deviation == 0 {
		return 1
	}
	return math.Erfc(math.Abs(u-mean) / deviation / math.Sqrt2)
}

// TestDiffer compares the test with values that were computed by hand.
func TestDiffer(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1, differ([]time.Duration{1, 1}, []time.Duration{1, 1}), 0)
	require.InDelta(t, 1, differ([]time.Duration{1, 4}, []time.Duration{2, 3}), 1e-9) // U = 2, as expected
	// U = 0, mean 4.5, deviation √(9·7/12) = 2.291: z = 1.964
	require.InDelta(t, 0.0495, differ([]time.Duration{1, 2, 3}, []time.Duration{4, 5, 6}), 1e-4)
	require.InDelta(t, 0.0495, differ([]time.Duration{4, 5, 6}, []time.Duration{1, 2, 3}), 1e-4)
}
