package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	sweepEvery = time.Minute            // between sweeps over all namespaces
	trimPause  = 100 * time.Millisecond // between calls that erase, so that others come in between
	sweepPage  = 50                     // namespaces read at once
)

// janitor erases users who were not seen for longer than the retention. Several servers on one Redis
// may each have one: what one erased, the others do not find.
type janitor struct {
	store     store.Store
	retention time.Duration
	logger    *slog.Logger
	pause     func(context.Context, time.Duration) // returns early when the context ends
}

// run sweeps now and then until the context ends.
func (j *janitor) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := j.sweep(ctx); err != nil && ctx.Err() == nil {
			j.logger.Warn("cannot erase users past their retention; trying again later", "error", err)
		}
		j.pause(ctx, sweepEvery)
	}
}

// sweep goes over all namespaces once. One that cannot be trimmed does not stop it, unless nothing
// can be.
func (j *janitor) sweep(ctx context.Context) error {
	var failed error
	for after := ""; ; {
		namespaces, err := j.store.Namespaces(ctx, after, sweepPage)
		if err != nil {
			return err
		}
		for _, n := range namespaces {
			err := j.trim(ctx, n.Name)
			if ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
				return err
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("namespace %s: %w", n.Name, err))
			}
		}
		if len(namespaces) < sweepPage {
			return failed
		}
		after = namespaces[len(namespaces)-1].Name
	}
}

// trim erases in small calls until there is nobody left to erase.
func (j *janitor) trim(ctx context.Context, namespace string) error {
	for {
		now, err := j.store.Now(ctx)
		if err != nil {
			return err
		}
		cutoff := now.Add(-j.retention)
		if cutoff < lastseen.MinInstant {
			return nil
		}
		n, err := j.store.Trim(ctx, namespace, cutoff)
		if err != nil || n == 0 {
			return err
		}
		j.logger.Info("erased users past their retention", "namespace", namespace, "users", n)
		j.pause(ctx, trimPause)
	}
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
