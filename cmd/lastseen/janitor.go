package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	sweepEvery = time.Minute            // between two sweeps of a namespace
	sweepStep  = 10 * time.Millisecond  // at least so long between two namespaces, however many there are
	sweepPage  = 50                     // namespaces read at once
	trimPause  = 100 * time.Millisecond // between calls that erase, so that others come in between

	leaseName  = "janitor"
	leaseTime  = 3 * time.Minute // longer than sweepEvery and a call, so that a holder does not lose it by resting
	leaseRenew = 30 * time.Second
)

// janitor erases users who were not seen for longer than their namespace's retention. Of all servers on a
// store one does so at a time, the one that holds the lease. When it stops or dies the lease ends by
// itself, and another one goes on.
type janitor struct {
	store     store.Store
	retention func(namespace string) time.Duration // asked anew each time; 0 for never
	wanted    func() bool                          // whether any namespace has a retention
	logger    *slog.Logger
	pause     func(context.Context, time.Duration) // returns early when the context ends

	leased lastseen.Instant // when the lease was last granted; 0 if it was not
}

// run sweeps again and again until the context ends.
func (j *janitor) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !j.wanted() || !j.holds(ctx) {
			j.pause(ctx, sweepEvery)
			continue
		}
		j.round(ctx)
	}
}

// round sweeps each namespace once, evenly spread over the time between two sweeps.
func (j *janitor) round(ctx context.Context) {
	names, err := j.names(ctx)
	if err != nil {
		j.warn(ctx, "", err)
	}
	if err != nil || len(names) == 0 {
		j.pause(ctx, sweepEvery)
		return
	}
	step := max(sweepStep, sweepEvery/time.Duration(len(names)))
	for _, name := range names {
		if ctx.Err() != nil || !j.holds(ctx) {
			return
		}
		if err := j.sweep(ctx, name); err != nil {
			j.warn(ctx, name, err)
			if errors.Is(err, store.ErrUnavailable) && j.store.Ready(ctx) != nil {
				j.pause(ctx, sweepEvery) // nothing can be reached, not only this one
				return
			}
		}
		j.pause(ctx, step)
	}
}

func (j *janitor) warn(ctx context.Context, namespace string, err error) {
	if ctx.Err() == nil {
		j.logger.Warn("cannot erase users past their retention; trying again later", "namespace", namespace, "error", err)
	}
}

// names returns the namespaces that have a retention.
func (j *janitor) names(ctx context.Context) (names []string, err error) {
	for after := ""; ; {
		page, err := j.store.Namespaces(ctx, after, sweepPage)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			if j.retention(n.Name) > 0 {
				names = append(names, n.Name)
			}
		}
		if len(page) < sweepPage {
			return names, nil
		}
		after = page[len(page)-1].Name
	}
}

// sweep erases in small calls until there is nobody left to erase, or somebody else has the lease.
func (j *janitor) sweep(ctx context.Context, namespace string) error {
	erased := 0
	defer func() {
		if erased > 0 {
			j.logger.Info("erased users past their retention", "namespace", namespace, "users", erased)
		}
	}()
	for ctx.Err() == nil && j.holds(ctx) {
		n, err := j.trim(ctx, namespace)
		erased += n
		if err != nil || n == 0 {
			return err
		}
		j.pause(ctx, trimPause)
	}
	return nil
}

// trim erases once, and returns how many.
func (j *janitor) trim(ctx context.Context, namespace string) (int, error) {
	now, err := j.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	keep := j.retention(namespace) // asked last, since it may have changed meanwhile
	if keep == 0 {
		return 0, nil
	}
	return j.store.Trim(ctx, namespace, now.Add(-keep))
}

// holds reports whether this janitor has the lease, asking for it or renewing it when it is time.
func (j *janitor) holds(ctx context.Context) bool {
	now, err := j.store.Now(ctx)
	if err == nil && j.leased != 0 && now < j.leased.Add(leaseRenew) {
		return true
	}
	granted := false
	if err == nil {
		granted, err = j.store.Lease(ctx, leaseName, leaseTime)
	}
	if err != nil {
		j.warn(ctx, "", err)
	}
	j.leased = 0
	if granted {
		j.leased = now
	}
	return granted
}

// sleep returns after d, or when the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
