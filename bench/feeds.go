package main

import (
	"fmt"
	"os"
	"time"
)

// Namespaces of the server feeds. Their users are green for as long as a run takes, or grey until they are pinged.
const (
	feedOffNS     = "feed-off"
	feedAutoNS    = "feed-auto" // and nobody watches
	feedOnNS      = "feed-on"
	greyFeedOffNS = "grey-feed-off"
	greyFeedOnNS  = "grey-feed-on"
	feedNS        = "feed" // of workloads with their own servers
)

// feedsConfig is the configuration of the server feeds. All its namespaces are in one process, so that they have the
// same heap.
const feedsConfig = `green: 1h
yellow: 2h
namespaces:
  feed-off: {changes: "off"}
  feed-auto: {changes: "auto"}
  feed-on: {changes: "on"}
  grey-feed-off: {changes: "off"}
  grey-feed-on: {changes: "on"}
`

// launchFeeds starts cmd/lastseen on the shared Redis with the namespaces above.
func (f *fixture) launchFeeds() (*server, error) {
	config := f.path("feeds.yaml")
	if err := os.WriteFile(config, []byte(feedsConfig), 0o600); err != nil {
		return nil, err
	}
	return f.launchBinary(feeds, redisServer, "--config", config, "--rate-limit", "off")
}

// launchFollowed starts some of cmd/lastseen, with their own Redis, so that all it does is for them.
func (f *fixture) launchFollowed(name string, n int, args ...string) (group, error) {
	redis, err := f.launchRedis(name + ", Redis")
	if err != nil {
		return nil, err
	}
	binary, err := f.build()
	if err != nil {
		return nil, err
	}
	var all group
	for i := range n {
		s, err := f.launchWith(redis, fmt.Sprintf("%s %d", name, i), binary, append(args, "--rate-limit", "off")...)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// group is servers on one Redis.
type group []*server

// stop ends the servers and their Redis.
func (g group) stop() {
	for _, s := range g {
		s.stop()
	}
	g[0].store.stop()
}

// urls returns where the servers are.
func (g group) urls() (all []string) {
	for _, s := range g {
		all = append(all, s.url)
	}
	return all
}

// withCPU generates load and adds the CPU time that all the servers and their Redis used meanwhile.
func (g group) withCPU(load func() (measurement, error)) (measurement, error) {
	if len(g) == 1 {
		return g[0].withCPU(load)
	}
	var others time.Duration
	m, err := g[0].withCPU(func() (measurement, error) {
		m, err := g[1:].withCPU(load)
		others = m.server
		return m, err
	})
	m.server += others
	return m, err
}

// rss returns the resident memory of all servers together.
func (g group) rss() (sum float64, err error) {
	for _, s := range g {
		rss, err := memory(s.pid(), "VmRSS")
		if err != nil {
			return 0, err
		}
		sum += rss
	}
	return sum, nil
}

// feedWorkloads returns how to set up each workload about changes feeds that wrk does not send.
func (f *fixture) feedWorkloads() map[string]setup {
	return map[string]setup{
		"yellow":                  f.turnYellow,
		"delivery, one server":    func() (measureFunc, error) { return f.delivery(1) },
		"delivery, three servers": func() (measureFunc, error) { return f.delivery(3) },
		"quiet namespaces":        f.quiet,
	}
}

// feedComparisons returns the comparisons about changes feeds.
func feedComparisons() (all []comparison) {
	for _, conns := range []int{64, 256} {
		line := func(work, subject, reference string, t target) comparison {
			series := fmt.Sprintf("changes, %d connections", conns)
			return ratio(19, work, series, at(subject, conns), at(reference, conns), t)
		}
		all = append(all,
			line("ping: changes auto, nobody follows ÷ off", "ping, changes auto", "ping, changes off", atLeast(0.98)),
			line("ping: changes on ÷ off", "ping, changes on", "ping, changes off", atLeast(0.85)),
			line("the same, each ping turning a user green",
				"ping of grey, changes on", "ping of grey, changes off", target{}),
		)
	}
	own := func(row int, work, series, subject string, m metric, t target) comparison {
		return comparison{row: row, work: work, series: series, subject: subject, metric: m, target: t}
	}
	perReader := metric{"memory", func(m measurement) float64 { return m.memory / 1024 }, " KiB"}
	all = append(all, own(20, "100,000 users turn yellow in a second: longest command of Redis", "yellow", "yellow",
		value("longest command", " ms"), atMost(5)))
	for _, servers := range []string{"one server", "three servers"} {
		subject := "delivery, " + servers
		work := func(what string) string { return "5,000 changes/s, 5,000 readers, " + servers + ": " + what }
		all = append(all,
			own(21, work("delivery, p50"), subject, subject, medianLatency(), target{}),
			own(21, work("delivery, p99"), subject, subject, p99Latency(), atMost(500)),
			own(21, work("memory a reader"), subject, subject, perReader, target{}),
		)
	}
	return append(all,
		own(22, "1,000 quiet namespaces, one reader each: server", "quiet", "quiet namespaces",
			metric{"CPU", func(m measurement) float64 { return busy(m.server, m) }, " %"}, target{}),
		own(22, "1,000 quiet namespaces, one reader each: Redis", "quiet", "quiet namespaces",
			metric{"CPU", func(m measurement) float64 { return busy(m.store, m) }, " %"}, target{}),
	)
}
