package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// bulkPing pings every user once, in NDJSON, in a number of concurrent requests. The order is random and differs from
// round to round. It ignores the duration.
func (f *fixture) bulkPing(streams int) (measureFunc, error) {
	s, err := f.filled(coalescing, bulkNS)
	if err != nil {
		return nil, err
	}
	n := f.ids.len()
	return func(ctx context.Context, _ time.Duration) (measurement, error) {
		shuffled := f.ids.shuffled()
		parts := make([][]byte, streams)
		for i := range parts {
			parts[i] = shuffled.lines(i*n/streams, (i+1)*n/streams, 1, nil)
		}
		return s.withCPU(func() (measurement, error) {
			begun := time.Now()
			group, ctx := errgroup.WithContext(ctx)
			for i, part := range parts {
				group.Go(func() error { return sendLines(ctx, s.url, bulkNS, part, (i+1)*n/streams-i*n/streams) })
			}
			err := group.Wait()
			return measurement{
				units: float64(n), elapsed: time.Since(begun), loadCPUs: float64(streams),
				command: fmt.Sprintf("%d requests side by side, application/x-ndjson, %d users in all", streams, n),
			}, err
		})
	}, nil
}
