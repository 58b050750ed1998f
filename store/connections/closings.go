package connections

import (
	"context"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
)

// clockError is by how much this process' reckoning of the store's clock may be ahead of it. Without this, a connection
// that was opened just before a closing would seem to be newer, and its user would come back after a forget.
const clockError = 100 * time.Millisecond

// takePlace takes the present place among the closings, once: from then on none is missed.
func (r *Registry) takePlace(ctx context.Context) error {
	if r.hasPlace() {
		return nil
	}
	select {
	case r.working <- struct{}{}:
		defer func() { <-r.working }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.hasPlace() {
		return nil
	}
	_, place, err := r.o.Store.Closings(ctx, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place = place
	return err
}

func (r *Registry) hasPlace() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place != ""
}

// closeAsked closes the connections that any server was asked to close since the last call. What their users left to be
// written is not. A connection was open when it was asked if it was opened before: by the store's clock then, or as it
// runs now, if it was set back since.
func (r *Registry) closeAsked(ctx context.Context, now moment) error {
	r.mu.Lock()
	place := r.place
	r.mu.Unlock()
	closings, next, err := r.o.Store.Closings(ctx, place)
	if err != nil {
		return err
	}
	asked := make(map[userKey]lastseen.Instant, len(closings))
	for _, closing := range closings {
		key := userKey{closing.Namespace, closing.User}
		asked[key] = max(asked[key], closing.At)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place = next
	for key, at := range asked {
		at = at.Add(clockError)
		for c := r.users[key]; c != nil; c = c.next {
			if opened := c.opened.store; opened != 0 && min(opened, steady(opened, now.at(c.opened.monotonic))) <= at {
				r.close(c, Closed)
			}
		}
	}
	if len(asked) > 0 {
		r.waiting = slices.DeleteFunc(r.waiting, func(p pending) bool {
			at, found := asked[userKey{p.namespace, p.User}]
			cancelled := found && p.opened <= at
			if cancelled {
				r.removed(p)
			}
			return cancelled
		})
	}
	return nil
}

// close ends a connection because of the registry. Nothing is written for it any longer.
func (r *Registry) close(c *Connection, reason Reason) {
	if c.closed || c.ended {
		return
	}
	c.closed = true
	r.unhold(c)
	if reason == Closed {
		r.stats.Forgotten++
	}
	if !c.opening { // else Open does
		go c.o.Close(reason)
	}
}
