package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	sweepEvery = time.Minute           // between two sweeps of a namespace
	sweepPause = 10 * time.Millisecond // the shortest pause; when there are many namespaces, several come between two
	manyRooms  = 5000                  // from this many namespaces on, several are looked after at once
	sweepCrew  = 8                     // so many
	awayPause  = 5 * time.Second       // before a store that cannot be reached is asked again

	leaseName  = "janitor"
	leaseTime  = 3 * time.Minute // longer than sweepEvery and a call, so that a holder does not lose it by resting
	leaseRenew = 30 * time.Second

	releaseTimeout = time.Second // a server that stops does not wait longer for Redis
)

// janitor deletes users who were not seen for longer than their namespace's retention, and namespaces that are empty
// and not configured. Of all servers on a store one does so at a time, the one that holds the lease. When it stops or
// dies the lease ends by itself, and another one goes on.
//
// It measures time by a monotonic clock. The store's clock says who is deleted, and only while it is steady.
type janitor struct {
	store      store.Store
	retention  func(namespace string) time.Duration // asked each time; 0 for never
	configured func(namespace string) bool          // asked each time; such namespaces exist also when they are empty
	logger     *slog.Logger
	pause      func(context.Context, time.Duration) // returns early when the context ends
	monotonic  func() time.Duration                 // time since some moment; it is never set
	crew       int                                  // how many namespaces are looked after at once, when there are many

	mu      sync.Mutex
	leased  time.Duration // when the lease was granted
	holding bool          // it was
	clock   steadiness
	full    fullSweeps
}

// newJanitor returns a janitor for a store that serves the current settings. It deletes nobody for a while, since the
// clock may be wrong: then those seen since the start are the only ones that are not past their retention.
func newJanitor(s store.Store, running *runtimeConfig, logger *slog.Logger) *janitor {
	start := time.Now()
	return &janitor{
		store: s, retention: running.retention, configured: running.configured, logger: logger, pause: sleep,
		monotonic: func() time.Duration { return time.Since(start) }, crew: sweepCrew, clock: steadiness{waiting: true},
	}
}

// run sweeps again and again until the context ends. Then it gives up its lease: another server, or this one once it
// was restarted, need not wait for its end.
func (j *janitor) run(ctx context.Context) {
	defer j.release(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		begun := j.monotonic()
		if _, err := j.now(ctx); err != nil {
			j.warn(ctx, "", err)
		} else if j.holds(ctx) {
			j.round(ctx, begun)
		} else {
			j.full.forget()
		}
		if rest := begun + sweepEvery - j.monotonic(); rest > 0 && ctx.Err() == nil {
			j.pause(ctx, rest)
		}
	}
}

// round looks after each namespace once, evenly spread over what is left of the time until the next round.
func (j *janitor) round(ctx context.Context, begun time.Duration) {
	rooms, err := j.rooms(ctx)
	if err != nil {
		j.warn(ctx, "", err)
		return
	}
	j.full.begin()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look, wait := j.hire(ctx, cancel, len(rooms))
	start := j.monotonic()
	rest := max(0, begun+sweepEvery-start)
	for k, r := range rooms {
		due := start + time.Duration(float64(rest)*float64(k)/float64(len(rooms)))
		if early := due - j.monotonic(); early >= sweepPause {
			j.pause(ctx, early)
		}
		if ctx.Err() != nil || !j.holds(ctx) {
			break
		}
		look(r)
	}
	wait()
	j.full.report(j.logger)
}

// hire returns what looks after a namespace, now or, when there are many, among several at once; and what waits until
// all is done. When nothing can be reached the round ends.
func (j *janitor) hire(ctx context.Context, cancel context.CancelFunc, rooms int) (look func(room), wait func()) {
	do := func(r room) {
		if ctx.Err() == nil && !j.lookAfter(ctx, r) {
			cancel()
		}
	}
	if rooms < manyRooms || j.crew <= 1 {
		return do, func() {}
	}
	queue := make(chan room)
	var running sync.WaitGroup
	for range j.crew {
		running.Go(func() {
			for r := range queue {
				do(r)
			}
		})
	}
	return func(r room) { queue <- r }, func() {
		close(queue)
		running.Wait()
	}
}

// lookAfter does what is to be done for one namespace. It returns false when nothing can be reached, not only this one.
func (j *janitor) lookAfter(ctx context.Context, r room) bool {
	err := j.sweep(ctx, r)
	if err == nil {
		return true
	}
	j.warn(ctx, r.name, err)
	if !errors.Is(err, store.ErrUnavailable) || j.store.Ready(ctx) == nil {
		return true
	}
	j.pause(ctx, awayPause) // a store that stalls for a moment does not end the round
	return j.store.Ready(ctx) == nil
}

func (j *janitor) warn(ctx context.Context, namespace string, err error) {
	if ctx.Err() == nil {
		j.logger.Warn("cannot delete users past their retention; trying again later", "namespace", namespace, "error", err)
	}
}

// holds reports whether this janitor has the lease, asking for it or renewing it when it is time.
func (j *janitor) holds(ctx context.Context) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.monotonic()
	if j.holding && now < j.leased+leaseRenew {
		return true
	}
	granted, err := j.store.Lease(ctx, leaseName, leaseTime)
	if err != nil {
		j.warn(ctx, "", err)
	}
	j.holding, j.leased = granted && err == nil, now
	return j.holding
}

// release gives up the lease by asking for it once more, for next to no time.
func (j *janitor) release(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.holding || j.monotonic() >= j.leased+leaseTime {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if _, err := j.store.Lease(ctx, leaseName, time.Millisecond); err != nil {
		j.logger.Debug("cannot give up the lease; it ends by itself", "error", err)
	}
	j.holding = false
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
