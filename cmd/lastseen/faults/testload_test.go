//go:build faults

package faults

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// loadOptions describe the clients of a load. The zero value of a field means its default.
type loadOptions struct {
	seed      uint64 // the same seed sends the same requests; default 1
	namespace string // default chat
	users     int    // default 500
	workers   int    // clients that ping, with one request at a time; default 8
	readers   int    // clients that look up users who were acknowledged; default 2
	rate      int    // requests per second of all clients together, at most; default 400
	leaves    float64
	timeout   time.Duration // of one request; default awaitFor
}

func (o loadOptions) withDefaults() loadOptions {
	setDefault(&o.seed, 1)
	setDefault(&o.namespace, "chat")
	setDefault(&o.users, 500)
	setDefault(&o.workers, 8)
	setDefault(&o.readers, 2)
	setDefault(&o.rate, 400)
	setDefault(&o.timeout, awaitFor)
	return o
}

func setDefault[T comparable](value *T, instead T) {
	if *value == *new(T) {
		*value = instead
	}
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
	slowest        time.Duration  // of all requests with a response
	slowestFailure time.Duration  // of those, and of requests without a response
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
	return fmt.Sprintf("%d pings, %d lookups, failures %v, slowest %s, slowest failure %s",
		s.pings, s.lookups, s.failures, s.slowest, s.slowestFailure)
}

// startLoad starts the clients. They stop at the latest when the test ends.
func startLoad(t testing.TB, options loadOptions, urls ...string) *load {
	t.Helper()
	options = options.withDefaults()
	clients := options.workers + options.readers
	l := &load{
		ledger: newLedger(), options: options, urls: urls, done: make(chan struct{}),
		client: &http.Client{
			Timeout: options.timeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients},
		},
		stats: loadStats{failures: map[string]int{}},
	}
	t.Logf("load: %+v", options)
	for i := range clients {
		random := rand.New(rand.NewPCG(options.seed, uint64(i)))
		pause := time.Second * time.Duration(clients) / time.Duration(options.rate)
		step := l.write
		if i >= options.workers {
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
	t.Log(stats)
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

// reset forgets what the clients got, but not what was acknowledged, and returns it.
func (l *load) reset() loadStats {
	stats := l.snapshot()
	l.statMu.Lock()
	defer l.statMu.Unlock()
	l.stats = loadStats{failures: map[string]int{}}
	return stats
}

// awaitPings waits until n more pings succeeded.
func (l *load) awaitPings(t testing.TB, n int) {
	t.Helper()
	begin := l.snapshot().pings
	await(t, fmt.Sprintf("%d more pings", n), func() bool { return l.snapshot().pings >= begin+n })
}

// awaitFailures waits until n more requests failed.
func (l *load) awaitFailures(t testing.TB, n int) {
	t.Helper()
	begin := l.snapshot().failed()
	await(t, fmt.Sprintf("%d more failures", n), func() bool { return l.snapshot().failed() >= begin+n })
}

// write pings a random user, or lets them leave.
func (l *load) write(random *rand.Rand) {
	user, kind := l.user(random), "ping"
	if random.Float64() < l.options.leaves {
		kind = "leave"
	}
	sent := time.Now()
	end := l.attempt(user)
	body, ok := l.call(random, http.MethodPost, "/users/"+user+"/"+kind)
	if ok {
		l.acknowledgeBody(user, body, sent)
		l.count(func(s *loadStats) { s.pings++ })
	}
	end(ok)
}

// read looks up a random user.
func (l *load) read(random *rand.Rand) {
	user, began := l.user(random), time.Now()
	if body, ok := l.call(random, http.MethodGet, "/users/"+user); ok {
		l.checkBody(user, body, began)
		l.count(func(s *loadStats) { s.lookups++ })
	}
}

func (l *load) user(random *rand.Rand) string {
	return fmt.Sprintf("user-%d", random.IntN(l.options.users))
}

func (l *load) count(add func(*loadStats)) {
	l.statMu.Lock()
	defer l.statMu.Unlock()
	add(&l.stats)
}

// call sends a request to a random server and reports whether it succeeded. It counts failures.
func (l *load) call(random *rand.Rand, method, path string) (body []byte, ok bool) {
	return l.callServer(l.urls[random.IntN(len(l.urls))], method, path, nil)
}

// callServer sends a request with a body of JSON, or without one, to a server.
func (l *load) callServer(server, method, path string, json []byte) (body []byte, ok bool) {
	target := server + "/v1/namespaces/" + url.PathEscape(l.options.namespace) + path
	request, err := http.NewRequest(method, target, bytes.NewReader(json))
	if err != nil {
		l.violate("%v", err)
		return nil, false
	}
	if json != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	r, err := send(l.client, request)
	failure := ""
	switch {
	case err != nil:
		failure = "unreachable"
	case r.status != http.StatusOK:
		failure = fmt.Sprintf("%d %s", r.status, r.code)
	}
	l.count(func(s *loadStats) {
		s.slowest = max(s.slowest, r.took)
		if failure != "" {
			s.failures[failure]++
			s.slowestFailure = max(s.slowestFailure, r.took)
		}
	})
	return r.body, failure == ""
}

// verify looks up all users with an acknowledged write at a server, as [ledger.verify] does.
func (l *load) verify(t testing.TB, server string) int {
	t.Helper()
	return l.ledger.verify(t, server, l.options.namespace)
}
