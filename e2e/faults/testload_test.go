//go:build faults

package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// loadOptions describe the clients of a load. The zero value of a field means its default.
type loadOptions struct {
	seed      uint64  // the same seed sends the same requests; default 1
	namespace string  // default chat
	name      string  // of users, before their numbers; default user
	users     int     // default 500
	workers   int     // clients that ping, with one request at a time; default 8
	readers   int     // clients that look up users who were acknowledged; default 2
	rate      int     // requests per second of all clients together, at most; default 200
	leaves    float64 // of all pings and leaves; default 0.1
	ledger    *ledger // default one of its own
}

func (o loadOptions) withDefaults() loadOptions {
	o.seed, o.namespace, o.name = cmp.Or(o.seed, 1), cmp.Or(o.namespace, "chat"), cmp.Or(o.name, "user")
	o.users, o.workers, o.readers = cmp.Or(o.users, 500), cmp.Or(o.workers, 8), cmp.Or(o.readers, 2)
	o.rate, o.leaves = cmp.Or(o.rate, 200), cmp.Or(o.leaves, 0.1)
	if o.ledger == nil {
		o.ledger = newLedger()
	}
	return o
}

// load is clients that ping random users, leave and look up, at servers in turn, until stop. Their ledger checks what
// they got.
type load struct {
	*ledger
	options loadOptions
	urls    []string
	client  *http.Client
	done    chan struct{}
	workers sync.WaitGroup

	statMu sync.Mutex
	stats  loadStats
}

// loadStats are what the clients got.
type loadStats struct {
	pings, lookups int            // that succeeded
	failures       map[string]int // by status and code; unreachable for requests without a response
	failing        bool           // the last ping did
	since          time.Time      // the last ping that succeeded
	gap            time.Duration  // the longest one between two of them
}

func (s loadStats) failed() (sum int) {
	for _, n := range s.failures {
		sum += n
	}
	return sum
}

// requireOnly fails the test if there were other failures than these.
func requireOnly(t testing.TB, s loadStats, allowed ...string) {
	t.Helper()
	for failure := range s.failures {
		require.Contains(t, allowed, failure)
	}
}

func (s loadStats) String() string {
	return fmt.Sprintf("%d pings, %d lookups, failures %v, no ping for %s at most", s.pings, s.lookups, s.failures,
		s.gap.Round(time.Millisecond))
}

// startLoad starts the clients. They stop at the latest when the test ends.
func startLoad(t testing.TB, options loadOptions, servers ...*server) *load {
	t.Helper()
	o := options.withDefaults()
	clients := o.workers + o.readers
	l := &load{
		ledger: o.ledger, options: o, done: make(chan struct{}),
		client: &http.Client{Timeout: awaitFor, Transport: &http.Transport{MaxIdleConnsPerHost: clients}},
		stats:  loadStats{failures: map[string]int{}, since: time.Now()},
	}
	for _, s := range servers {
		l.urls = append(l.urls, s.url)
	}
	for i := range clients {
		random := rand.New(rand.NewPCG(o.seed, uint64(i)))
		pause := time.Second * time.Duration(clients) / time.Duration(o.rate)
		step := l.write
		if i >= o.workers {
			step = l.read
		}
		l.workers.Go(func() { l.repeat(random, pause, step) })
	}
	t.Cleanup(l.end)
	return l
}

// repeat runs a step with a pause after it, until the load ends.
func (l *load) repeat(random *rand.Rand, pause time.Duration, step func(*rand.Rand)) {
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-ticks.C:
			step(random)
		}
	}
}

// end stops the clients and waits for their last responses.
func (l *load) end() {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	l.workers.Wait()
	l.client.CloseIdleConnections()
}

// stop ends the clients, fails the test if a response broke a rule, and returns what the clients got.
func (l *load) stop(t testing.TB) loadStats {
	t.Helper()
	l.end()
	stats := l.snapshot()
	t.Logf("%s of %s: %s", l.options.name, l.options.namespace, stats)
	l.requireKept(t)
	return stats
}

// snapshot returns what the clients got so far.
func (l *load) snapshot() loadStats {
	l.statMu.Lock()
	defer l.statMu.Unlock()
	stats := l.stats
	stats.failures = maps.Clone(stats.failures)
	return stats
}

// reset forgets the longest time without a ping, and returns what the clients got so far.
func (l *load) reset() loadStats {
	stats := l.snapshot()
	l.count(func(s *loadStats) { s.gap = 0 })
	return stats
}

