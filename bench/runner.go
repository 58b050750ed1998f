package main

import (
	"context"
	"errors"
	"fmt"
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
	var rs results
	for len(all) > 0 && ctx.Err() == nil {
		n := seriesLength(all)
		in := contestantList{}
		for _, e := range all[:n] {
			reference := in.enter(e.reference)
			rs = append(rs, result{experiment: e, reference: reference, subject: in.enter(e.subject)})
		}
		l.runSeries(ctx, all[0].series, in)
		all = all[n:]
	}
	return rs
}

// seriesLength returns how many experiments from the first on are of one series.
func seriesLength(all []experiment) int {
	n := 1
	for n < len(all) && all[0].series != "" && all[n].series == all[0].series {
		n++
	}
	return n
}

// contestantList is the contestants of a series, each once.
type contestantList []*contestant

// enter returns the contestant with a name, or nil for no name.
func (in *contestantList) enter(name string) *contestant {
	if name == "" {
		return nil
	}
	for _, c := range *in {
		if c.name == name {
			return c
		}
	}
	c := &contestant{name: name}
	*in = append(*in, c)
	return c
}

// runSeries prepares contestants, warms them up, and measures them in rounds, in each of which everyone
// has a turn. Without a series there is one round and no warm-up.
func (l *lab) runSeries(ctx context.Context, series string, in []*contestant) {
	for _, c := range in {
		if ctx.Err() != nil {
			return
		}
		l.logf("preparing: %s", c.name)
		c.probe, c.err = contestants()[c.name](l)
		l.complain(c)
	}
	rounds := 1
	if series != "" {
		rounds = l.rounds
		for _, c := range in {
			c.take(ctx, time.Second)
			l.complain(c)
			c.turns = nil // the warm-up does not count
		}
	}
	for round := range rounds {
		for _, c := range in {
			if c.err != nil || ctx.Err() != nil {
				continue
			}
			if c.take(ctx, l.duration); c.err == nil {
				l.logf("round %d of %d: %s: %s", round+1, rounds, c.name, c.turns[len(c.turns)-1])
			}
			l.complain(c)
			if writesFile(c.name) {
				_ = pause(ctx, 1500*time.Millisecond) // for the flush that is due: it is not the next one's
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
		return shown(m.value) + " " + m.note
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

// costs returns, round by round, the CPU time a unit of work that the subject's server and store took,
// divided by the reference's.
func (r result) costs() []float64 {
	var costs []float64
	for i, m := range r.subject.turns {
		if i >= len(r.reference.turns) {
			break
		}
		reference := r.reference.turns[i]
		if own := reference.each(reference.server + reference.store); own > 0 {
			costs = append(costs, m.each(m.server+m.store)/own)
		}
	}
	return costs
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

// verdict is what the table says in the end. A question mark says that some rounds by themselves say
// the opposite.
func (r result) verdict() string {
	if r.err() != nil {
		return "invalid"
	}
	if r.target == (target{}) {
		return "–"
	}
	met := r.target.met(median(r.ratios()), r.own())
	text := map[bool]string{true: "met", false: "missed"}[met]
	for i, ratio := range r.ratios() {
		if r.target.met(ratio, r.metric.of(r.subject.turns[i])) != met {
			return text + "?"
		}
	}
	return text
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
