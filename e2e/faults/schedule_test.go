//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// faultKind is one of the faults of [TestChaos].
type faultKind struct {
	name        string
	part        string // what breaks: two faults of one part never overlap
	least, most time.Duration
	loses       bool // acknowledged writes, without --redis-wait
	begin       func(c *chaos, f incident) (end func())
}

// faultKinds returns all of them.
func faultKinds() []*faultKind {
	const s = time.Second
	type in = incident
	kinds := []*faultKind{
		{"server killed", "server", 0, 5 * s, false, func(c *chaos, f in) func() { return c.killServer(f.variant) }},
		{"server restarted", "server", 0, 3 * s, false, (*chaos).restartOne},
		{"server suspended", "server", s, 8 * s, false, (*chaos).suspendOne},
		{"clock of a server set", "clock", 5 * s, 12 * s, false, (*chaos).setClock},
		{"primary killed", "redis", 0, 12 * s, true, func(c *chaos, _ in) func() { return c.stopRedis(c.redis) }},
		{"replica killed", "redis", 0, 8 * s, false, func(c *chaos, f in) func() { return c.stopRedis(c.replica(f)) }},
		{"planned failover", "redis", 0, s, true, func(c *chaos, f in) func() { return c.failOver(f.variant) }},
		{"primary suspended", "redis", s, 10 * s, true, func(c *chaos, _ in) func() { return c.suspendRedis(c.redis) }},
		{"Redis out of memory", "redis", 2 * s, 8 * s, false, (*chaos).fillPrimary},
		{"burst of requests", "load", 3 * s, 10 * s, false, (*chaos).burst},
	}
	for _, how := range spoils() {
		kinds = append(kinds, &faultKind{
			"link " + how.name, "link", 2 * s, 10 * s, false,
			func(c *chaos, f in) func() { // commands, replies, or both
				streams := [][]string{{"upstream"}, {"downstream"}, {"upstream", "downstream"}}[f.variant]
				return c.spoil(c.link.proxies, how, streams...)
			},
		})
	}
	return kinds
}

func (c *chaos) restartOne(f incident) (end func()) { return c.restartServer(f.variant) }

func (c *chaos) suspendOne(f incident) (end func()) { return c.suspendServer(f.variant) }

func (c *chaos) fillPrimary(incident) (end func()) { return c.fillRedis(c.redis, c.watched.Nodes...) }

func (c *chaos) burst(f incident) (end func()) { return c.load.burst(c.t, uint64(f.lasts)) }

// incident is something that breaks, and is repaired.
type incident struct {
	kind    *faultKind
	variant int           // which server, or else which one or how, 0 to chaosServers - 1
	after   time.Duration // since the phase began
	lasts   time.Duration
}

func (f incident) String() string {
	return fmt.Sprintf("%s (%d) after %s for %s", f.kind.name, f.variant, f.after, f.lasts)
}

// phase is one incident, or two that overlap or follow each other, after some time without.
type phase struct {
	quiet  time.Duration
	faults []incident
}

func (p phase) String() string {
	var texts []string
	for _, f := range p.faults {
		texts = append(texts, f.String())
	}
	return fmt.Sprintf("%s quiet, then %s", p.quiet, strings.Join(texts, " and "))
}

// schedule returns phases that take at least the given time. They follow from the seed alone. Each kind of fault comes
// as often as the others, give or take one.
func schedule(seed uint64, total time.Duration) (phases []phase) {
	random := rand.New(rand.NewPCG(seed, 0))
	var deck []*faultKind
	draw := func(fits func(*faultKind) bool) incident {
		i := slices.IndexFunc(deck, fits)
		if i < 0 {
			more := faultKinds()
			random.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
			deck = append(deck, more...)
			i = slices.IndexFunc(deck, fits)
		}
		kind := deck[i]
		deck = slices.Delete(deck, i, i+1)
		return incident{kind, random.IntN(chaosServers), 0, between(random, kind.least, kind.most)}
	}
	for planned := time.Duration(0); planned < total; {
		first := func(*faultKind) bool { return true }
		p := phase{between(random, 2*time.Second, 6*time.Second), []incident{draw(first)}}
		broken := p.faults[0]
		if random.IntN(3) == 0 {
			second := draw(func(k *faultKind) bool { return k.part != broken.kind.part })
			second.after = between(random, 0, broken.lasts+time.Second)
			p.faults = append(p.faults, second)
		}
		phases = append(phases, p)
		planned += p.quiet + broken.lasts
	}
	return phases
}

// between returns a random time.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(random.Int64N(int64(most-least)+1))).Round(100 * time.Millisecond)
}

// TestSchedule: a seed alone decides what [TestChaos] breaks and when, and in ten minutes that is everything.
func TestSchedule(t *testing.T) {
	const total = 10 * time.Minute
	first := fmt.Sprint(schedule(1, total))
	require.Equal(t, first, fmt.Sprint(schedule(1, total)))
	require.NotEqual(t, first, fmt.Sprint(schedule(2, total)))
	for seed := range uint64(100) {
		count, planned := map[string]int{}, time.Duration(0)
		for _, p := range schedule(seed, total) {
			planned += p.quiet + p.faults[0].lasts
			parts := map[string]bool{}
			for _, f := range p.faults {
				require.False(t, parts[f.kind.part], "two faults of one part: %s", p)
				parts[f.kind.part] = true
				count[f.kind.name]++
			}
		}
		require.GreaterOrEqual(t, planned, total)
		for _, kind := range faultKinds() {
			require.GreaterOrEqual(t, count[kind.name], 2, "seed %d: %s", seed, kind.name)
		}
	}
}
