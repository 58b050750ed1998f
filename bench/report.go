package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Between these lines of the file the report is written; all else in it is left as it is.
const (
	beginMarker = "<!-- bench: begin; written by make bench -->"
	endMarker   = "<!-- bench: end -->"
)

// report is what a run found.
type report struct {
	options     options
	environment []string
	results     results
	servers     []string // how they were started
}

// table is a table of text.
type table [][]string

// judged is the table of experiments.
func (r report) judged() table {
	t := table{{"#", "work", "measured", "ratio or number", "lowest – highest", "CPU", "target", "verdict"}}
	byRow := slices.Clone(r.results)
	slices.SortStableFunc(byRow, func(a, b result) int { return cmp.Compare(a.row, b.row) })
	for _, result := range byRow {
		how := result.metric.name
		if strings.HasSuffix(result.series, "connections") {
			how = result.series
		}
		middle, between, cpu := "", "", ""
		if result.err() == nil {
			s := boundsOf(result.ratios())
			middle, between = shown(s.median), shown(s.low)+" – "+shown(s.high)
			if result.reference == nil {
				middle += result.metric.unit
			} else {
				cpu = shown(median(result.costs()))
			}
			if result.target.orBelow > 0 {
				middle += fmt.Sprintf(" (%s%s)", shown(result.own()), result.metric.unit)
			}
		}
		t = append(t, []string{fmt.Sprint(result.row), result.work, how, middle, between, cpu, result.target.String(), result.verdict()})
	}
	return t
}

// contestants is the table of those with a rate.
func (r report) contestants() table {
	t := table{{"contestant", "a second", "lowest – highest", "server µs", "store µs", "load µs", "load busy", "p50 ms", "p99 ms"}}
	for _, c := range r.all() {
		if c.err != nil || len(c.turns) == 0 || c.turns[0].rate() == 0 || c.turns[0].value != 0 {
			continue
		}
		var rates []float64
		for _, m := range c.turns {
			rates = append(rates, m.rate())
		}
		s := boundsOf(rates)
		cpu := func(part func(measurement) time.Duration) string {
			return shown(c.median(func(m measurement) float64 { return m.each(part(m)) }))
		}
		ms := func(part func(measurement) time.Duration) string {
			return shown(c.median(func(m measurement) float64 { return float64(part(m).Nanoseconds()) / 1e6 }))
		}
		t = append(t, []string{
			c.name, shown(s.median), shown(s.low) + " – " + shown(s.high),
			cpu(func(m measurement) time.Duration { return m.server }),
			cpu(func(m measurement) time.Duration { return m.store }),
			cpu(func(m measurement) time.Duration { return m.load }),
			fmt.Sprintf("%.0f %%", 100*c.median(func(m measurement) float64 { return m.share })),
			ms(func(m measurement) time.Duration { return m.p50 }),
			ms(func(m measurement) time.Duration { return m.p99 }),
		})
	}
	return t
}

// all returns the contestants, each once.
func (r report) all() []*contestant {
	var all []*contestant
	seen := map[*contestant]bool{nil: true}
	for _, result := range r.results {
		for _, c := range []*contestant{result.reference, result.subject} {
			if !seen[c] {
				seen[c] = true
				all = append(all, c)
			}
		}
	}
	return all
}

// notes says what else was seen, what was invalid, and where the program that made the load was the
// bottleneck.
func (r report) notes() []string {
	var notes []string
	for _, c := range r.all() {
		switch {
		case c.err != nil:
			notes = append(notes, fmt.Sprintf("INVALID: %s: %v", c.name, c.err))
		case len(c.turns) > 0 && c.turns[0].note != "":
			notes = append(notes, c.name+": "+c.turns[0].note)
		}
		if busy := c.median(func(m measurement) float64 { return m.share }); busy > 0.9 {
			notes = append(notes, fmt.Sprintf("%s: the program that makes the load was busy %.0f %% of the time, so it may be the bottleneck", c.name, 100*busy))
		}
	}
	return notes
}

// commands returns how each contestant was put under load.
func (r report) commands() []string {
	var commands []string
	for _, c := range r.all() {
		if len(c.turns) > 0 {
			commands = append(commands, c.name+": "+c.turns[len(c.turns)-1].command)
		}
	}
	return append(commands, r.servers...)
}

func (r report) settings() string {
	return fmt.Sprintf("%d rounds of %s, %d users, %d where their number is what is measured, wrk with %d threads",
		r.options.rounds, r.options.duration, r.options.users, r.options.many, r.options.threads)
}

// print writes the report for a terminal.
func (r report) print(w io.Writer) {
	for _, t := range []table{r.judged(), r.contestants()} {
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range t {
			fmt.Fprintln(columns, strings.Join(row, "\t"))
		}
		_ = columns.Flush() // to a terminal
		fmt.Fprintln(w)
	}
	for _, line := range append(append(r.notes(), r.settings()), r.environment...) {
		fmt.Fprintln(w, line)
	}
}

// markdown writes the report for docs/performance.md.
func (r report) markdown() []byte {
	var b bytes.Buffer
	list := func(title string, lines []string) {
		fmt.Fprintf(&b, "### %s\n\n", title)
		for _, line := range lines {
			name, rest, ok := strings.Cut(line, ": ")
			if ok {
				line = name + ": `" + rest + "`"
			}
			fmt.Fprintf(&b, "- %s\n", line)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "Measured with %s.\n\n", r.settings())
	for _, line := range r.environment {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n### Judged\n\n")
	r.judged().markdown(&b)
	b.WriteString("### Contestants\n\nMedians. The CPU times are for one unit of work: a request, or one user of a bulk ping or of a lookup of 100.\n\n")
	r.contestants().markdown(&b)
	if notes := r.notes(); len(notes) > 0 {
		list("Notes", notes)
	}
	list("Commands", r.commands())
	return b.Bytes()
}

func (t table) markdown(b *bytes.Buffer) {
	for i, row := range t {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}
	b.WriteString("\n")
}

// write puts the report between the markers of a file.
func (r report) write(name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	content, err = between(content, r.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, content, 0o644)
}

// between replaces what is between the markers.
func between(content, part []byte) ([]byte, error) {
	before, rest, begins := bytes.Cut(content, []byte(beginMarker))
	_, after, ends := bytes.Cut(rest, []byte(endMarker))
	if !begins || !ends {
		return nil, fmt.Errorf("there are no lines %q and %q to write between", beginMarker, endMarker)
	}
	return bytes.Join([][]byte{before, []byte(beginMarker + "\n\n"), part, []byte(endMarker), after}, nil), nil
}

// shown writes a number with three digits that mean something.
func shown(x float64) string {
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
