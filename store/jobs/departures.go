package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	departuresEvery = 15 * time.Second
	// longestWindow is the longest time between two counts. After a longer one, the users who departed in it are not
	// counted. It is less than leaseTime, so that no other server can have counted them in between.
	longestWindow = time.Minute
	// maxCounted is how many separate ranges of times are remembered as counted, for each namespace.
	maxCounted = 8
)

// Departures counts users who departed without a leave: those whose status turned grey because they stopped pinging.
// Of all servers on a store, the one that holds the lease counts.
//
// It counts users when their last ping becomes older than the yellow threshold, and none twice for the same ping. It
// misses some: users who ping again within seconds of turning grey, and everyone who turns grey while no server counts:
// after a start, after the store's clock moved, while the store is away for longer than a minute.
type Departures struct {
	*runner
	namespaces func() map[string]time.Duration
	count      func(namespace string, n int)

	seen  map[string]*departed
	read  bool             // there was a reading of the store's clock
	start lastseen.Instant // the last reading less the monotonic time before it
}

// departed is what the job knows of a namespace.
type departed struct {
	cutoff  lastseen.Instant // users last seen up to then were counted, or never will be; 0 if counting has to begin
	yellow  time.Duration
	counted []lastseen.Range // times of last pings that were counted; disjoint, the latest last
}

// NewDepartures returns the job for a store. namespaces returns the namespaces to count in, with their yellow
// thresholds. count is called with the number of users who departed from a namespace since its last call, and with 0
// when counting begins.
func NewDepartures(
	s store.Store, namespaces func() map[string]time.Duration, count func(namespace string, n int),
	logger *slog.Logger,
) *Departures {
	d := &Departures{
		runner:     newRunner(s, "departures", "cannot count users who departed", logger),
		namespaces: namespaces, count: count, seen: map[string]*departed{},
	}
	d.every = departuresEvery
	return d
}

// Run counts until the context ends.
func (d *Departures) Run(ctx context.Context) { d.run(ctx, d.round) }

// round counts in each namespace, if this server holds the lease. It counts up to a time before the lease was checked,
// and begins at a time after the lease was granted, so that the windows of two servers do not overlap.
func (d *Departures) round(ctx context.Context) error {
	if d.store.Ready(ctx) != nil {
		return nil // others log that
	}
	now, err := d.now(ctx)
	if err != nil {
		return err
	}
	held := d.holding
	if !d.hasLease(ctx) {
		d.restart()
		return nil
	}
	if !held {
		if now, err = d.now(ctx); err != nil {
			return err
		}
	}
	namespaces := d.namespaces()
	for name := range d.seen {
		if _, wanted := namespaces[name]; !wanted {
			delete(d.seen, name)
		}
	}
	for name, yellow := range namespaces {
		if err := d.visit(ctx, name, yellow, now); err != nil {
			d.warn(ctx, name, err)
		}
	}
	return nil
}

// now returns the time by the store's clock. If that clock moved against monotonic time, counting begins again.
func (d *Departures) now(ctx context.Context) (lastseen.Instant, error) {
	before := d.monotonic()
	now, err := d.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	tolerance := maxDrift + d.monotonic() - before
	start := now.Add(-before)
	if d.read && (start < d.start.Add(-tolerance) || start > d.start.Add(tolerance)) {
		d.restart()
	}
	d.read, d.start = true, start
	return now, nil
}

// restart makes counting begin again in each namespace.
func (d *Departures) restart() {
	for _, n := range d.seen {
		n.cutoff = 0
	}
}

// visit counts the users of a namespace who turned grey since the last visit. After an error, the next visit counts
// them.
func (d *Departures) visit(ctx context.Context, name string, yellow time.Duration, now lastseen.Instant) error {
	n := d.seen[name]
	if n == nil {
		n = &departed{}
		d.seen[name] = n
	}
	cutoff := now.Add(-yellow)
	if n.cutoff == 0 || n.yellow != yellow || cutoff < n.cutoff || cutoff > n.cutoff.Add(longestWindow) {
		n.cutoff, n.yellow = cutoff, yellow
		d.count(name, 0)
		return nil
	}
	window := lastseen.Range{From: n.cutoff + 1, To: cutoff}
	if !n.overlaps(window) {
		counts, err := d.store.Count(ctx, name, []lastseen.Range{window})
		switch {
		case errors.Is(err, store.ErrMismatch), errors.Is(err, store.ErrWrongType):
			n.cutoff = 0 // others log that
			return nil
		case err != nil:
			return err
		}
		d.count(name, int(counts[0]))
	}
	n.cutoff = cutoff
	n.add(window)
	return nil
}

// overlaps reports whether a part of a window was counted. Then the rest of it is not: windows are short, and this
// happens only after the clock was set or the threshold was changed.
func (n *departed) overlaps(window lastseen.Range) bool {
	return slices.ContainsFunc(n.counted, func(done lastseen.Range) bool {
		return done.From <= window.To && window.From <= done.To
	})
}

// add notes that a window was counted.
func (n *departed) add(window lastseen.Range) {
	var apart []lastseen.Range
	for _, done := range n.counted {
		if done.To < window.From-1 || done.From > window.To+1 {
			apart = append(apart, done)
			continue
		}
		window.From, window.To = min(window.From, done.From), max(window.To, done.To)
	}
	apart = append(apart, window)
	n.counted = apart[max(0, len(apart)-maxCounted):]
}
