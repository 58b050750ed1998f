package connections

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// ErrEnded means that the connection has ended.
var ErrEnded = errors.New("the connection has ended")

// MaxGrace is the longest grace, and the longest delay of a leave.
const MaxGrace = time.Minute

// MaxIdle is the longest time for which a device can be idle when its connection opens.
const MaxIdle = 7 * 24 * time.Hour

// Reason is why the registry has a connection closed.
type Reason int

// The reasons.
const (
	// Closed: the user was forgotten, or an operator closed the user's connections.
	Closed Reason = iota
	// Impossible: the namespace cannot have devices any longer, or its user cannot be recorded for another reason that
	// does not pass.
	Impossible
)

// Ending is how a connection ended.
type Ending int

// The endings. Those that write no leave still write what was received before.
const (
	// Gone: the peer closed the connection, or it broke: a leave at the time at which it was last active, written
	// after the grace.
	Gone Ending = iota
	// Silent: the peer was no longer active. There is no leave, and the record ages.
	Silent
	// Left: the client left by Leave before. If Leave failed, the leave is written as soon as possible.
	Left
	// Ended: the server ended the connection. There is no leave, and the record ages.
	Ended
)

// Connection is a connection that a user holds open. Its methods may be called from many goroutines.
type Connection struct {
	o        Opening
	r        *Registry
	record   string         // the ID of its record
	state    lastseen.State // of the user, when it opened
	received atomic.Int64   // monotonic

	// The rest is guarded by the registry's mu.
	index  int          // in Registry.held; -1 if heartbeats are not written
	opened clockReading // store is 0 until it is known
	at     lastseen.Instant

	heartbeat time.Duration // the time of the newest heartbeat that is stored; monotonic, as the rest
	wrote     time.Duration // when it was written
	recorded  time.Duration // when the record was written
	told      time.Duration // when it was written because of the activity
	void      time.Duration // what was received until then is not written: the namespace was deleted

	idleSince time.Duration
	idleAt    lastseen.Instant // the same by the store's clock, once it was recorded

	made    bool // the registry made the ID of the device
	idle    bool
	changed bool // the record has to be written
	dropped bool // the store has no record, although the connection is alive
	failed  bool // a heartbeat could not be written
	quiet   bool // heartbeats are not written, because of Leave
	left    bool // Leave succeeded
	opening bool // Open has not returned yet
	closed  bool // the registry ended it
	ended   bool // End was called
}

const (
	suffixLen       = 8 // of the ID of a record, after the separator
	suffixSeparator = '~'
	madeDeviceLen   = 16
)

// random returns n random characters of a–z and 2–7.
func random(n int) string { return strings.ToLower(rand.Text()[:n]) }

// newConnection returns a connection that is not in the registry.
func (r *Registry) newConnection(o Opening) *Connection {
	c := &Connection{o: o, r: r, index: -1, opening: true, made: o.Device == "", told: -activityEvery}
	if c.made {
		o.Device = random(madeDeviceLen)
	}
	c.record = o.Device + string(suffixSeparator) + random(suffixLen)
	c.o.Device = c.record[:len(o.Device)]
	c.o.Grace = min(max(0, o.Grace), MaxGrace)
	return c
}

// DeviceOf returns the ID of the device whose record has an ID: a connection's record has that of the device, with a
// suffix of its own.
func DeviceOf(record string) string {
	device, suffix := record[:max(0, len(record)-suffixLen)], record[max(0, len(record)-suffixLen):]
	made := !strings.ContainsFunc(suffix, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '2' || c > '7') })
	if len(device) > 1 && device[len(device)-1] == suffixSeparator && made {
		return device[:len(device)-1]
	}
	return record
}

// Device returns the ID of the device.
func (c *Connection) Device() string { return c.o.Device }

// State returns the user's state after the connection's first ping.
func (c *Connection) State() lastseen.State { return c.state }

// Received notes that the peer was active at this moment. It is cheap, and writes nothing by itself.
func (c *Connection) Received() { c.received.Store(int64(c.r.monotonic())) }

// lastReceived returns when the peer was last active; monotonic.
func (c *Connection) lastReceived() time.Duration { return time.Duration(c.received.Load()) }

