package connections

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// The errors of Open.
var (
	// ErrTooMany means that the user has as many connections on this server as allowed.
	ErrTooMany = errors.New("the user has too many connections")
	// ErrStopping means that the server is stopping.
	ErrStopping = errors.New("the server is stopping")
)

// Opening describes a connection that begins.
type Opening struct {
	Namespace, User string
	// Device is the ID of the device; empty for one that the registry makes. Several connections can have the same:
	// each has its own record.
	Device string
	Kind   lastseen.DeviceKind
	Meta   string
	// Activity is what the client says about the use of the device; nil for nothing. Then a device that is known stays
	// as it was.
	Activity *Activity
	Grace    time.Duration // from the end of the connection to its leave; 0 to MaxGrace
	// Peer is what Peers returns for the connection: anything by which the transport knows it.
	Peer any
	// Close is called once, in its own goroutine, if the registry ends the connection: perhaps before Open has
	// returned it. The transport closes it and calls End.
	Close func(Reason)
}

// Activity says whether the person uses a device.
type Activity struct {
	Idle bool          // they do not
	For  time.Duration // how long they have not, 0 to MaxIdle
}

// Open records the connection's first ping, at the present by the store's clock, and returns the connection. Errors are
// ErrTooMany, ErrStopping and those of the store, and then there is no connection.
func (r *Registry) Open(ctx context.Context, o Opening) (*Connection, error) {
	c := r.newConnection(o)
	if err := r.reserve(c); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.release(c)
		return nil, err
	}
	r.hold(c)
	return c, nil
}

// reserve adds a connection to those of its user, unless there are too many.
func (r *Registry) reserve(c *Connection) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return ErrStopping
	}
	key := lastseen.UserKey{Namespace: c.o.Namespace, User: c.o.User}
	if len(r.users[key]) >= r.o.MaxUser {
		return ErrTooMany
	}
	r.users[key] = append(r.users[key], c)
	return nil
}

// release removes a connection from those of its user.
func (r *Registry) release(c *Connection) {
	key := lastseen.UserKey{Namespace: c.o.Namespace, User: c.o.User}
	r.users[key] = slices.DeleteFunc(r.users[key], func(other *Connection) bool { return other == c })
	if len(r.users[key]) == 0 {
		delete(r.users, key)
	}
}

// begin writes the first ping of a connection. It reads the disconnects before, so that none that was asked for earlier
// closes it, and from then on none is missed.
func (c *Connection) begin(ctx context.Context) error {
	r := c.r
	if err := r.readDisconnects(ctx); err != nil && !r.hasPosition() {
		return err
	}
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	idle, err := c.firstIdle(ctx, now)
	if err != nil {
		return err
	}
	r.mu.Lock()
	c.opened, c.at = now, now.store
	c.idle, c.idleAt = idle != 0, idle
	c.idleSince = now.monotonic - now.store.Sub(idle)
	c.heartbeat, c.recorded = now.monotonic, now.monotonic
	// The first heartbeat comes earlier than later ones, by a random part, so that connections that were opened
	// together do not stay together.
	early := r.o.Random() / 2 * float64(r.o.Settings(c.o.Namespace).heartbeatEvery())
	c.wrote = now.monotonic - time.Duration(early)
	c.received.Store(int64(now.monotonic))
	r.mu.Unlock()
	first := store.DeviceEvent{
		User: c.o.User, ID: c.record, Kind: c.o.Kind, At: now.store, Idle: idle, Meta: c.o.Meta,
	}
	c.state, err = r.writeOne(ctx, pending{namespace: c.o.Namespace, DeviceEvent: first})
	r.mu.Lock()
	c.dropped = c.dropped || err == nil && isAway(c.state)
	r.mu.Unlock()
	return err
}

// firstIdle returns since when the person does not use the device; 0 while they do. If the store has about the same
// time for the device or the user, it stays: a client that connects again has been idle all the time, and nobody sees a
// change. A device that begins idle does not show that the person was there: an idle user has been so all the time.
func (c *Connection) firstIdle(ctx context.Context, now clockReading) (idle lastseen.Instant, err error) {
	a := c.o.Activity
	if a == nil && c.made || a != nil && !a.Idle {
		return 0, nil
	}
	if a != nil {
		idle = max(lastseen.MinInstant, now.store.Add(-min(max(0, a.For), MaxIdle)))
	}
	devices, err := c.r.o.Store.ReadDevices(ctx, c.o.Namespace, c.o.User)
	late := idleTolerance + c.r.o.Settings(c.o.Namespace).PingInterval // a ping says later that the device is idle
	same := func(since lastseen.Instant) bool { return since >= idle.Add(-idleTolerance) && since <= idle.Add(late) }
	for _, record := range devices.Live(now.store) { // the newest first
		if DeviceOf(record.ID) == c.o.Device && (a == nil || same(record.IdleSince)) {
			return min(record.IdleSince, now.store), err
		}
	}
	if shown, _ := devices.Activity(now.store); shown != 0 && (same(shown) || idle >= now.store.Add(-idleTolerance)) {
		idle = min(shown, now.store)
	}
	return idle, err
}

// hold begins to write the heartbeats of a connection, unless it was closed meanwhile.
func (r *Registry) hold(c *Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Opened++
	r.stats.Open++
	c.opening = false
	if c.closed {
		go c.o.Close(Closed)
		return
	}
	c.index = len(r.held)
	r.held = append(r.held, held{c: c})
}

// unhold ends to write the heartbeats of a connection.
func (r *Registry) unhold(c *Connection) {
	if c.index < 0 {
		return
	}
	r.setFailed(c, false)
	last := len(r.held) - 1
	r.held[c.index] = r.held[last]
	r.held[c.index].c.index = c.index
	r.held[last] = held{}
	r.held = r.held[:last]
	c.index = -1
}
