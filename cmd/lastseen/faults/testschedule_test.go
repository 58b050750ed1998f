//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is something that breaks, and is repaired.
type fault struct {
	kind    *faultKind
	variant int           // which server, or else which one or how, 0 to chaosServers - 1
	after   time.Duration // since the phase began
	lasts   time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%s (%d) after %s for %s", f.kind.name, f.variant, f.after, f.lasts)
}

// phase is one fault, or two that overlap or follow each other, after some time without.
type phase struct {
	quiet  time.Duration
	faults []fault
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
	draw := func(fits func(*faultKind) bool) fault {
		i := slices.IndexFunc(deck, fits)
		if i < 0 {
			more := faultKinds()
			random.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
			deck = append(deck, more...)
			i = slices.IndexFunc(deck, fits)
		}
		kind := deck[i]
		deck = slices.Delete(deck, i, i+1)
		return fault{kind, random.IntN(chaosServers), 0, between(random, kind.least, kind.most)}
	}
	for planned := time.Duration(0); planned < total; {
		p := phase{between(random, 2*time.Second, 6*time.Second), []fault{draw(func(*faultKind) bool { return true })}}
		first := p.faults[0]
		if random.IntN(3) == 0 {
			second := draw(func(k *faultKind) bool { return k.part != first.kind.part })
			second.after = between(random, 0, first.lasts+time.Second)
			p.faults = append(p.faults, second)
		}
		phases = append(phases, p)
		planned += p.quiet + first.lasts
	}
	return phases
}

// between returns a random time.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(random.Int64N(int64(most-least)+1))).Round(100 * time.Millisecond)
}
