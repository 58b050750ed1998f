package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	quietNamespaces = 1000
	quietTime       = 10 * time.Second // of one measurement
)

// quiet sets up many namespaces in which nothing happens, each with a reader, and measures the CPU time of following
// them.
func (f *fixture) quiet() (measureFunc, error) {
	servers, err := f.launchFollowed("quiet", 1)
	if err != nil {
		return nil, err
	}
	var r readers
	group, ctx := errgroup.WithContext(f.ctx)
	group.SetLimit(16)
	for i := range quietNamespaces {
		group.Go(func() error {
			return sendLines(ctx, servers[0].url, fmt.Sprintf("quiet-%d", i), f.ids.lines(0, 1, 1, nil), 1)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	err = r.connectAll(f.ctx, servers.urls(), quietNamespaces, func(i int) string {
		return fmt.Sprintf("/v1/namespaces/quiet-%d/changes?user=%s", i, f.ids.id(0))
	})
	context.AfterFunc(f.ctx, r.close)
	return func(ctx context.Context, _ time.Duration) (measurement, error) {
		begun := time.Now()
		m, err := servers.withCPU(func() (measurement, error) { return measurement{}, pause(ctx, quietTime) })
		m.elapsed = time.Since(begun)
		m.command = fmt.Sprintf("%d namespaces with one user and one reader each; nothing happens", quietNamespaces)
		m.note = fmt.Sprintf("server %.1f %%, Redis %.1f %% of a processor", busy(m.server, m), busy(m.store, m))
		return m, err
	}, err
}

// busy returns how much of one processor a CPU time is, in percent.
func busy(cpu time.Duration, m measurement) float64 { return 100 * cpu.Seconds() / m.elapsed.Seconds() }
