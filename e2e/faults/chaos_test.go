//go:build faults

package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
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

// chaos is what TestChaos breaks. Its redis is the primary, when all was in order.
type chaos struct {
	*system
	seed   uint64
	wait   int // --redis-wait
	began  time.Time
	epoch  string // of the primary
	link   *link
	clock  steppedClock
	probes []*load // one for each server, to know how long it does not serve

	faults                map[string]int // how many there were
	failovers, unexpected int            // of them
	certain               int            // users whose status the receiver was last checked for

	mu   sync.Mutex
	last string // what happened
}

// TestChaos breaks three servers, a Redis and its replicas at random, one or two parts at a time. Clients check every
// response, watchers of the changes feed check every event, and after each repair every acknowledged write is looked up
// at every server. With an even seed, failovers can lose the writes of the last moments. With an odd one, --redis-wait
// is the number of replicas: nothing is lost.
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
		c.logf("phase %d: %s", i, p)
		c.run(p)
	}
	c.finish()
}

// startChaos starts everything that breaks, and its clients.
func startChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{
		system: &system{fault: &fault{}, t: t}, seed: seed, began: time.Now(), wait: int(seed%2) * chaosReplicas,
		clock: newSteppedClock(t), faults: map[string]int{},
	}
	c.logf("%s=%d, --redis-wait %d", seedVar, seed, c.wait)
	c.watched = redistest.StartSentinelWith(t, chaosReplicas, "--appendfsync", "always")
	c.link = startLink(t, c.watched)
	thresholds := lastseen.Thresholds{Green: 20 * time.Second, Yellow: time.Minute}
	ledger := newLedger()
	ledger.describe = c.context
	c.receiver = startReceiver(t, ledger, thresholds)
	args := append(hookArgs(t, map[string]*receiver{"app": c.receiver}),
		"--green", thresholds.Green.String(), "--yellow", thresholds.Yellow.String(), "--ping-interval", "5s",
		"--redis-wait", strconv.Itoa(c.wait))
	c.servers = []*server{
		c.clock.startOn(t, c.watched.URL(), args...), startServer(t, c.watched.URL(), args...),
		startServer(t, c.link.url(), args...),
	}
	c.load = startLoad(t, loadOptions{
		seed: seed + 1, users: 5000, workers: 16, readers: 8, rate: 300, ledger: ledger,
	}, c.servers...)
	for i, s := range c.servers {
		c.probes = append(c.probes, startLoad(t, loadOptions{
			name: fmt.Sprintf("probe-%d", i), users: 1, workers: 1, readers: 1, rate: 20, ledger: ledger,
		}, s))
	}
	awaitFeed(t, c.watched.Nodes[0], c.servers[1])
	c.watchers = startWatchers(t, c.load, 2, thresholds)
	c.recover()
	return c
}

// run breaks what a phase says, repairs it, and checks that all works again and nothing is lost.
func (c *chaos) run(p phase) {
	began := time.Now()
	time.Sleep(p.quiet)
	for _, probe := range c.probes {
		probe.reset()
	}
	c.load.requireKept(c.t)
	end := c.breakAndRepair(p)
	begin, epoch := time.Now(), c.epoch
	replaced := c.recover()
	failedOver := c.epoch != epoch
	if failedOver {
		c.failovers++
	}
	switch {
	case end != nil && failedOver && replaced.IsZero(): // and replaced the new one by the old one
		end(time.Now())
	case end != nil && failedOver:
		end(replaced.Add(followWindow))
	case end != nil:
		end(time.Time{})
	case failedOver && c.wait == 0:
		c.unexpected++
		c.logf("a failover without a cause: is this machine too busy?")
		c.load.suspect(began.Add(-replicationWindow))(time.Now())
	}
	var gaps []time.Duration
	for i, s := range c.servers {
		gaps = append(gaps, c.probes[i].reset().gap.Round(time.Millisecond))
		c.load.verify(c.t, s)
		requireOnly(c.t, c.probes[i].snapshot(), chaosFailures()...)
	}
	requireOnly(c.t, c.load.snapshot(), chaosFailures()...)
	c.logf("all works again after %s, the receiver checked for %d users; failover: %t; the longest times without a "+
		"ping at each server: %s", time.Since(begin).Round(time.Millisecond), c.certain, failedOver, gaps)
}

