package web

import (
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestDotColors measures the contrast of each dot on white and on a dark page: WCAG asks for 3:1. It also checks that
// the elements in lastseen.js draw the same shapes in the same colours.
func TestDotColors(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("lastseen/elements.js")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, dot := range []lastseen.Dot{lastseen.GreenDot, lastseen.YellowDot, lastseen.RedDot, lastseen.GreyDot} {
		path, paint := dotShape(string(dot))
		for _, page := range []string{"#ffffff", "#111111"} {
			require.GreaterOrEqual(t, contrast(t, paint, page), 3.0, "%s on %s", dot, page)
		}
		require.False(t, seen[path] || seen[paint], "%s looks like another dot", dot)
		seen[path], seen[paint] = true, true
		require.Contains(t, string(script), path[len(disc):], dot)
		require.Contains(t, string(script), paint, dot)
	}
	require.Contains(t, string(script), disc)
}

// contrast returns the contrast of two colours, #rrggbb, by WCAG 2.
func contrast(t *testing.T, one, other string) float64 {
	t.Helper()
	luminance := func(paint string) (sum float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(paint[1+2*i:3+2*i], 16, 8)
			require.NoError(t, err)
			c := float64(n) / 255
			if c <= 0.04045 {
				sum += weight * c / 12.92
			} else {
				sum += weight * math.Pow((c+0.055)/1.055, 2.4)
			}
		}
		return sum
	}
	a, b := luminance(one), luminance(other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}
