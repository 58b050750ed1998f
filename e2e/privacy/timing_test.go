package privacy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
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
)

// These benchmarks judge times, so they are no tests, which run on busy machines: make bench-privacy runs them. They
// compare distributions within one run, and fail if they differ. A comparison can fail at random once in 10,000 times,
// so one that fails has to fail three times.

// benchPair runs a benchmark in a namespace of two sites: see [eachPair]. It reports nothing.
func benchPair(b *testing.B, namespace string, bench func(b *testing.B, w *pair)) {
	b.Helper()
	eachPair(b, func(name string, run func(*testing.B)) { b.Run(name, run) }, namespace, bench)
}

// BenchmarkInvisible checks that lookups of a user who is invisible, and goes on pinging meanwhile, take as long as
// those of a user who left, and that lists and counts take as long with the one as with the other, on all servers.
func BenchmarkInvisible(b *testing.B) {
	benchPair(b, hall, func(b *testing.B, w *pair) {
		w.seed(b)
		// A user who leaves after doing and saying the same as davey, so that all else is the same.
		w.both(b, "POST", "/users/carla/ping",
			fmt.Sprintf(`{"at":%q,"device":{"id":"app","kind":"mobile"},"activity":"idle"}`, exact(time.Now())))
		for _, user := range pairUsers {
			w.hide(b, user, `,"note":"x"`)
		}
		w.both(b, "PUT", "/users/carla/availability", `{"availability":"busy","note":"writing"}`)
		w.both(b, "POST", "/users/carla/leave", fmt.Sprintf(`{"at":%q}`, exact(time.Now())))
		w.hiding.pingOn(b, "davey") // whichever request is next is drawn: this delays both as often
		read := func(user string) timer {
			return timed(func() {
				_, _, err := w.hiding.store.Describe(b.Context(), w.hiding.name(), []string{user})
				require.NoError(b, err)
			})
		}
		for i := range w.hiding.servers {
			for _, path := range []string{
				"/users/%s", "/users/%s/dot.svg", "/users/%s/devices", "/lookup?user=%s", "/changes?user=%s",
			} {
				left, hidden := fmt.Sprintf(path, "carla"), fmt.Sprintf(path, "davey")
				sameTimes(b, path, timingRounds, w.hiding.timedGet(b, i, left), w.hiding.timedGet(b, i, hidden))
			}
			for _, path := range []string{"/users?limit=10", "/counts"} {
				sameTimes(b, path, timingRounds, w.gone.timedGet(b, i, path), w.hiding.timedGet(b, i, path))
			}
		}
		sameTimes(b, "Describe", timingRounds, read("carla"), read("davey"))
	})
}

// pingOn has the devices of a user go on pinging until the benchmark ends, with pauses that are long enough that most
// requests meet no ping.
func (s site) pingOn(b *testing.B, user string) {
	b.Helper()
	background(b, func(ctx context.Context) error {
		for i := 0; ; i++ {
			body := strings.NewReader(`{"device":{"id":"app","kind":"mobile"}}`)
			target := s.server(i) + s.namespace + "/users/" + user + "/ping"
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, body)
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
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
}

// timedGet times a request to a server.
func (s site) timedGet(b *testing.B, server int, path string) timer {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.server(server)+s.namespace+path, http.NoBody)
	require.NoError(b, err)
	r.Header.Set("Authorization", "Bearer ls_reader")
	return timed(func() {
		answer, err := http.DefaultClient.Do(r)
		require.NoError(b, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		require.Equal(b, http.StatusOK, answer.StatusCode)
	})
}

// BenchmarkInvisibleCalls checks that it takes as long to call a user who left, one never seen, and one who is
// invisible, also in another call. Where callers cannot call those who do not know them, these take as long as each
// other. It also checks that a caller's connection is sent a call as soon after the response if the callee is
// invisible, and has many connections, as if the callee left.
func BenchmarkInvisibleCalls(b *testing.B) {
	benchPair(b, hall, func(b *testing.B, w *pair) {
		known, strangers := w.hiding, w.hiding
		strangers.namespace = room
		for i, callee := range []string{neverCallee, hiddenCallee, busyCallee} {
			for j, c := range []callTimer{
				{site: known, credential: "ls_all", status: http.StatusCreated},
				{site: known, credential: "ls_all", fields: `,"if":"present"`},
				{site: strangers, credential: strangers.tokenOf(b, "stranger")},
			} {
				// The users are new: how long it takes also depends on the calls to a user that are kept.
				suffix := fmt.Sprintf("-%d-%d", i, j)
				c.hideCallees(b, suffix)
				left, hidden := c.untilResponse(b, leftCallee+suffix), c.untilResponse(b, callee+suffix)
				sameTimes(b, "calls "+callee+suffix, timingRounds, left, hidden)
			}
		}
		known.hideCallees(b, "")
		for range 10 { // that the caller waits for each of them would be noticed
			known.connectQuietly(b, 0, hiddenCallee)
		}
		c := callTimer{site: known, credential: "ls_all", status: http.StatusCreated}
		sameTimes(b, "frames", timingRounds, c.untilFrame(b, leftCallee), c.untilFrame(b, hiddenCallee))
	})
}

// BenchmarkStrangers checks that strangers who were seen, and set an availability, take a user's token as long to
// follow as users who were never seen, over a poll, events and connections.
func BenchmarkStrangers(b *testing.B) {
	benchPair(b, room, func(b *testing.B, w *pair) {
		s, token := w.hiding, w.hiding.tokenOf(b, "bobby")
		follow := func(kind string) (poll, events, hello timer) {
			var query, list []string
			for i := range 40 {
				user := fmt.Sprintf("%s-%02d", kind, i)
				query, list = append(query, "user="+user), append(list, fmt.Sprintf("%q", user))
				if kind == "seen" {
					s.do(b, 0, http.MethodPost, "/users/"+user+"/ping", "")
					s.do(b, 0, http.MethodPut, "/users/"+user+"/availability", `{"availability":"busy","note":"writing"}`)
				}
			}
			path, watch := "/changes?"+strings.Join(query, "&"), `,"watch":{"users":[`+strings.Join(list, ",")+`]}`
			poll = timed(func() {
				require.Equal(b, http.StatusOK, s.send(b, 0, http.MethodGet, path, "", token).status)
			})
			events = timed(func() { s.firstEvent(b, path, token) })
			hello = func() time.Duration {
				begun := time.Now()
				socket := s.connect(b, 0, "bobby", watch)
				took := time.Since(begun)
				_ = socket.CloseNow()
				return took
			}
			return poll, events, hello
		}
		seenPoll, seenEvents, seenHello := follow("seen")
		neverPoll, neverEvents, neverHello := follow("none")
		sameTimes(b, "poll", 5*timingRounds, neverPoll, seenPoll)
		sameTimes(b, "events", timingRounds, neverEvents, seenEvents)
		sameTimes(b, "hello", timingRounds, neverHello, seenHello)
	})
}

// firstEvent waits for the first event of a stream.
func (s site) firstEvent(b *testing.B, path, token string) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server(0)+s.namespace+path, http.NoBody)
	require.NoError(b, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(b, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			return
		}
	}
	require.Fail(b, "no event", "%s: %v", answer.Status, lines.Err())
}

