package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// bulkPing returns the probe that pings every user once, in NDJSON, by so many requests side by side, in
// another random order each time. It takes as long as it takes.
func (l *lab) bulkPing(s *server, streams int) (probe, error) {
	if err := l.fill(s, bulk); err != nil {
		return nil, err
	}
	n := l.ids.len()
	parts := make([][]byte, streams)
	return func(ctx context.Context, _ time.Duration) (measurement, error) {
		shuffled := l.ids.shuffled()
		for i := range parts {
			parts[i] = shuffled.lines(i*n/streams, (i+1)*n/streams, nil)
		}
		return s.account(func() (measurement, error) {
			before := ownCPU()
			begun := time.Now()
			group, ctx := errgroup.WithContext(ctx)
			for i, part := range parts {
				group.Go(func() error { return sendLines(ctx, s.url, bulk, part, (i+1)*n/streams-i*n/streams) })
			}
			err := group.Wait()
			m := measurement{
				units: float64(n), elapsed: time.Since(begun), load: ownCPU() - before,
				command: fmt.Sprintf("%d requests side by side, application/x-ndjson, %d users in all", streams, n),
			}
			m.share = m.load.Seconds() / m.elapsed.Seconds() / float64(streams)
			return m, err
		})
	}, nil
}
