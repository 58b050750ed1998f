package connections

import (
	"context"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
)

// clockError is by how much this process' reckoning of the store's clock may be ahead of it. Without this, a connection
// that was opened just before a disconnect would seem to be newer, and its user would come back after a forget.
const clockError = 100 * time.Millisecond

// readDisconnects closes the connections that any server was asked to close until now. Of calls at the same time, those
// that wait share the next read. A failure is theirs, too.
func (r *Registry) readDisconnects(ctx context.Context) error {
	r.mu.Lock()
	next := r.disconnectReads + 1
	r.mu.Unlock()
	r.readingDisconnects <- struct{}{}
	defer func() { <-r.readingDisconnects }()
	r.mu.Lock()
	shared := r.disconnectReads >= next
	r.disconnectReads = max(r.disconnectReads, next)
	r.mu.Unlock()
	if !shared {
		r.disconnectsErr = r.closeAsked(context.WithoutCancel(ctx))
	}
	return r.disconnectsErr
}

func (r *Registry) hasPosition() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position != ""
}

// closeAsked closes the connections that any server was asked to close since the last call. What their users left to be
// written is not, nor what was received in a namespace that was deleted since. A connection was open when it was asked
// if it was opened before the last read, unless what was read then is read again, or before the time at which it was
// asked: by the store's clock at the opening, or as it runs now, if it was set back since. What the store may have lost
// of the connections that stay is recorded again.
func (r *Registry) closeAsked(ctx context.Context) error {
	began := r.monotonic()
	r.mu.Lock()
	position, lastRead := r.position, r.positionRead
	r.mu.Unlock()
	disconnects, next, err := r.o.Store.Disconnects(ctx, position)
	if err != nil {
		return err
	}
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	asked := make(map[lastseen.UserKey]lastseen.Instant, len(disconnects))
	ofNamespaces := false
	for _, disconnect := range disconnects {
		key := lastseen.UserKey{Namespace: disconnect.Namespace, User: disconnect.User}
		asked[key] = max(asked[key], disconnect.At)
		ofNamespaces = ofNamespaces || disconnect.User == ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position, r.positionRead = next, began
	before := lastRead // what was there then was there when it was asked
	_, again := asked[lastseen.UserKey{}]
	if again { // the store may have lost data, and returns earlier disconnects
		before = 0
	}
	for key, at := range asked {
		at = at.Add(clockError)
		for _, c := range r.users[key] {
			opened := c.opened.store
			switch {
			case opened == 0: // the user may be deleted after the first ping: it is recorded again
				c.changed, c.dropped, c.told = true, true, now.monotonic
			case c.opened.monotonic <= before, min(opened, steady(opened, now.at(c.opened.monotonic))) <= at:
				r.close(c, Closed)
			}
		}
	}
	if ofNamespaces {
		r.voidReceived(asked, now, before)
	}
	if again {
		r.recordAgain("")
	}
	if len(asked) > 0 {
		r.waiting = slices.DeleteFunc(r.waiting, func(p pending) bool {
			cancelled := isCancelled(p, asked, now, before)
			if cancelled {
				r.removed(p)
			}
			return cancelled
		})
	}
	return nil
}

// voidReceived has nothing written that was received on the connections of a namespace before it was deleted. They stay
// open.
func (r *Registry) voidReceived(
	asked map[lastseen.UserKey]lastseen.Instant, now clockReading, before time.Duration,
) {
	for i := range r.held {
		c := r.held[i].c
		at, found := asked[lastseen.UserKey{Namespace: c.o.Namespace}]
		if !found {
			continue
		}
		age := time.Duration(now.store-at.Add(clockError)) * time.Millisecond
		c.void = max(before, now.monotonic-max(0, age)) // not later, also if the store's clock was set back since
		if c.lastReceived() <= c.void {
			r.setFailed(c, false)
		}
		c.dropped = true // the record is deleted
	}
}

// isCancelled reports whether an event must not be written, because of a disconnect of its user's connections or of
// its namespace. Of a namespace, what was received after the disconnect counts: its connections stay open.
func isCancelled(
	p pending, asked map[lastseen.UserKey]lastseen.Instant, now clockReading, before time.Duration,
) bool {
	at, found := asked[lastseen.UserKey{Namespace: p.namespace, User: p.User}]
	if found && p.of != leaveByLater && (p.opened.store <= at || p.opened.monotonic <= before) {
		return true
	}
	wasReceived := func(at lastseen.Instant) bool {
		return p.received <= before || now.at(p.received) <= at.Add(clockError)
	}
	if found && p.of == leaveByLater && wasReceived(at) {
		return true
	}
	at, found = asked[lastseen.UserKey{Namespace: p.namespace}]
	return found && wasReceived(at)
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
