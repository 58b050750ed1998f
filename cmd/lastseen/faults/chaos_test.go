//go:build faults

package faults

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const (
	// chaosVar is the environment variable with how long TestChaos runs, such as 1h.
	chaosVar = "LASTSEEN_TEST_CHAOS"
	// seedVar is the one with the seed of its faults.
	seedVar = "LASTSEEN_TEST_SEED"
)

// chaosServers is the number of servers. The first has a clock that is set, the last is behind proxies.
const chaosServers = 3

// chaosReplicas is the number of replicas of Redis.
const chaosReplicas = 2

// followWindow is far beyond the time in which servers follow the Sentinels to a new primary.
const followWindow = 5 * time.Second

// longestRecovery is how long all may take to work again after a fault. It is far beyond what is promised, for machines
// that are busy: the tests of single faults measure that.
const longestRecovery = 3 * time.Minute

// chaos is what TestChaos breaks.
type chaos struct {
	*load
	t       *testing.T
	seed    uint64
	wait    int // --redis-wait
	began   time.Time
	watched *redistest.Sentinel
	primary *redistest.Process // when all was in order
	epoch   string             // of the primary
	link    *link
	clock   steppedClock
	servers []*server
	probes  []*probe
	changes *watchers

	mu     sync.Mutex
	phase  phase
	active []string // faults of it
	report chaosReport
}

// chaosReport is what happened.
type chaosReport struct {
	faults        map[string]int
	failovers     int
	unexpected    int           // of them
	slowest       time.Duration // recovery
	quietFailures int

	quiet, broken feedLags // while nothing was broken, and the rest of the time
}

// TestChaos breaks three servers, a Redis and its replicas at random, one or two parts at a time. Clients check every
// response, watchers of the changes feed check every event, and after each repair every acknowledged write is looked up
// at every server. With an even seed, failovers
// can lose the writes of the last moments. With an odd one, --redis-wait is the number of replicas: nothing is lost.
func TestChaos(t *testing.T) {
	if os.Getenv(chaosVar) == "" {
		t.Skip("takes an hour: make test-chaos")
	}
	total, err := time.ParseDuration(os.Getenv(chaosVar))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(seedVar), strconv.Itoa(rand.IntN(1_000_000))), 10, 64)
	require.NoError(t, err)
	c := startChaos(t, seed)
	for i, p := range schedule(seed, total) {
		if time.Since(c.began) > total {
			break
		}
		t.Logf("%s: phase %d: %s", c.elapsed(), i, p)
		c.mu.Lock()
		c.phase = p
		c.mu.Unlock()
		c.run(p)
	}
	c.finish()
}

// startChaos starts everything that breaks, and its clients.
func startChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: seed, began: time.Now(), wait: int(seed%2) * chaosReplicas, clock: newSteppedClock(t)}
	c.report.faults = map[string]int{}
	t.Logf("%s=%d, --redis-wait %d", seedVar, seed, c.wait)
	c.watched = redistest.StartSentinelWith(t, chaosReplicas, "--appendfsync", "always")
	c.link = startLink(t, c.watched)
	thresholds := lastseen.Thresholds{Green: 20 * time.Second, Yellow: time.Minute}
	args := []string{
		"--green", thresholds.Green.String(), "--yellow", thresholds.Yellow.String(), "--ping-interval", "5s", "--redis-wait", strconv.Itoa(c.wait),
	}
	c.servers = []*server{
		c.clock.startOn(t, buildWithClock(t), c.watched.URL(), args...),
		startServer(t, c.watched.URL(), args...),
		startServer(t, c.link.url(), args...),
	}
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, s.url)
	}
	c.load = startLoad(t, loadOptions{
		seed: seed + 1, users: 5000, workers: 16, readers: 8, rate: 300, leaves: 0.1, timeout: longestFailure,
	}, urls...)
	c.load.mu.Lock()
	c.describe = c.context
	c.load.mu.Unlock()
	for _, s := range c.servers {
		c.probes = append(c.probes, startProbe(t, c.load, s))
	}
	awaitFeed(t, c.watched.Nodes[0], c.servers[1])
	c.changes = startWatchers(t, c.load, 2, thresholds)
	c.recover()
	return c
}

// run breaks what a phase says, repairs it, and checks that all works again and nothing is lost.
func (c *chaos) run(p phase) {
	began, failed := time.Now(), c.snapshot().failed()
	c.report.broken.merge(c.changes.takeLags())
	time.Sleep(p.quiet)
	c.report.quiet.merge(c.changes.takeLags())
	failed = c.snapshot().failed() - failed
	c.report.quietFailures += failed
	for _, probe := range c.probes {
		probe.reset()
	}
	c.requireKept(c.t)
	end := c.breakAndRepair(p)
	begin, epoch := time.Now(), c.epoch
	replaced := c.recover()
	c.report.slowest = max(c.report.slowest, time.Since(begin))
	failedOver := c.epoch != epoch
	if failedOver {
		c.report.failovers++
	}
	switch {
	case end != nil && failedOver && replaced.IsZero(): // and replaced the new one by the old one
		end(time.Now())
	case end != nil && failedOver:
		end(replaced.Add(followWindow))
	case end != nil:
		end(time.Time{})
	case failedOver && c.wait == 0:
		c.report.unexpected++
		c.t.Logf("%s: a failover without a cause: is this machine too busy?", c.elapsed())
		c.suspect(began.Add(-replicationWindow))(time.Now())
	}
	users, gaps := 0, []time.Duration{}
	for i, s := range c.servers {
		gaps = append(gaps, c.probes[i].snapshot().recent)
		users = c.verify(c.t, s.url)
	}
	requireOnly(c.t, c.snapshot(), "unreachable", "503 store_unavailable", "503 store_full", "503 shutting_down",
		overloaded)
	c.t.Logf("%s: all works again after %s; failover: %t; %d users verified; %d failures in the quiet time; the longest "+
		"times without a ping at each server: %s", c.elapsed(), time.Since(begin).Round(time.Millisecond), failedOver,
		users, failed, gaps)
}

