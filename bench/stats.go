package main

import (
	"cmp"
	"slices"
	"time"
)

// quantile returns the value below which the share q of the values lies, by the nearest rank; zero of
// none.
func quantile[T cmp.Ordered](values []T, q float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// median returns the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// bounds are a median and what it lies between.
type bounds struct{ median, low, high float64 }

func boundsOf(values []float64) bounds {
	if len(values) == 0 {
		return bounds{}
	}
	return bounds{median(values), slices.Min(values), slices.Max(values)}
}

// medianTime is the median of durations.
func medianTime(values []time.Duration) time.Duration { return quantile(values, 0.5) }