// SetIdle notes whether the person uses the device. It is written within a second or so, but not again for 5 s.
func (c *Connection) SetIdle(idle bool) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.idle == idle {
		return
	}
	c.idle, c.idleSince, c.idleAt, c.changed = idle, c.r.monotonic(), 0, true
	c.r.again(c, 0)
}

// Renew notes that the store may have dropped the record, as when the user becomes invisible. What is received next
// writes it within a second or so.
func (c *Connection) Renew() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.dropped = true
	c.wrote = min(c.wrote, c.r.monotonic()-renewEvery)
	c.r.again(c, 0)
}

// Leave writes a leave at this moment and returns the user's state. What is received afterwards writes nothing. It
// returns ErrEnded after the end; after another error the connection continues as before.
func (c *Connection) Leave(ctx context.Context) (lastseen.State, error) {
	c.r.mu.Lock()
	if c.ended || c.closed {
		c.r.mu.Unlock()
		return lastseen.State{}, ErrEnded
	}
	c.quiet = true
	c.r.mu.Unlock()
	state, err := c.leave(ctx)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if err != nil {
		c.quiet = c.left
		return lastseen.State{}, err
	}
	if !c.left {
		c.left = true
		c.r.setFailed(c, false)
		c.r.stats.Leaves++
	}
	return state, nil
}

// leave writes a leave at this moment.
func (c *Connection) leave(ctx context.Context) (lastseen.State, error) {
	now, err := c.r.now(ctx)
	if err != nil {
		return lastseen.State{}, err
	}
	c.r.mu.Lock()
	bye := c.lastLeave(now.monotonic, now.monotonic)
	c.r.mu.Unlock()
	bye.At = now.notBefore(bye.At, now.monotonic)
	return c.r.writeOne(ctx, bye)
}

// lastLeave returns the leave of the connection at a time, to be written when it is due.
func (c *Connection) lastLeave(received, due time.Duration) pending {
	return pending{
		namespace: c.o.Namespace,
		DeviceEvent: store.DeviceEvent{
			User: c.o.User, ID: c.record, Kind: c.o.Kind, At: c.at, Gone: true,
		},
		received: received, due: due, opened: c.opened, of: leaveOfConnection,
	}
}

// End notes that the connection ended, and how. The first call counts. It has to be called for each connection, also
// when the registry had it closed: then nothing is written.
func (c *Connection) End(how Ending) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	r.stats.Open--
	r.release(c)
	r.unhold(c)
	if how == Silent && !c.closed && !c.left {
		r.stats.Lost++
	}
	if c.closed || c.left || r.stopping || c.lastReceived() <= c.void {
		return
	}
	switch received, now := c.lastReceived(), r.monotonic(); {
	case how == Gone:
		r.wait(c.lastLeave(received, now+c.o.Grace))
	case how == Left:
		r.wait(c.lastLeave(received, now))
	case received > c.heartbeat:
		ping := store.DeviceEvent{User: c.o.User}
		r.wait(pending{
			namespace: c.o.Namespace, DeviceEvent: ping, received: received, due: now, opened: c.opened,
		})
	}
}

// clockReading is the time by two clocks.
type clockReading struct {
	monotonic time.Duration
	store     lastseen.Instant
}

// now returns the present. Without the store's time, only the monotonic one is set.
func (r *Registry) now(ctx context.Context) (clockReading, error) {
	now, err := r.o.Store.Now(ctx)
	return clockReading{r.monotonic(), now}, err
}

// at returns the time by the store's clock at a monotonic time, as that clock runs now.
func (m clockReading) at(monotonic time.Duration) lastseen.Instant {
	return max(lastseen.MinInstant, m.store.Add(monotonic-m.monotonic))
}

// notBefore returns the time at a monotonic time, but not one before an earlier event of the same connection: the
// store's clock may have been slowed down since. An event that the store would take to be in the future says nothing:
// the clock was set back since.
func (m clockReading) notBefore(earlier lastseen.Instant, monotonic time.Duration) lastseen.Instant {
	at := m.at(monotonic)
	if earlier > m.store.Add(store.MaxAhead) {
		return at
	}
	return max(at, earlier)
}

// steady returns a time that was reckoned before if it is about the same now, and otherwise the new one: the store's
// clock was set since.
func steady(before, now lastseen.Instant) lastseen.Instant {
	if before < now.Add(-store.MaxClockDrift) || before > now.Add(store.MaxClockDrift) {
		return now
	}
	return before
}
