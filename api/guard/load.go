package guard

import (
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen/api/problem"
)

const (
	loadPause = 100 * time.Millisecond // between two readings of the load
	// loadReadings is over how many readings the load is smoothed. The load reaches 0.5 only if the server works at its
	// limit for 1.4 seconds, or at three quarters of it for 2.2. A pause of a slow machine does not get there.
	loadReadings = 20
	leastLoad    = 0.005 // less counts as none
	// maxCalls is the number of calls to the store in progress that counts as full load. A server that keeps up has as
	// many as it serves in a few milliseconds, and no more than it has connections. At 45,000 pings a second, which
	// bench/RESULTS.md has for two cores, these are the calls of a third of a second.
	maxCalls = 1 << 14
)

// rung is how much is refused, from 0 for nothing. A rung refuses what those below it refuse, and more.
type rung int32

// The rungs. Single pings and leaves are on none: they are refused only by a store whose queue is full.
const (
	rungDeep    rung = iota + 1 // lists beyond the first small page, and counts
	rungBulk                    // all other lists, and bulk pings and leaves
	rungLookups                 // lookups, of one user or many, and new requests for changes
)

// hysteresis is how far the load falls below the threshold of a rung until the rung is left, so that refusing requests
// does not at once admit them again.
const hysteresis = 0.1

// rungAt returns the rung of a load that rises.
func rungAt(load float64) rung {
	switch {
	case load >= 0.8:
		return rungLookups
	case load >= 0.65:
		return rungBulk
	case load >= 0.5:
		return rungDeep
	default:
		return 0
	}
}

// next returns the rung after r at a load.
func (r rung) next(load float64) rung { return max(rungAt(load), min(r, rungAt(load+hysteresis))) }

// String returns what the rung and those below it refuse, for the log.
func (r rung) String() string {
	return strings.Join([]string{"lists", "bulk requests", "lookups"}[:r], ", ")
}

// Kind is what requests that are refused together have in common.
type Kind int

// The kinds. Vital requests are never refused. They are single pings and leaves, and what is rare and operators need:
// deleting, settings, the availability of users and probes.
const (
	Vital Kind = iota
	DeepList
	List
	Bulk
	Lookup
	kinds
)

// Refuses reports whether the load leaves no room for requests of a kind.
func (o *Load) Refuses(k Kind) bool {
	refusedFrom := [kinds]rung{rungLookups + 1, rungDeep, rungBulk, rungBulk, rungLookups}
	return rung(o.rung.Load()) >= refusedFrom[k]
}

// Check returns an error with a detail if the load leaves no room for a request of a kind, and counts it.
func (o *Load) Check(k Kind, detail string) error {
	if !o.Refuses(k) {
		return nil
	}
	o.shed[k].Add(1)
	return problem.New(problem.Overloaded, detail).Because(problem.ErrShed)
}

// Load measures the load and decides what is refused. It reads the load every loadPause while there are requests, and
// then until the load is gone, so that it recovers without requests. A reading is a step in time, not of a clock.
type Load struct {
	logger *slog.Logger
	now    func() time.Time // for the log
	settle time.Duration    // without overload, until it is over

	store  atomic.Pointer[func() float64] // the load of the store; nil if there is none yet
	calls  atomic.Int64                   // to the store, in progress
	awake  atomic.Bool                    // the load is being read
	load   atomic.Uint64                  // the bits of a float64 in [0, 1]
	rung   atomic.Int32
	shed   [kinds]atomic.Int64 // requests refused, by kind
	factor atomic.Uint64       // the bits of the largest factor by which a namespace's interval can be stretched

	// Used by Read alone.
	highest rung // since the overload began; 0 if there is none
	began   time.Time
	calm    time.Duration // of readings since the last one on a rung
	before  [kinds]int64  // requests refused before the overload
}

// NewLoad returns a load that logs when requests are refused, and the end when none were for a time.
func NewLoad(logger *slog.Logger, now func() time.Time, settle time.Duration) *Load {
	return &Load{logger: logger, now: now, settle: settle}
}

// Level returns the load, in [0, 1].
func (o *Load) Level() float64 { return math.Float64frombits(o.load.Load()) }

