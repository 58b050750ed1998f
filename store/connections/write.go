package connections

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// pending is an event that has to be written: one of a record; or without an ID a plain ping, or a leave of the user.
type pending struct {
	namespace         string
	store.DeviceEvent               // At is the earliest time that it can have
	received          time.Duration // when it was received, monotonic; a leave has another time, which is At
	due               time.Duration // when it is to be written, monotonic
	opened            clockReading  // of a connection: a disconnect of the user from then on cancels it
	of                origin
}

// origin is where an event comes from.
type origin int8

const (
	receivedOnConnection origin = iota
	leaveOfConnection
	leaveByLater
)

// write is an event that is being written, and the result.
type write struct {
	pending
	c     *Connection // if it is a heartbeat
	state lastseen.State
	err   error
}

// write writes events, in calls for one namespace each. Each event has its own result.
func (r *Registry) write(ctx context.Context, batch []write) {
	if len(batch) == 0 {
		return // most rounds of a small server
	}
	type call struct {
		namespace    string
		device, gone bool
	}
	calls := map[call][]*write{}
	for i := range batch {
		w := &batch[i]
		key := call{w.namespace, w.ID != "", w.ID == "" && w.Gone}
		calls[key] = append(calls[key], w)
	}
	var running errgroup.Group
	running.SetLimit(callsAtOnce)
	for _, writes := range calls {
		for part := range slices.Chunk(writes, maxBatch) {
			running.Go(func() error {
				r.call(ctx, part)
				return nil
			})
		}
	}
	_ = running.Wait()
	r.countLeaves(batch)
}

// call writes events in one namespace that are all of records, all plain pings, or all leaves of users.
func (r *Registry) call(ctx context.Context, writes []*write) {
	var states []lastseen.State
	var err error
	namespace := writes[0].namespace
	switch first := writes[0]; {
	case first.ID != "":
		batch := make([]store.DeviceEvent, len(writes))
		for i, w := range writes {
			batch[i] = w.DeviceEvent
		}
		states, err = r.o.Store.RecordDevices(ctx, namespace, r.o.Settings(namespace).window(), batch)
	case first.Gone:
		states, err = r.o.Store.Leave(ctx, namespace, plain(writes))
	default:
		states, err = r.o.Store.Ping(ctx, namespace, plain(writes))
	}
	for i, w := range writes {
		if w.err = err; err == nil {
			w.state = states[i]
		}
	}
}

// plain returns events without their devices.
func plain(writes []*write) []store.PresenceEvent {
	batch := make([]store.PresenceEvent, len(writes))
	for i, w := range writes {
		batch[i] = store.PresenceEvent{User: w.User, At: w.At}
	}
	return batch
}

// countLeaves reports the users who left by what was written.
func (r *Registry) countLeaves(batch []write) {
	left := map[string]int{}
	for _, w := range batch {
		if w.err == nil && w.Gone && w.state.Left && w.state.At == w.At {
			left[w.namespace]++
		}
	}
	for namespace, n := range left {
		r.o.Left(namespace, n)
	}
}

// writeOne writes one event at once.
func (r *Registry) writeOne(ctx context.Context, p pending) (lastseen.State, error) {
	w := write{pending: p}
	r.call(ctx, []*write{&w})
	r.countLeaves([]write{w})
	return w.state, w.err
}

// settle notes what was written, and has the rest written again. It closes connections whose heartbeats the store will
// not take, and drops other events that it will not take. It returns the error of an event that could not be written
// now, but can be later.
func (r *Registry) settle(batch []write, now clockReading) (failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused := map[string]error{}
	for i := range batch {
		switch w := &batch[i]; {
		case w.err == nil:
			if w.c != nil {
				r.wroteHeartbeat(w, now.monotonic)
			}
			if w.of == leaveOfConnection {
				r.stats.Leaves++
			}
		case impossible(w.err):
			refused[w.namespace] = w.err
			if w.c != nil {
				r.close(w.c, Impossible)
			} else if w.Gone {
				r.stats.Dropped++
			}
		default:
			failure = w.err
			r.failed(w, now.monotonic)
		}
	}
	for namespace, err := range refused {
		r.o.Logger.Warn("connections are closed, because they cannot be recorded", "namespace", namespace, "error", err)
	}
	return failure
}

// impossible reports whether an error does not pass, as long as settings do not change.
func impossible(err error) bool {
	return errors.Is(err, store.ErrNoDevices) || errors.Is(err, store.ErrMismatch) ||
		errors.Is(err, store.ErrWrongType) || errors.Is(err, store.ErrNamespaceLimit)
}

// failed has an event written again. The heartbeat of a connection that ended meanwhile waits by itself.
func (r *Registry) failed(w *write, now time.Duration) {
	switch {
	case w.c == nil:
		w.due = now + roundEvery
		r.add(w.pending)
	case w.c.index >= 0:
		r.setFailed(w.c, true)
		r.again(w.c, now)
	}
}
