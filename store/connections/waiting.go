package connections

import (
	"context"
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	// MaxLater is the number of leaves that wait for their time on one server; more are written at once.
	MaxLater = 10_000
	// maxWaiting is the number of events that wait, for their time or for the store. More are dropped, as if the
	// connections had ended in silence.
	maxWaiting = 100_000
	warnEvery  = time.Minute // that some were dropped
)

// DelayedLeave is a leave that is written later, unless a ping comes meanwhile: since it has the time at which it was
// asked for, a later ping makes it harmless.
type DelayedLeave struct {
	Namespace         string
	store.DeviceEvent               // Gone; with an empty ID it is of all devices
	After             time.Duration // up to MaxGrace
}

// Later writes leaves after their delays; at once, together, if too many wait, or after Stop. It returns an error only
// if some that had to be written at once were not.
func (r *Registry) Later(ctx context.Context, departures ...DelayedLeave) error {
	if !r.hasPosition() {
		_ = r.readDisconnects(ctx) // without a position, leaves can only miss a disconnect that comes right now
	}
	var atOnce []write
	for _, d := range departures {
		p := pending{
			namespace: d.Namespace, DeviceEvent: d.DeviceEvent, of: leaveByLater, received: r.monotonic(),
		}
		p.due = p.received + min(max(0, d.After), MaxGrace)
		p.Gone = true
		if !r.addLater(p) {
			atOnce = append(atOnce, write{pending: p})
		}
	}
	r.write(ctx, atOnce)
	for _, w := range atOnce {
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// addLater reports whether a leave can wait.
func (r *Registry) addLater(p pending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping || r.later >= MaxLater || len(r.waiting) >= maxWaiting {
		return false
	}
	r.add(p)
	return true
}

// wait has what a connection left written when it is due.
func (r *Registry) wait(p pending) {
	if len(r.waiting) < maxWaiting {
		r.add(p)
		return
	}
	r.stats.Dropped++
	if now := r.monotonic(); now >= r.nextWarn {
		r.nextWarn = now + warnEvery
		r.o.Logger.Warn("leaves are dropped: too many wait", "dropped", r.stats.Dropped)
	}
}

func (r *Registry) add(p pending) {
	r.waiting = append(r.waiting, p)
	if p.of == leaveByLater {
		r.later++
	}
}

// removed notes that an event waits no longer.
func (r *Registry) removed(p pending) {
	if p.of == leaveByLater {
		r.later--
	}
}

// waits reports whether an event is due.
func (r *Registry) waits(now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.waiting, func(p pending) bool { return p.due <= now })
}

// takeDue removes the events that are due, and returns them with their times.
func (r *Registry) takeDue(now clockReading) (batch []write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(p pending) bool {
		if p.due > now.monotonic {
			return false
		}
		r.removed(p)
		switch p.of {
		case receivedOnConnection:
			p.At = now.at(p.received)
		case leaveOfConnection:
			p.At = now.notBefore(p.At, p.received)
		}
		batch = append(batch, write{pending: p})
		return true
	})
	return batch
}

// Stop has Open fail from now on, writes what was received on the connections, and the leaves that wait for their time,
// and returns when all is written or the context ends. Connections stay open; their ends write nothing any longer. Run
// need not be running.
func (r *Registry) Stop(ctx context.Context) {
	r.mu.Lock()
	r.stopping = true
	for i := range r.waiting {
		r.waiting[i].due = 0
	}
	r.mu.Unlock()
	for ctx.Err() == nil && !r.writeAll(ctx) {
		r.pause(ctx, roundEvery)
	}
}

// writeAll reports whether nothing is left to be written.
func (r *Registry) writeAll(ctx context.Context) (done bool) {
	select {
	case r.working <- struct{}{}:
		defer func() { <-r.working }()
	case <-ctx.Done():
		return false
	}
	if r.idle() {
		return true
	}
	err := r.work(ctx, task{heartbeats: true, all: true})
	r.mu.Lock()
	defer r.mu.Unlock()
	return err == nil && len(r.waiting) == 0
}
