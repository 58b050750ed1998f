package store

import (
	"context"

	"github.com/lastseen/lastseen"
)

// CountByStatus returns the number of users with each status at an instant, of those last seen from one time to
// another, both included. Its errors are those of Count.
func CountByStatus(
	ctx context.Context, s Reader, namespace string, t lastseen.Thresholds, asOf, from, to lastseen.Instant,
) (map[lastseen.Status]int64, error) {
	var ranges []lastseen.Range
	var statuses []lastseen.Status // of the ranges
	for _, status := range lastseen.Statuses() {
		for _, r := range t.Ranges([]lastseen.Status{status}, asOf, from, to) {
			ranges, statuses = append(ranges, r), append(statuses, status)
		}
	}
	counts, err := s.Count(ctx, namespace, ranges)
	if err != nil {
		return nil, err
	}
	sums := map[lastseen.Status]int64{}
	for i, n := range counts {
		sums[statuses[i]] += n
	}
	return sums, nil
}
