//go:build faults

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
