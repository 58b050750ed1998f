package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// contestant is one that is measured, with all that was found.
type contestant struct {
	name  string
	probe probe
	err   error // why it could not be measured
	turns []measurement
}

// result is an experiment with its contestants.
type result struct {
	experiment
	subject, reference *contestant // reference is nil if there is none
}

type results []result

// runAll measures the experiments, series by series.
func runAll(ctx context.Context, l *lab, all []experiment) results {
	found := map[string]*contestant{}
	enter := func(name string) *contestant {
		if name == "" {
			return nil
		}
		if found[name] == nil {
			found[name] = &contestant{name: name}
		}
		return found[name]
	}
	var rs results
	for len(all) > 0 && ctx.Err() == nil {
		series := all[0].series
		n := max(1, countSeries(all, series))
		var in []*contestant
		for _, e := range all[:n] {
			r := result{experiment: e, subject: enter(e.subject), reference: enter(e.reference)}
			for _, c := range []*contestant{r.reference, r.subject} {
				if c != nil && !slices.Contains(in, c) {
					in = append(in, c)
				}
			}
			rs = append(rs, r)
		}
		l.runSeries(ctx, series, in)
		all = all[n:]
	}
	return rs
}

// countSeries returns how many experiments from the first on are of one series.
func countSeries(all []experiment, series string) int {
	if series == "" {
		return 1
	}
	n := slices.IndexFunc(all, func(e experiment) bool { return e.series != series })
	if n < 0 {
		return len(all)
	}
	return n
}

// runSeries prepares contestants, warms them up, and measures them in rounds, each of which every one
// has a turn in. Without a series there is one round and no warm-up.
func (l *lab) runSeries(ctx context.Context, series string, in []*contestant) {
	for _, c := range in {
		l.logf("preparing: %s", c.name)
		turns := c.turns
		*c = contestant{name: c.name, turns: turns}
		c.probe, c.err = contestants()[c.name](l)
		l.complain(c)
	}
	rounds := 1
	if series != "" {
		rounds = l.rounds
		for _, c := range in {
			c.take(ctx, l.duration)
			c.turns = nil // the warm-up does not count
			l.complain(c)
		}
	}
	for round := range rounds {
		for _, c := range in {
			if c.err != nil || ctx.Err() != nil {
				continue
			}
			c.take(ctx, l.duration)
			l.complain(c)
			if c.err == nil {
				l.logf("%s, round %d of %d: %s", c.name, round+1, rounds, c.turns[len(c.turns)-1])
			}
		}
	}
}

func (l *lab) complain(c *contestant) {
	if c.err != nil {
		l.logf("%s: INVALID: %v", c.name, c.err)
	}
}

// take has the contestant take a turn, unless one failed before.
func (c *contestant) take(ctx context.Context, d time.Duration) {
	if c.err != nil || ctx.Err() != nil {
		return
	}
	m, err := c.probe(ctx, d)
	if err != nil {
		c.err = err
		return
	}
	c.turns = append(c.turns, m)
}

func (m measurement) String() string {
	if m.units == 0 {
		return number(round(m.value)) + " " + m.note
	}
	return fmt.Sprintf("%.0f/s, CPU a unit: server %.2f µs, store %.2f µs, load %.2f µs (%.0f %% busy), p50 %s, p99 %s",
		m.rate(), m.each(m.server), m.each(m.store), m.each(m.load), 100*m.share, m.p50, m.p99)
}

// ratios returns, round by round, the subject's number divided by the reference's, or alone.
func (r result) ratios() []float64 {
	var ratios []float64
	for i, m := range r.subject.turns {
		number := r.metric.of(m)
		if r.reference != nil {
			if i >= len(r.reference.turns) || r.metric.of(r.reference.turns[i]) == 0 {
				break
			}
			number /= r.metric.of(r.reference.turns[i])
		}
		ratios = append(ratios, number)
	}
	return ratios
}

// own is the median of the subject's own number.
func (r result) own() float64 { return r.subject.median(r.metric.of) }

func (c *contestant) median(of func(measurement) float64) float64 {
	var all []float64
	for _, m := range c.turns {
		all = append(all, of(m))
	}
	return median(all)
}

// err says why the experiment has no result; nil if it has one.
func (r result) err() error {
	if r.reference != nil && r.reference.err != nil {
		return fmt.Errorf("%s: %w", r.reference.name, r.reference.err)
	}
	if r.subject.err != nil {
		return fmt.Errorf("%s: %w", r.subject.name, r.subject.err)
	}
	if len(r.ratios()) == 0 {
		return errTooFew
	}
	return nil
}

// verdict is what the table says in the end.
func (r result) verdict() string {
	switch {
	case r.err() != nil:
		return "invalid"
	case r.target == target{}:
		return "–"
	case r.target.met(median(r.ratios()), r.own()):
		return "met"
	default:
		return "missed"
	}
}

// err says what could not be measured.
func (rs results) err() error {
	var all error
	for _, r := range rs {
		if err := r.err(); err != nil {
			all = errors.Join(all, fmt.Errorf("row %d (%s): %w", r.row, r.work, err))
		}
	}
	return all
}