// chaosFailures are what clients may get.
func chaosFailures() []string {
	return []string{unreachable, storeUnavailable, storeFull, "503 shutting_down", overloaded}
}

// setClock sets the clock of the machine of the first server, by hours that depend on the schedule.
func (c *chaos) setClock(f incident) (end func()) {
	hours := []time.Duration{1, -1, 1000, -1000}[f.lasts/(100*time.Millisecond)%4]
	c.clock.set(c.t, hours*time.Hour)
	return func() { c.clock.set(c.t, 0) }
}

// replica returns one of the replicas.
func (c *chaos) replica(f incident) *redistest.Process {
	nodes := c.watched.Nodes
	for i := range nodes {
		if node := nodes[(f.variant+i)%len(nodes)]; node != c.redis {
			return node
		}
	}
	return nil
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
				endSuspicion = c.load.suspect(time.Now().Add(-replicationWindow))
			}
			c.faults[f.kind.name]++
			c.logf("%s begins", f)
			end = f.kind.begin(c, f)
		}}, moment{f.after + f.lasts, func() {
			end()
			c.logf("%s has ended", f)
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

func (c *chaos) elapsed() time.Duration { return time.Since(c.began).Round(10 * time.Millisecond) }

// logf logs what happens. Violations are described with the last of it.
func (c *chaos) logf(format string, args ...any) {
	c.mu.Lock()
	c.last = fmt.Sprintf("seed %d, %s after the start: ", c.seed, c.elapsed()) + fmt.Sprintf(format, args...)
	c.mu.Unlock()
	c.t.Log(c.context())
}

// context describes when a violation happened.
func (c *chaos) context() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// recover waits until Redis is in order, every server accepts pings and every watcher is told all. It returns when it
// noticed that the Sentinels have replaced the primary; zero if they have not.
func (c *chaos) recover() (replaced time.Time) {
	c.t.Helper()
	old := c.redis
	c.works("Redis", func() error {
		if now := c.watched.Primary(); now != nil && now != old && replaced.IsZero() {
			replaced = time.Now()
		}
		primary, epoch, err := c.watched.Settled()
		if err == nil {
			c.redis, c.epoch = primary, epoch
		}
		return err
	})
	for i, s := range c.servers {
		pings := c.probes[i].snapshot().pings
		c.works("server "+s.url, func() error {
			if !s.running() {
				c.t.Fatalf("%s: %s ended", c.context(), s.url)
			}
			if now := c.probes[i].snapshot(); now.pings < pings+3 || now.failing || !s.ready(c.t) {
				return fmt.Errorf("not ready, or pings fail: %s", now)
			}
			return nil
		})
	}
	for _, w := range c.watchers.all {
		since := lastseen.InstantOf(time.Now())
		c.works("watcher "+w.name, func() error {
			c.load.requireKept(c.t)
			if s := w.snapshot(); s.asOf <= since {
				return fmt.Errorf("told up to %s: %v", s.asOf, s.problems)
			}
			return nil
		})
	}
	// After many failures, what everyone's state is can be uncertain for minutes: finish requires that it is known.
	c.works("the receiver of a webhook", func() (err error) {
		c.load.requireKept(c.t)
		c.certain, err = c.receiver.check()
		return err
	})
	return replaced
}

// works waits until a part works again.
func (c *chaos) works(what string, check func() error) {
	c.t.Helper()
	deadline := time.Now().Add(longestRecovery)
	for err := check(); err != nil; err = check() {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %s does not work again after %s: %v", c.context(), what, longestRecovery, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// finish stops the clients, checks everything once more, and logs what happened.
func (c *chaos) finish() {
	for _, p := range c.probes {
		p.stop(c.t)
	}
	c.watchers.finish(c.t, c.servers[0])
	c.receiver.awaitTrue(c.t)
	for _, s := range c.servers {
		c.load.verify(c.t, s)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.faults)) {
		c.t.Logf("%3d × %s", c.faults[kind], kind)
	}
	c.t.Logf("the receiver of a webhook: %+v", c.receiver.snapshotStats())
	resets, _ := c.watchers.resets()
	c.t.Logf("seed %d, %s, --redis-wait %d: %d acknowledged writes, %d checks of a user; %d failovers, %d of them "+
		"without a fault; %d resets of one watcher at most", c.seed, c.elapsed(), c.wait, c.load.acks, c.load.checks,
		c.failovers, c.unexpected, resets)
}
