package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// experiment is one line of the table: what is measured, and by which target it is judged.
type experiment struct {
	row       int
	work      string
	series    string // experiments of one series take turns in the same rounds
	subject   string // a contestant
	reference string // the contestant that it is divided by; "" if its own number is judged
	metric    metric
	target    target
	long      bool // only when it is asked for
}

// target is a bound on a ratio, or on a number.
type target struct {
	least, most float64 // 0 for none
	orBelow     float64 // is enough for the subject's own number, whatever the ratio; 0 for none
}

func (t target) String() string {
	switch {
	case t.least > 0:
		return "≥ " + number(t.least)
	case t.orBelow > 0:
		return fmt.Sprintf("≤ %s, or ≤ %s ms", number(t.most), number(t.orBelow))
	case t.most > 0:
		return "≤ " + number(t.most)
	default:
		return "–"
	}
}

// met reports whether a ratio reaches the target, and the subject's own number with it.
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

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func atLeast(x float64) target { return target{least: x} }
func atMost(x float64) target  { return target{most: x} }

// experiments is the table of all that is judged.
func experiments() []experiment {
	all := slices.Concat(requestExperiments(64), requestExperiments(256))
	all = append(all,
		experiment{row: 7, work: "lookup of 100, Redis store ÷ redis-benchmark", series: "lookups of 100", subject: at(lookupRedis, 64), reference: redisZMSCORE, metric: rate(), target: atLeast(0.7)},
		experiment{row: 8, work: "lookup of 100, embedded ÷ Redis store", series: "lookups of 100", subject: at(lookupFile, 64), reference: at(lookupRedis, 64), metric: rate(), target: atLeast(2)},
		experiment{row: 9, work: "NDJSON bulk ping in one request ÷ redis-benchmark", series: "bulk pings", subject: bulkOne, reference: redisZADD, metric: rate(), target: atLeast(0.6)},
		experiment{row: 9, work: "NDJSON bulk ping in four requests at once ÷ redis-benchmark", series: "bulk pings", subject: bulkFour, reference: redisZADD, metric: rate(), target: atLeast(0.6)},
	)
	for _, server := range []string{merging, listing} {
		store := storeOf(server)
		lists := func(row int, work, subject, reference string, most float64) experiment {
			return experiment{row: row, work: work, series: "lists", subject: subject, reference: reference, metric: medianLatency(), target: atMost(most)}
		}
		all = append(all,
			lists(10, "list, page of 50, "+store+": many users ÷ 10,000", pageOf(server, many, false), pageOf(server, few, false), 1.3),
			lists(11, "list, "+store+": a deep page by cursor ÷ page 1", pageOf(server, crowd, true), pageOf(server, crowd, false), 1.5),
			lists(11, "list, "+store+": the same inside one millisecond", pageOf(server, tied, true), pageOf(server, tied, false), 1.5),
		)
	}
	all = append(all,
		experiment{row: 12, work: "ping at half of the maximal rate, open loop ÷ no-op", series: "open loop", subject: openPing, reference: openNoOp, metric: p99Latency(), target: target{most: 2, orBelow: 5}},
		experiment{row: 13, work: "allocations a ping in our code", subject: allocations, metric: value("allocations", ""), target: atMost(4)},
		experiment{row: 14, work: "memory a user, embedded store", subject: memoryPerUser, metric: value("RssAnon", " B"), target: atMost(220)},
		experiment{row: 15, work: "written to disk a ping, embedded store, 50,000 pings/s", subject: diskPerPing, metric: value("disk", " B"), target: atMost(200)},
		experiment{row: 16, work: "idle server, embedded store", subject: idleFile, metric: value("RSS", " MiB"), target: atMost(40)},
		experiment{row: 16, work: "idle server, Redis store", subject: idleRedis, metric: value("RSS", " MiB"), target: atMost(40)},
		experiment{row: 17, work: "5 minutes at half of the maximal rate: growth after the first", subject: soak, metric: value("RSS growth", " %"), target: atMost(5), long: true},
	)
	return append(all, growth()...)
}

// growth is not judged: it shows how the cost grows. It takes long, for the users to be loaded.
func growth() []experiment {
	line := func(work, subject, reference string) experiment {
		return experiment{
			row: 18, work: work, series: "growth", subject: at(subject, 64), reference: at(reference, 64),
			metric: rate(), long: true,
		}
	}
	return []experiment{
		line("ping, Redis store: many users ÷ 10,000", pingMany, pingFew),
		line("ping, embedded: many users ÷ 10,000", pingFileMany, pingFileFew),
		line("ping, Redis store: users in 1,000 namespaces ÷ in one", pingSpread, pingMinimal),
		line("ping, embedded: users in 1,000 namespaces ÷ many users in one", pingFileSpread, pingFileMany),
		line("users looked up: 10 at once ÷ 1", lookup10, getUser),
		line("users looked up: 100 at once ÷ 10", lookupRedis, lookup10),
		line("users looked up: 1,000 at once ÷ 100", lookup1000, lookupRedis),
	}
}

// requestExperiments are those about single requests, at a number of connections.
func requestExperiments(conns int) []experiment {
	targets := map[int]map[int]float64{
		64:  {0: 0.85, 1: 0.55, 2: 0.50, 3: 1.4, 4: 1.1, 5: 0.8, 6: 0.55},
		256: {0: 0.85, 1: 0.65, 2: 0.60, 3: 1.5, 4: 1.0, 5: 0.8, 6: 0.65},
	}[conns]
	line := func(row int, work, subject, reference string) experiment {
		return experiment{
			row: row, work: work, series: fmt.Sprintf("%d connections", conns),
			subject: at(subject, conns), reference: at(reference, conns), metric: rate(), target: atLeast(targets[row]),
		}
	}
	extra := func(row int, work, subject, reference string) experiment {
		e := line(row, work, subject, reference)
		e.target = target{}
		return e
	}
	all := []experiment{
		line(0, "no-op ÷ bare", noOp, bareNoOp),
		line(1, "ping, minimal ÷ no-op", pingMinimal, noOp),
		line(2, "ping, 200 with a body ÷ no-op", pingFull, noOp),
		line(3, "ping, minimal ÷ one command per request", pingMinimal, pingSingle),
		line(4, "ping, minimal ÷ webdis ZADD", pingMinimal, webdisZADD),
		line(5, "ping, minimal, embedded ÷ no-op", pingFile, noOpFile),
		line(6, "lookup of one ÷ no-op with such a body", getUser, noOpBody),
	}
	if conns == 64 {
		all = append(all,
			extra(5, "the same with coalescing ÷ without", pingFileMerged, pingFile),
			extra(6, "lookup of one ÷ one command per request", getUser, getUserSingle),
		)
	}
	return all
}

// choose returns the experiments that the options ask for.
func choose(all []experiment, o options) ([]experiment, error) {
	var chosen []experiment
	for _, e := range all {
		asked := slices.Contains(o.rows, strconv.Itoa(e.row))
		if asked || o.all || len(o.rows) == 0 && !e.long {
			chosen = append(chosen, e)
		}
	}
	for _, row := range o.rows {
		if !slices.ContainsFunc(all, func(e experiment) bool { return strconv.Itoa(e.row) == row }) {
			return nil, fmt.Errorf("there is no row %q; rows are separated by commas, as in %s", row, strings.Join([]string{"0", "1", "4"}, ","))
		}
	}
	return chosen, nil
}