// awaitMore waits until n more of something was counted.
func (l *load) awaitMore(t testing.TB, n int, what string, count func(loadStats) int) {
	t.Helper()
	begin := count(l.snapshot())
	await(t, fmt.Sprintf("%d more %s", n, what), func() bool { return count(l.snapshot()) >= begin+n })
}

// awaitPings waits until n more pings succeeded.
func (l *load) awaitPings(t testing.TB, n int) {
	t.Helper()
	l.awaitMore(t, n, "pings", func(s loadStats) int { return s.pings })
}

// awaitLookups waits until n more lookups succeeded.
func (l *load) awaitLookups(t testing.TB, n int) {
	t.Helper()
	l.awaitMore(t, n, "lookups", func(s loadStats) int { return s.lookups })
}

// awaitFailures waits until n more requests failed.
func (l *load) awaitFailures(t testing.TB, n int) {
	t.Helper()
	l.awaitMore(t, n, "failures", loadStats.failed)
}

// write pings a random user, or lets them leave.
func (l *load) write(random *rand.Rand) {
	kind := "ping"
	if random.Float64() < l.options.leaves {
		kind = "leave"
	}
	l.record(l.anyServer(random), l.user(random), kind)
}

// record pings a user, or lets them leave.
func (l *load) record(server, user, kind string) response {
	sent := time.Now()
	end := l.attempt(user)
	r, ok := l.call(server, http.MethodPost, "/users/"+user+"/"+kind, nil)
	if ok {
		l.acknowledgeBody(user, r.body, sent)
	}
	l.count(func(s *loadStats) {
		s.failing = !ok
		if now := time.Now(); ok {
			s.pings++
			s.gap, s.since = max(s.gap, now.Sub(s.since)), now
		}
	})
	end(ok)
	return r
}

// read looks up a random user, or sometimes one who never pings.
func (l *load) read(random *rand.Rand) {
	user, began := l.user(random), time.Now()
	if random.IntN(20) == 0 {
		user = fmt.Sprintf("never-%d", random.IntN(100))
	}
	if r, ok := l.call(l.anyServer(random), http.MethodGet, "/users/"+user, nil); ok {
		l.checkBody(user, r.body, began)
		l.count(func(s *loadStats) { s.lookups++ })
	}
}

func (l *load) user(random *rand.Rand) string {
	return fmt.Sprintf("%s-%d", l.options.name, random.IntN(l.options.users))
}

func (l *load) anyServer(random *rand.Rand) string { return l.urls[random.IntN(len(l.urls))] }

func (l *load) count(add func(*loadStats)) {
	l.statMu.Lock()
	defer l.statMu.Unlock()
	add(&l.stats)
}

// path is a path of the namespace.
func (l *load) path(path string) string {
	return "/v1/namespaces/" + url.PathEscape(l.options.namespace) + path
}

// call sends a request, with a body of JSON or none, to a server and reports whether it succeeded. It counts failures.
func (l *load) call(server, method, path string, body any) (r response, ok bool) {
	r, _ = sendWith(l.client, method, server+l.path(path), body) // without a response, it is unreachable
	failure := r.failure()
	if failure != "" {
		l.count(func(s *loadStats) { s.failures[failure]++ })
	}
	return r, failure == ""
}

// verify looks up all users with an acknowledged write at a server, and fails the test unless each is as the ledger
// requires. It returns them.
func (l *load) verify(t testing.TB, s *server) map[string]lastseen.State {
	t.Helper()
	states := map[string]lastseen.State{}
	for users := range slices.Chunk(l.names(), 500) {
		await(t, "a lookup of many users", func() bool {
			began := time.Now()
			r, err := send(http.MethodPost, s.url+l.path("/lookup"), map[string]any{"users": users})
			require.NoError(t, err)
			if r.status == http.StatusServiceUnavailable { // overloaded
				return false
			}
			found := decode[lookup](t, r)
			require.Len(t, found.Users, len(users))
			for _, user := range found.Users {
				l.check(user, found.evaluated, began)
				states[user.User] = must(user.state())
			}
			return true
		})
	}
	l.requireKept(t)
	return states
}

// lookup is the response to a lookup of several users.
type lookup struct {
	evaluated
	Users []presence `json:"users"`
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// requireKept fails the test if a response broke a rule of the ledger.
func (l *ledger) requireKept(t testing.TB) {
	t.Helper()
	if broken := l.broken(); len(broken) > 0 {
		t.Fatalf("rules of the ledger are broken:\n%s", strings.Join(broken, "\n"))
	}
}
