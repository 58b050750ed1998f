package api

import (
	"errors"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/observe"
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

	calmReadings = int(settleTime / loadPause) // without overload, until it is over
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

// The load between which ping intervals are stretched, from not at all to as far as possible.
const (
	stretchFrom = 0.3
	stretchTo   = 0.8
)

// shedKind is what requests that are refused together have in common: the label kind of a metric.
type shedKind int

// The kinds. Deleting, settings, what users say and probes are never refused: they are few, and an operator needs them.
const (
	neverShed shedKind = iota
	shedList
	shedBulk
	shedLookup
	shedKinds
)

// shedKind returns the kind of the requests to a route.
func (r route) shedKind() shedKind {
	switch {
	case r.permission == list, strings.HasSuffix(r.path, "/users"), strings.HasSuffix(r.path, "/counts"):
		return shedList
	case r.permission == pingBulk:
		return shedBulk
	case strings.HasSuffix(r.path, "/lookup"), strings.HasSuffix(r.path, "/changes"), r.permission == readDevices,
		r.permission == readUser, r.permission == readCall,
		r.permission == read && strings.Contains(r.path, "/:user"):
		return shedLookup
	default:
		return neverShed
	}
}

// isDeep reports whether a list costs more than the first page of the default size. An invalid limit does not.
func isDeep(path string, q request.Query) bool {
	_, cursor := q.Get("cursor")
	_, offset := q.Get("offset")
	limit, _ := q.Get("limit")
	size, _ := strconv.Atoi(limit)
	return cursor || offset || size > request.DefaultLimit || strings.HasSuffix(path, "/counts")
}

// errShed is the cause of errors of requests that the ladder refuses.
var errShed = errors.New("refused to leave room for pings")

// checkLoad returns an error if the load leaves no room for a request to a route.
func (s *server) checkLoad(r route, kind shedKind, q request.Query) error {
	current := rung(s.overload.rung.Load())
	if current == 0 || kind == neverShed {
		return nil
	}
	refusedFrom := rungBulk // and the first pages of lists
	switch {
	case kind == shedLookup:
		refusedFrom = rungLookups
	case kind == shedList && isDeep(r.path, q):
		refusedFrom = rungDeep
	}
	if current < refusedFrom {
		return nil
	}
	s.overload.shed[kind].Add(1)
	return problem.New(problem.Overloaded, "The server is overloaded and refuses this request to leave room for "+
		"pings. It had no effect. Try again later.").Because(errShed)
}

// overload measures the load and decides what is refused. It reads the load every loadPause while there are requests,
// and then until the load is gone, so that it recovers without requests. A reading is a step in time, so nothing
// depends on a clock.
type overload struct {
	logger *slog.Logger
	now    func() time.Time // for the log

	store  atomic.Pointer[store.Store] // whose load counts; nil if there is none yet
	calls  atomic.Int64                // to the store, in progress
	awake  atomic.Bool                 // the load is being read
	load   atomic.Uint64               // the bits of a float64 in [0, 1]
	rung   atomic.Int32
	shed   [shedKinds]atomic.Int64 // requests refused, by kind
	factor atomic.Uint64           // the bits of the largest factor by which a namespace's interval can be stretched

	// Used by read alone.
	highest rung // since the overload began; 0 if there is none
	began   time.Time
	calm    int              // readings since the last one on a rung
	before  [shedKinds]int64 // requests refused before the overload
}

func newOverload(logger *slog.Logger, now func() time.Time) *overload {
	return &overload{logger: logger, now: now}
}

// level returns the load, in [0, 1].
func (o *overload) level() float64 { return math.Float64frombits(o.load.Load()) }

// stretch returns how far ping intervals are stretched, from 0 for not at all to 1 for as far as possible.
func (o *overload) stretch() float64 {
	return min(1, max(0, (o.level()-stretchFrom)/(stretchTo-stretchFrom)))
}

// intervalFactor returns by how much the ping interval of the namespace with the most room is stretched; 1 is not at
// all.
func (o *overload) intervalFactor() float64 {
	return 1 + o.stretch()*(max(1, math.Float64frombits(o.factor.Load()))-1)
}

// export registers the metrics of the load.
func (o *overload) export(register promauto.Factory) {
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_load", Help: "How close the server is to its limits, 0 to 1.",
	}, o.level)
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_ping_interval_factor", Help: "By how much advised ping intervals are stretched now.",
	}, o.intervalFactor)
	for kind, label := range map[shedKind]string{shedList: "list", shedBulk: "bulk", shedLookup: "lookup"} {
		register.NewCounterFunc(prometheus.CounterOpts{
			Name: "lastseen_shed_requests_total", Help: "Requests refused to leave room for pings.",
			ConstLabels: prometheus.Labels{"kind": label},
		}, func() float64 { return float64(o.shed[kind].Load()) })
	}
}