// callTimer starts calls whose times are compared.
type callTimer struct {
	site
	credential string
	fields     string // more of the body
	status     int    // of the response; if 0, the callee is not available
	started    int
}

// start starts a call to a user. It returns its ID, and when the server sent the response.
func (c *callTimer) start(b *testing.B, callee string) (id string, answered time.Time) {
	b.Helper()
	body := fmt.Sprintf(`{"from":%q,"to":%q%s}`, c.caller(), callee, c.fields)
	var address string
	r, err := http.NewRequestWithContext(withAddress(b.Context(), &address), http.MethodPost,
		c.server(0)+c.namespace+"/calls", strings.NewReader(body))
	require.NoError(b, err)
	r.Header.Set("Authorization", "Bearer "+c.credential)
	c.sent.begin()
	answer, err := http.DefaultClient.Do(r)
	require.NoError(b, err)
	defer answer.Body.Close()
	var call struct{ ID, Code string }
	require.NoError(b, json.NewDecoder(answer.Body).Decode(&call))
	if c.status == 0 {
		require.Equal(b, "callee_unavailable", call.Code)
	} else {
		require.Equal(b, c.status, answer.StatusCode)
	}
	return call.ID, c.sent.since(address)
}

// untilResponse returns what starts a call to a user, and ends it. It returns the time until the response to the start.
func (c *callTimer) untilResponse(b *testing.B, callee string) timer {
	b.Helper()
	return func() time.Duration {
		begun := time.Now()
		id, answered := c.start(b, callee)
		c.end(b, id)
		return answered.Sub(begun)
	}
}

// untilFrame returns what starts a call of a connected user, and ends it. It returns the time from the response to the
// start until the connection is sent the call.
func (c *callTimer) untilFrame(b *testing.B, callee string) timer {
	b.Helper()
	return func() time.Duration {
		socket := c.connect(b, 0, c.caller(), `,"device":{"id":"phone","kind":"mobile"}`)
		id, answered := c.start(b, callee)
		socket.await(b, "call")
		took := c.sent.since(socket.address).Sub(answered)
		c.end(b, id)
		_ = socket.CloseNow()
		return took
	}
}

// end ends a call, if there is one. The next one has another caller, since the calls of a user are limited.
func (c *callTimer) end(b *testing.B, id string) {
	b.Helper()
	if id != "" {
		c.do(b, 0, http.MethodPost, "/calls/"+id+"/end", fmt.Sprintf(`{"user":%q}`, c.caller()))
	}
	c.started++
}

// caller returns the user who calls. A token calls for its own user.
func (c *callTimer) caller() string {
	if c.credential != "ls_all" {
		return "stranger"
	}
	return fmt.Sprintf("caller-%06d", c.started)
}

// BenchmarkTimingNotices checks that the comparison notices 5 µs, and does not notice nothing. Times vary here as those
// of requests do: without that, it notices the nanosecond by which two copies of the same code differ.
func BenchmarkTimingNotices(b *testing.B) {
	spin := func(least time.Duration) timer {
		return timed(func() {
			end := least + rand.N(20*time.Microsecond) //nolint:gosec // not a secret
			for begun := time.Now(); time.Since(begun) < end; {
				continue
			}
		})
	}
	require.Less(b, differ(timeBoth(timingRounds, spin(50*time.Microsecond), spin(55*time.Microsecond))), 1e-4)
	sameTimes(b, "nothing", timingRounds, spin(50*time.Microsecond), spin(50*time.Microsecond))
}

// timingRounds is how often each thing is timed.
const timingRounds = 1000

// timer does something once, and returns how long that took.
type timer func() time.Duration

func timed(do func()) timer {
	return func() time.Duration {
		begun := time.Now()
		do()
		return time.Since(begun)
	}
}

// sameTimes fails the benchmark if one of two things takes longer than the other one, three times.
func sameTimes(b *testing.B, what string, rounds int, one, other timer) {
	b.Helper()
	var p float64
	for range 3 {
		if p = differ(timeBoth(rounds, one, other)); p > 1e-4 {
			return
		}
	}
	b.Fatalf("%s: the times differ: p = %g", what, p)
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
