package main

import (
	"fmt"
	"slices"
	"strconv"
)

// comparison is one line of the table: what is measured, and its target.
type comparison struct {
	row       int
	work      string
	series    string // comparisons of one series are measured in the same rounds
	subject   string // a workload
	reference string // the workload that it is divided by; "" if its own number is compared with the target
	metric    metric
	target    target
	long      bool // measured only if its row is requested
}

// target is a bound on a ratio or on a number. The zero value means no target.
type target struct {
	least, most float64 // 0 for none
	orBelow     float64 // also met if the subject's own number is this or less; 0 for none
}

func (t target) String() string {
	switch {
	case t.least > 0:
		return fmt.Sprintf("≥ %v", t.least)
	case t.orBelow > 0:
		return fmt.Sprintf("≤ %v, or ≤ %v ms", t.most, t.orBelow)
	case t.most > 0:
		return fmt.Sprintf("≤ %v", t.most)
	default:
		return "–"
	}
}

// met reports whether a ratio, or the subject's own number with it, meets the target.
func (t target) met(ratio, own float64) bool {
	switch {
	case t.orBelow > 0 && own <= t.orBelow:
		return true
	case t.least > 0:
		return ratio >= t.least
	default:
		return ratio <= t.most
	}
}

func atLeast(x float64) target { return target{least: x} }
func atMost(x float64) target  { return target{most: x} }

// ratio is a comparison of throughput.
func ratio(row int, work, series, subject, reference string, t target) comparison {
	return comparison{
		row: row, work: work, series: series, subject: subject, reference: reference, metric: rate(), target: t,
	}
}

// comparisons returns the table of everything that is measured.
func comparisons() []comparison {
	all := slices.Concat(requestComparisons(64), requestComparisons(256), []comparison{
		ratio(7, "lookup of 100, Redis store ÷ redis-benchmark", "lookups of 100",
			at("lookup of 100", 64), "redis-benchmark ZMSCORE of 100", atLeast(0.7)),
		ratio(8, "lookup of 100, embedded ÷ Redis store", "lookups of 100",
			at("lookup of 100, embedded", 64), at("lookup of 100", 64), atLeast(2)),
		ratio(9, "NDJSON bulk ping in one request ÷ redis-benchmark", "bulk pings",
			"NDJSON, one request", "redis-benchmark ZADD GT of 100", atLeast(0.6)),
		ratio(9, "NDJSON bulk ping in four requests at once ÷ redis-benchmark", "bulk pings",
			"NDJSON, four requests at once", "redis-benchmark ZADD GT of 100", atLeast(0.6)),
	})
	for _, server := range []string{coalescing, lists} {
		all = append(all, listComparisons(server)...)
	}
	number := func(row int, work, subject, name, unit string, most float64) comparison {
		return comparison{row: row, work: work, subject: subject, metric: value(name, unit), target: atMost(most)}
	}
	const soakWork = "5 minutes at half of the maximal rate: growth after the first"
	soak := number(17, soakWork, "soak", "RSS growth", " %", 5)
	soak.long = true
	all = append(all,
		comparison{
			row: 12, work: "ping at half of the maximal rate, open loop ÷ no-op", series: "open loop",
			subject: "ping, open loop", reference: "no-op, open loop",
			metric: p99Latency(), target: target{most: 2, orBelow: 5},
		},
		number(13, "allocations a ping, from the router to the store", "allocations of a ping", "allocations", "", 14),
		number(14, "memory a user, embedded store", "memory a user", "RssAnon", " B", 220),
		number(15, "written to disk a ping, embedded store, 50,000 pings/s", "disk a ping", "disk", " B", 200),
		number(16, "idle server, embedded store", "idle, embedded", "RSS", " MiB", 40),
		number(16, "idle server, Redis store", "idle, Redis", "RSS", " MiB", 40),
		soak,
	)
	return slices.Concat(all, growth(), feedComparisons(), connectionComparisons(), detailsComparisons(),
		callComparisons())
}