// configure makes the load of a store count, and the settings of the newest handler.
func (o *overload) configure(c Config) {
	o.store.Store(&c.Store)
	factor := c.Settings.maxFactor()
	for _, settings := range c.Namespaces {
		factor = max(factor, settings.maxFactor())
	}
	o.factor.Store(math.Float64bits(factor))
}

// counted returns a store whose calls for requests count as load while they are in progress. Requests whose bodies have
// not arrived, which anyone can make many of, do not count.
func (o *overload) counted(s store.Store) store.Store { return observe.InProgress(s, o.begin, o.end) }

// begin notes that a call to the store begins, and end that it ends.
func (o *overload) begin() {
	o.calls.Add(1)
	if !o.awake.Load() {
		o.wake()
	}
}

func (o *overload) end() { o.calls.Add(-1) }

// wake starts reading the load, unless it is being read.
func (o *overload) wake() {
	if o.awake.CompareAndSwap(false, true) {
		time.AfterFunc(loadPause, o.run)
	}
}

// run reads the load, and again after loadPause unless there is nothing to read.
func (o *overload) run() {
	calls := o.calls.Load()
	o.read(max(float64(calls)/maxCalls, (*o.store.Load()).Load()))
	if calls > 0 || o.level() > 0 || o.highest > 0 {
		time.AfterFunc(loadPause, o.run)
		return
	}
	o.awake.Store(false)
	if o.calls.Load() > 0 { // a call that began meanwhile saw awake
		o.wake()
	}
}

// read takes one reading of the load into account.
func (o *overload) read(reading float64) {
	level := o.level()
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
// settleTime: a load that comes and goes is one overload.
func (o *overload) log(current rung, level float64) {
	if current > 0 {
		o.calm = 0
	} else {
		o.calm++
	}
	switch {
	case current > o.highest:
		if o.highest == 0 {
			o.began, o.before = o.now(), o.counts()
		}
		o.highest = current
		o.logger.Warn("overloaded; some requests are refused to leave room for pings",
			"load", math.Round(level*100)/100, "refused", current.String())
	case o.highest > 0 && o.calm >= calmReadings:
		o.highest = 0
		shed := o.counts()
		o.logger.Info("no longer overloaded", "lists", shed[shedList]-o.before[shedList],
			"bulk", shed[shedBulk]-o.before[shedBulk], "lookups", shed[shedLookup]-o.before[shedLookup],
			"after", (o.now().Sub(o.began) - settleTime).Round(loadPause).String())
	}
}

// counts returns the requests refused so far.
func (o *overload) counts() (counts [shedKinds]int64) {
	for kind := range counts {
		counts[kind] = o.shed[kind].Load()
	}
	return counts
}

// stretched returns the ping interval to advise: the setting, or more of the room up to half of green, so that a user
// stays green even if a ping is lost.
func (s Settings) stretched(part float64) time.Duration {
	room := max(0, s.Thresholds.Green/2-s.PingInterval)
	return s.PingInterval + time.Duration(part*float64(room))
}

// maxFactor returns the largest factor by which the ping interval is stretched.
func (s Settings) maxFactor() float64 {
	if s.PingInterval <= 0 {
		return 1
	}
	return float64(s.stretched(1)) / float64(s.PingInterval)
}

// retryAfter returns the value of Retry-After of a 503: 1 to 5 seconds at random, so that clients that failed together
// do not come back together, and up to 15 seconds under load.
func (s *server) retryAfter() string {
	return strconv.Itoa(1 + int(s.Random()*(5+10*s.overload.level())))
}
