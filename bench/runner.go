package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// workload is one that is measured, with its measurements.
type workload struct {
	name    string
	measure measureFunc
	err     error // why it could not be measured
	rounds  []measurement
}

// result is a comparison with its workloads.
type result struct {
	comparison
	subject, reference *workload // reference is nil if the comparison has none
}

type results []result

// runAll measures the comparisons, series by series.
func runAll(ctx context.Context, f *fixture, all []comparison) results {
	var rs results
	for len(all) > 0 && ctx.Err() == nil {
		n := seriesLength(all)
		var series []*workload
		find := func(name string) *workload {
			i := slices.IndexFunc(series, func(w *workload) bool { return w.name == name })
			if i < 0 {
				i, series = len(series), append(series, &workload{name: name})
			}
			return series[i]
		}
		for _, c := range all[:n] {
			r := result{comparison: c}
			if c.reference != "" {
				r.reference = find(c.reference)
			}
			r.subject = find(c.subject)
			rs = append(rs, r)
		}
		f.runSeries(ctx, all[0].series, series)
		all = all[n:]
	}
	return rs
}

// seriesLength returns how many comparisons from the first on belong to its series; without a series, how many are
// about the same workloads.
func seriesLength(all []comparison) int {
	first, n := all[0], 1
	for n < len(all) && all[n].series == first.series &&
		(first.series != "" || all[n].subject == first.subject && all[n].reference == first.reference) {
		n++
	}
	return n
}

// warmUp is how long each workload of a series runs before it is measured. Servers learn which users have no details
// meanwhile.
const warmUp = 8 * time.Second

// runSeries sets up workloads, warms them up, and measures each once a round. Without a series it measures one round
// and does not warm up.
func (f *fixture) runSeries(ctx context.Context, series string, all []*workload) {
	for _, w := range all {
		f.step(ctx, "preparing", w, func() (err error) {
			w.measure, err = f.workloads()[w.name]()
			return err
		})
	}
	rounds := 1
	if series != "" {
		rounds = f.rounds
		for _, w := range all {
			f.step(ctx, "warming up", w, func() error {
				_, err := w.measure(ctx, warmUp)
				return err
			})
		}
	}
	for round := range rounds {
		for _, w := range inTurn(all, round) {
			f.step(ctx, fmt.Sprintf("round %d of %d", round+1, rounds), w, func() error {
				m, err := w.measure(ctx, f.duration)
				if err == nil {
					w.rounds = append(w.rounds, m)
					f.logf("%s", m)
				}
				return err
			})
		}
	}
}

// inTurn returns the workloads in the order of a round. Every other round has the reverse order, so that what a
// workload leaves behind, such as a flush in progress, does not always slow the same one.
func inTurn(all []*workload, round int) []*workload {
	if round%2 == 0 {
		return all
	}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	return reversed
}

// step runs a step of a workload, unless one failed before.
func (f *fixture) step(ctx context.Context, name string, w *workload, run func() error) {
	if w.err != nil || ctx.Err() != nil {
		return
	}
	f.logf("%s: %s", name, w.name)
	if w.err = run(); w.err != nil {
		f.logf("%s: INVALID: %v", w.name, w.err)
	}
}

// ratios returns, round by round, the subject's number, divided by the reference's if there is one.
func (r result) ratios() []float64 {
	var ratios []float64
	for i, m := range r.subject.rounds {
		number := r.metric.of(m)
		if r.reference != nil {
			if i >= len(r.reference.rounds) || r.metric.of(r.reference.rounds[i]) == 0 {
				break
			}
			number /= r.metric.of(r.reference.rounds[i])
		}
		ratios = append(ratios, number)
	}
	return ratios
}

// costs returns, round by round, the CPU time per unit of the subject's server and store, divided by the reference's.
func (r result) costs() []float64 {
	var costs []float64
	for i, m := range r.subject.rounds[:min(len(r.subject.rounds), len(r.reference.rounds))] {
		reference := r.reference.rounds[i]
		if cost := reference.perUnit(reference.server + reference.store); cost > 0 {
			costs = append(costs, m.perUnit(m.server+m.store)/cost)
		}
	}
	return costs
}

// own returns the median of the subject's own number.
func (r result) own() float64 { return r.subject.median(r.metric.of) }

func (w *workload) median(of func(measurement) float64) float64 {
	var all []float64
	for _, m := range w.rounds {
		all = append(all, of(m))
	}
	return median(all)
}

// err returns why the comparison has no result, or nil if it has one.
func (r result) err() error {
	for _, w := range []*workload{r.reference, r.subject} {
		if w != nil && w.err != nil {
			return fmt.Errorf("%s: %w", w.name, w.err)
		}
	}
	if len(r.ratios()) == 0 {
		return errTooFew
	}
	return nil
}

// verdict compares the median with the target. A question mark means that some rounds have the opposite result.
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
		if r.target.met(ratio, r.metric.of(r.subject.rounds[i])) != met {
			return text + "?"
		}
	}
	return text
}

// err returns the errors of all comparisons without a result.
func (rs results) err() error {
	var all error
	for _, r := range rs {
		if err := r.err(); err != nil {
			all = errors.Join(all, fmt.Errorf("row %d (%s): %w", r.row, r.work, err))
		}
	}
	return all
}