// requestComparisons returns the comparisons of single requests at a number of connections.
func requestComparisons(conns int) []comparison {
	targets := map[int]map[int]float64{
		64:  {0: 0.85, 1: 0.55, 2: 0.50, 3: 1.4, 4: 1.1, 5: 0.8, 6: 0.55},
		256: {0: 0.85, 1: 0.65, 2: 0.60, 3: 1.5, 4: 1.0, 6: 0.65},
	}[conns]
	line := func(row int, work, subject, reference string) comparison {
		series := fmt.Sprintf("%d connections", conns)
		return ratio(row, work, series, at(subject, conns), at(reference, conns), atLeast(targets[row]))
	}
	all := []comparison{
		line(0, "no-op ÷ bare", "no-op", "bare"),
		line(1, "ping, minimal ÷ no-op", "ping, minimal", "no-op"),
		line(2, "ping, 200 with a body ÷ no-op", "ping", "no-op"),
		line(3, "ping, minimal ÷ one command per request", "ping, minimal", "ping, minimal, one command per request"),
		line(4, "ping, minimal ÷ webdis ZADD", "ping, minimal", "webdis ZADD"),
		line(6, "lookup of one ÷ no-op", "lookup of one", "no-op"),
	}
	if conns == 64 {
		all = append(all, line(5, "ping, minimal, embedded ÷ no-op", "ping, minimal, embedded", "no-op, embedded"))
	}
	return all
}

// listComparisons returns the comparisons of pages of 50 users.
func listComparisons(server string) []comparison {
	line := func(row int, work, subject, reference string, most float64) comparison {
		c := ratio(row, work, "lists", subject, reference, atMost(most))
		c.metric = medianLatency()
		return c
	}
	first := func(namespace string) string { return pageOf(server, namespace, false) }
	deep := func(namespace string) string { return pageOf(server, namespace, true) }
	store := storeOf(server)
	return []comparison{
		line(10, "list, page of 50, "+store+": many users ÷ 10,000", first(manyNS), first(fewNS), 1.3),
		line(11, "list, "+store+": a deep page by cursor ÷ page 1", deep(randomNS), first(randomNS), 1.5),
		line(11, "list, "+store+": the same inside one millisecond", deep(tiedNS), first(tiedNS), 1.5),
	}
}

// growth returns comparisons without a target that show how the cost grows. Loading the users takes long.
func growth() []comparison {
	line := func(work, subject, reference string) comparison {
		c := ratio(18, work, "growth", at(subject, 64), at(reference, 64), target{})
		c.long = true
		return c
	}
	return []comparison{
		line("ping, Redis store: many users ÷ 10,000", "ping, many users", "ping, few users"),
		line("ping, embedded: many users ÷ 10,000", "ping, many users, embedded", "ping, few users, embedded"),
		line("ping, Redis store: users in 1,000 namespaces ÷ in one", "ping, 1,000 namespaces", "ping, minimal"),
		line("ping, embedded: users in 1,000 namespaces ÷ many users in one",
			"ping, 1,000 namespaces, embedded", "ping, many users, embedded"),
		line("users looked up: 10 at once ÷ 1", "lookup of 10", "lookup of one"),
		line("users looked up: 100 at once ÷ 10", "lookup of 100", "lookup of 10"),
		line("users looked up: 1,000 at once ÷ 100", "lookup of 1,000", "lookup of 100"),
	}
}

// choose returns the comparisons of the requested rows; without any, all but the long ones.
func choose(all []comparison, rows []string) ([]comparison, error) {
	var chosen []comparison
	for _, c := range all {
		if slices.Contains(rows, strconv.Itoa(c.row)) || len(rows) == 0 && !c.long {
			chosen = append(chosen, c)
		}
	}
	for _, row := range rows {
		if !slices.ContainsFunc(all, func(c comparison) bool { return strconv.Itoa(c.row) == row }) {
			return nil, fmt.Errorf("%q is not a row: separate rows by commas, as in 0,1,4", row)
		}
	}
	return chosen, nil
}
