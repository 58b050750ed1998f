package connections

import (
	"math"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// collect returns what to write of what was received on connections: what is due, or all.
func (r *Registry) collect(now clockReading, all bool) []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []write
	settings := map[string]Settings{}
	for i := range r.held {
		if !all && r.held[i].due > now.monotonic {
			continue
		}
		c := r.held[i].c
		s, known := settings[c.o.Namespace]
		if !known {
			s = r.o.Settings(c.o.Namespace)
			settings[c.o.Namespace] = s
		}
		if received, due := c.heartbeatDue(now.monotonic, s, all); due {
			batch = append(batch, write{pending: c.event(now, received, s), c: c})
		}
	}
	return batch
}

// heartbeatDue reports whether something has to be written for a connection, and when the peer was active. If not, it
// may set when the connection has to be looked at again; by default, that is in the next round.
func (c *Connection) heartbeatDue(now time.Duration, s Settings, all bool) (received time.Duration, due bool) {
	received = c.lastReceived()
	next := c.wrote + s.heartbeatEvery()
	switch {
	case c.quiet, received <= c.void:
		return received, false
	case c.changed && now >= c.told+activityEvery:
	case received <= c.heartbeat && !c.failed:
		return received, false
	case c.dropped && !c.failed && now >= c.wrote+renewEvery:
	case !all && !c.failed && now < next:
		if !c.changed {
			if c.dropped {
				next = min(next, c.wrote+renewEvery)
			}
			c.r.held[c.index].due = min(next, now+longestSleep)
		}
		return received, false
	}
	c.r.held[c.index].due = min(now+s.heartbeatEvery(), now+longestSleep)
	return received, true
}

// event returns what was received on a connection as a plain ping, which is cheap, or as one of the record. That is
// necessary at times, since a record that is too old does not count; and for what a plain ping does not say.
func (c *Connection) event(now clockReading, received time.Duration, s Settings) pending {
	ping := store.DeviceEvent{User: c.o.User, At: now.at(received)}
	p := pending{namespace: c.o.Namespace, DeviceEvent: ping, received: received}
	c.at = max(c.at, p.At)
	returned := c.recorded < c.r.returned // the store may have lost the record
	stale := now.monotonic >= c.recorded+s.recordEvery()
	// While the store is away, only what is cheap is tried. Afterwards the record follows.
	if c.failed || !c.changed && !c.dropped && !returned && !stale {
		return p
	}
	if c.changed {
		c.changed, c.told = false, now.monotonic
	}
	p.ID, p.Kind = c.record, c.o.Kind
	if returned || c.dropped {
		p.Meta = c.o.Meta
	}
	if c.idle {
		c.idleAt = min(p.At, steady(c.idleAt, now.at(c.idleSince)))
		p.Idle = c.idleAt
	}
	return p
}

// wroteHeartbeat notes that a heartbeat of a connection is stored.
func (r *Registry) wroteHeartbeat(w *write, now time.Duration) {
	c := w.c
	c.heartbeat, c.wrote = w.received, now
	switch {
	case isAway(w.state): // the user left by other means, or is invisible
		c.dropped = true
	case w.ID != "":
		c.dropped = false
	}
	if w.ID != "" {
		c.recorded = now
	}
	if c.dropped {
		r.again(c, now)
	}
	if c.failed {
		c.changed = true
		r.setFailed(c, false)
		r.again(c, now)
	}
}

// isAway reports whether a user is not present by what the store returned for something that was received: it shows
// nothing of it, because the user left later or is invisible. The store then has no record of the connection.
func isAway(s lastseen.State) bool { return s.Left || s.At == 0 }

func (r *Registry) setFailed(c *Connection, failed bool) {
	switch {
	case failed && !c.failed:
		r.stats.Unwritten++
	case !failed && c.failed:
		r.stats.Unwritten--
	}
	c.failed = failed
}

// RecordAgain has what was last received on the connections of a namespace recorded again, each at a random time within
// 10 s. Call it when the store may have lost its data: otherwise users are unknown until their connections are active.
func (r *Registry) RecordAgain(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordAgain(namespace)
}

// recordAgain is RecordAgain for a caller that holds the lock; with "", for all namespaces.
func (r *Registry) recordAgain(namespace string) {
	for i := range r.held {
		c := r.held[i].c
		if waits := c.heartbeat == longAgo; !waits && (namespace == "" || c.o.Namespace == namespace) {
			r.held[i].due = r.monotonic() + time.Duration(r.o.Random()*float64(againWithin))
			c.heartbeat, c.recorded, c.wrote = longAgo, longAgo, longAgo
		}
	}
}

// longAgo is the time of what the store may have lost.
const longAgo time.Duration = math.MinInt64 / 2

// again has a connection looked at in the next round.
func (r *Registry) again(c *Connection, now time.Duration) {
	if c.index >= 0 {
		r.held[c.index].due = now
	}
}