// breakAndRepair lets the faults of a phase begin and end. It returns what ends the time whose acknowledged
// writes can be lost, as [ledger.suspect] does, or nil if none can.
func (c *chaos) breakAndRepair(p phase) (endSuspicion func(to time.Time)) {
	type moment struct {
		at time.Duration
		do func()
	}
	var moments []moment
	for _, f := range p.faults {
		var end func()
		moments = append(moments, moment{f.after, func() {
			if f.kind.loses && c.wait < chaosReplicas {
				endSuspicion = c.suspect(time.Now().Add(-replicationWindow))
			}
			c.logFault(f, true)
			end = f.kind.begin(c, f)
		}}, moment{f.after + f.lasts, func() {
			end()
			c.logFault(f, false)
		}})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	began := time.Now()
	for _, m := range moments {
		time.Sleep(time.Until(began.Add(m.at)))
		m.do()
	}
	return endSuspicion
}

// logFault logs that a fault begins or has ended.
func (c *chaos) logFault(f fault, begins bool) {
	verb := "ended"
	c.mu.Lock()
	if begins {
		verb = "begins"
		c.report.faults[f.kind.name]++
		c.active = append(c.active, f.kind.name)
	} else {
		c.active = slices.DeleteFunc(c.active, func(name string) bool { return name == f.kind.name })
	}
	c.mu.Unlock()
	c.t.Logf("%s: %s (%d) %s", c.elapsed(), f.kind.name, f.variant, verb)
}

func (c *chaos) elapsed() time.Duration { return time.Since(c.began).Round(10 * time.Millisecond) }

// context describes when a violation happened.
func (c *chaos) context() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("seed %d, %s after the start, in the phase %q, broken now [%s]", c.seed, c.elapsed(), c.phase,
		strings.Join(c.active, ", "))
}

// recover waits until Redis is in order and every server accepts pings. It returns when it noticed that the Sentinels
// have replaced the primary; zero if they have not.
func (c *chaos) recover() (replaced time.Time) {
	c.t.Helper()
	old := c.primary
	deadline := time.Now().Add(longestRecovery)
	works := func(what string, check func() error) {
		for ; ; time.Sleep(100 * time.Millisecond) {
			err := check()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("%s: %s does not work again after %s: %v", c.context(), what, longestRecovery, err)
			}
		}
	}
	works("Redis", func() error {
		if now := c.watched.Primary(); now != nil && now != old && replaced.IsZero() {
			replaced = time.Now()
		}
		primary, epoch, err := c.watched.Settled()
		if err == nil {
			c.primary, c.epoch = primary, epoch
		}
		return err
	})
	for i, s := range c.servers {
		pings := c.probes[i].snapshot().pings
		works("server "+s.url, func() error {
			if !s.running() {
				c.t.Fatalf("%s: %s ended", c.context(), s.url)
			}
			if now := c.probes[i].snapshot(); now.pings < pings+3 || now.failing {
				return fmt.Errorf("pings fail: %+v", now)
			}
			if !s.ready(c.t) {
				return errors.New("not ready")
			}
			return nil
		})
	}
	for _, w := range c.changes.all {
		since := lastseen.InstantOf(time.Now())
		works("watcher "+w.name, func() error {
			c.requireKept(c.t)
			if s := w.snapshot(); s.asOf <= since {
				return fmt.Errorf("told up to %s: %v", s.asOf, s.problems)
			}
			return nil
		})
	}
	return replaced
}

// finish stops the clients, checks everything once more, and logs what happened.
func (c *chaos) finish() {
	stats := c.stop(c.t)
	for _, p := range c.probes {
		p.end()
	}
	resets, _ := c.changes.finish(c.t, c.servers[0].url)
	for i, s := range c.servers {
		c.verify(c.t, s.url)
		c.t.Logf("%s: no ping succeeded for %s at the longest", s.url, c.probes[i].snapshot().longest)
	}
	r := &c.report
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		c.t.Logf("%3d × %s", r.faults[kind], kind)
	}
	c.t.Logf("seed %d, %s, --redis-wait %d: %d acknowledged writes, %d checks of a user, failures %v, %d of them in "+
		"quiet times; %d failovers, %d of them without a fault; slowest recovery of all parts %s", c.seed, c.elapsed(), c.wait,
		c.acks, c.checks, stats.failures, r.quietFailures, r.failovers, r.unexpected, r.slowest.Round(time.Millisecond))
	c.t.Logf("the changes feed: %d resets of one watcher at most; in quiet times %s; in the rest of the time %s", resets,
		&r.quiet, &r.broken)
}
