package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report holds the results of a run.
type report struct {
	options     options
	environment []string
	results     results
	servers     []string // their command lines
}

// table is rows of text; the first one has the headings.
type table [][]string

// comparisonTable returns the comparisons, with targets and verdicts.
func (r report) comparisonTable() table {
	t := table{{"#", "work", "measured", "ratio or number", "lowest – highest", "CPU", "target", "verdict"}}
	byRow := func(a, b result) int { return cmp.Compare(a.row, b.row) }
	for _, result := range slices.SortedStableFunc(slices.Values(r.results), byRow) {
		measured := result.metric.name
		if strings.HasSuffix(result.series, "connections") {
			measured = result.series
		}
		number, spread, cpu := "", "", ""
		if result.err() == nil {
			number, spread = summary(result.ratios())
			if result.reference == nil {
				number += result.metric.unit
			} else {
				cpu = format(median(result.costs()))
			}
			if result.target.orBelow > 0 {
				number += fmt.Sprintf(" (%s%s)", format(result.own()), result.metric.unit)
			}
		}
		t = append(t, []string{
			fmt.Sprint(result.row), result.work, measured, number, spread, cpu,
			result.target.String(), result.verdict(),
		})
	}
	return t
}

// workloadTable returns the workloads that have a rate.
func (r report) workloadTable() table {
	t := table{{
		"workload", "a second", "lowest – highest", "server µs", "store µs", "load µs", "load busy", "p50 ms", "p99 ms",
	}}
	for _, w := range r.workloads() {
		if w.err != nil || len(w.rounds) == 0 || w.rounds[0].rate() == 0 || w.rounds[0].value != 0 {
			continue
		}
		var rates []float64
		for _, m := range w.rounds {
			rates = append(rates, m.rate())
		}
		number, spread := summary(rates)
		t = append(t, []string{
			w.name, number, spread,
			format(w.median(func(m measurement) float64 { return m.perUnit(m.server) })),
			format(w.median(func(m measurement) float64 { return m.perUnit(m.store) })),
			format(w.median(func(m measurement) float64 { return m.perUnit(m.load) })),
			fmt.Sprintf("%.0f %%", 100*w.median(measurement.loadShare)),
			format(w.median(medianLatency().of)),
			format(w.median(p99Latency().of)),
		})
	}
	return t
}

// workloads returns each workload once.
func (r report) workloads() []*workload {
	var all []*workload
	for _, result := range r.results {
		for _, w := range []*workload{result.reference, result.subject} {
			if w != nil && !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// notes lists further observations, invalid workloads, and those whose load generator may be the bottleneck.
func (r report) notes() []string {
	var notes []string
	for _, w := range r.workloads() {
		switch {
		case w.err != nil:
			notes = append(notes, fmt.Sprintf("INVALID: %s: %v", w.name, w.err))
		case len(w.rounds) > 0 && w.rounds[0].note != "":
			notes = append(notes, w.name+": "+w.rounds[0].note)
		}
		if busy := w.median(measurement.loadShare); busy > 0.9 {
			notes = append(notes, fmt.Sprintf("%s: the load generator may be the bottleneck: busy %.0f %% of the time",
				w.name, 100*busy))
		}
	}
	return notes
}

// commands returns how the load of each workload was generated, and how the servers were started.
func (r report) commands() []string {
	var commands []string
	for _, w := range r.workloads() {
		if len(w.rounds) > 0 {
			commands = append(commands, w.name+": "+w.rounds[len(w.rounds)-1].command)
		}
	}
	return append(commands, r.servers...)
}

func (r report) settings() string {
	const text = "Measured on %s: %d rounds of %s, %d users, %d where their number is compared, wrk with %d threads."
	o := r.options
	return fmt.Sprintf(text, time.Now().UTC().Format(time.DateOnly), o.rounds, o.duration, o.users, o.many, wrkThreads)
}

// markdown returns the report as a page, for the terminal, too.
func (r report) markdown() []byte {
	var b bytes.Buffer
	list := func(lines []string) {
		for _, line := range lines {
			fmt.Fprintf(&b, "- %s\n", line)
		}
		b.WriteString("\n")
	}
	b.WriteString("# Results\n\nWritten by `make bench`; see [how to read it](README.md).\n\n" + r.settings() + "\n\n")
	list(r.environment)
	b.WriteString("## Comparisons\n\n")
	r.comparisonTable().markdown(&b)
	b.WriteString("## Workloads\n\nMedians. CPU times are per unit of work: " +
		"a request, or one user of a bulk ping or of a lookup of many.\n\n")
	r.workloadTable().markdown(&b)
	if notes := r.notes(); len(notes) > 0 {
		b.WriteString("## Notes\n\n")
		list(notes)
	}
	b.WriteString("## Commands\n\n")
	for _, line := range r.commands() {
		name, command, _ := strings.Cut(line, ": ")
		fmt.Fprintf(&b, "- %s: `%s`\n", name, command)
	}
	return b.Bytes()
}

// markdown writes the table with aligned columns, so that it can also be read in a terminal.
func (t table) markdown(b *bytes.Buffer) {
	columns := tabwriter.NewWriter(b, 0, 0, 1, ' ', 0)
	for i, row := range t {
		fmt.Fprintf(columns, "| %s\t|\n", strings.Join(row, "\t| "))
		if i == 0 {
			fmt.Fprintf(columns, "%s|\n", strings.Repeat("| ---\t", len(row)))
		}
	}
	_ = columns.Flush() // to memory
	b.WriteString("\n")
}

// summary returns the median of values, and the lowest and highest one.
func summary(values []float64) (middle, spread string) {
	return format(median(values)), format(slices.Min(values)) + " – " + format(slices.Max(values))
}

// format writes a number with three significant digits.
func format(x float64) string {
	switch size := math.Abs(x); {
	case x == 0:
		return "–"
	case size >= 100_000:
		return fmt.Sprintf("%.0f k", x/1000)
	case size >= 10_000:
		return fmt.Sprintf("%.1f k", x/1000)
	case size >= 100:
		return fmt.Sprintf("%.0f", x)
	case size >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}