// Stretch returns how far ping intervals are stretched, from 0 for not at all, at a load of 0.3, to 1 for as far as
// possible, at 0.8.
func (o *Load) Stretch() float64 { return min(1, max(0, (o.Level()-0.3)/(0.8-0.3))) }

// RetryAfter returns after how many seconds a client should try again what failed: 1 to 5 at random, given a number in
// [0, 1), so that clients that failed together do not come back together, and up to 15 under load.
func (o *Load) RetryAfter(random float64) int { return 1 + int(random*(5+10*o.Level())) }

// IntervalFactor returns by how much the ping interval of the namespace with the most room is stretched, 1 or more.
func (o *Load) IntervalFactor() float64 {
	return 1 + o.Stretch()*(max(1, math.Float64frombits(o.factor.Load()))-1)
}

// Export registers the metrics of the load.
func (o *Load) Export(register promauto.Factory) {
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_load", Help: "How close the server is to its limits, 0 to 1.",
	}, o.Level)
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_ping_interval_factor", Help: "By how much advised ping intervals are stretched now.",
	}, o.IntervalFactor)
	for kind, label := range map[Kind]string{List: "list", Bulk: "bulk", Lookup: "lookup"} {
		register.NewCounterFunc(prometheus.CounterOpts{
			Name: "lastseen_shed_requests_total", Help: "Requests refused to leave room for pings.",
			ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 { return float64(o.counts()[kind]) })
	}
}

// Configure makes the load of a store count, by a function that reads it. The factor is the largest by which the ping
// interval of a namespace can be stretched.
func (o *Load) Configure(load func() float64, factor float64) {
	o.store.Store(&load)
	o.factor.Store(math.Float64bits(factor))
}

// Begin notes that a call to the store begins, which counts as load until [Load.End].
func (o *Load) Begin() {
	o.calls.Add(1)
	if !o.awake.Load() {
		o.wake()
	}
}

// Calls returns how many calls are in progress.
func (o *Load) Calls() int64 { return o.calls.Load() }

// End notes that a call ends.
func (o *Load) End() { o.calls.Add(-1) }

// wake starts reading the load, unless it is being read.
func (o *Load) wake() {
	if o.awake.CompareAndSwap(false, true) {
		time.AfterFunc(loadPause, o.run)
	}
}

// run reads the load, and again after loadPause unless there is nothing to read.
func (o *Load) run() {
	calls := o.calls.Load()
	o.Read(max(float64(calls)/maxCalls, (*o.store.Load())()))
	if calls > 0 || o.Level() > 0 || o.highest > 0 {
		time.AfterFunc(loadPause, o.run)
		return
	}
	o.awake.Store(false)
	if o.calls.Load() > 0 { // a call that began meanwhile saw awake
		o.wake()
	}
}

// Read takes one reading of the load into account.
func (o *Load) Read(reading float64) {
	level := o.Level()
	level += (min(1, reading) - level) / loadReadings
	if level < leastLoad {
		level = 0
	}
	o.load.Store(math.Float64bits(level))
	current := rung(o.rung.Load()).next(level)
	o.rung.Store(int32(current))
	o.log(current, level)
}

// log logs when requests begin to be refused, when more kinds of them are, and the end, once the load has been low for
// the time to settle: a load that comes and goes is one overload.
func (o *Load) log(current rung, level float64) {
	if current > 0 {
		o.calm = 0
	} else {
		o.calm += loadPause
	}
	switch {
	case current > o.highest:
		if o.highest == 0 {
			o.began, o.before = o.now(), o.counts()
		}
		o.highest = current
		o.logger.Warn("overloaded; some requests are refused to leave room for pings",
			"load", math.Round(level*100)/100, "refused", current.String())
	case o.highest > 0 && o.calm >= o.settle:
		o.highest = 0
		shed := o.counts()
		o.logger.Info("no longer overloaded", "lists", shed[List]-o.before[List],
			"bulk", shed[Bulk]-o.before[Bulk], "lookups", shed[Lookup]-o.before[Lookup],
			"after", (o.now().Sub(o.began) - o.settle).Round(loadPause).String())
	}
}

// counts returns the requests refused so far. All lists are counted together.
func (o *Load) counts() (counts [kinds]int64) {
	for kind := range counts {
		counts[kind] = o.shed[kind].Load()
	}
	counts[List] += counts[DeepList]
	return counts
}
