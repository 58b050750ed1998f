package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	tickInterval = 20 * time.Second // between events at most, while changes are complete
	tickRetry    = time.Second      // until the next attempt if they are not
	maxEvent     = 500              // users in one event
	minReconnect = time.Second      // advice to clients whose stream ends
	maxReconnect = 3 * time.Second
)

// The names of events.
const (
	eventChanges = "changes"
	eventReset   = "reset"
	eventTick    = "tick"
)

// eventStream is the stream of events of a watch.
type eventStream struct {
	*watch
	out    *transport.Writer
	limit  int       // of users in a batch
	cursor string    // of the last event; empty before the first
	tickAt time.Time // when the next tick is due
}

// serveEvents streams events until the client is gone, the server stops or the caller is not authorized any longer.
// The stream begins with the users followed or, if it continues after a cursor, with what changed since, if anything.
func (w *watch) serveEvents(cursor string, limit int) error {
	e := &eventStream{watch: w, cursor: cursor, limit: min(limit, maxEvent), tickAt: w.Now()}
	first, err := w.poll(e.limit) // before the header, so that an error has a status
	if err == nil {
		err = w.charge(first.Reset)
	}
	if err != nil {
		return err
	}
	e.out = transport.Open(w.c.Response())
	if w.c.Request().Method == http.MethodHead {
		return nil
	}
	defer w.hold(telemetry.ServerSentEvents)()
	err = e.send(transport.AppendRetry(nil, w.jitter(minReconnect, maxReconnect)))
	if err == nil && (cursor == "" || first.Reset || first.Page || len(first.Users) > 0) {
		err = e.sendBatch(first)
	}
	for err == nil {
		err = e.step()
	}
	return e.end(err)
}

// step sends the next event.
func (e *eventStream) step() error {
	batch, err := e.next(e.tickAt, e.limit)
	if errors.Is(err, errDue) {
		return e.tick()
	}
	if err != nil {
		return err
	}
	if batch.Page {
		key, limited := e.limiter.Key(e.c.Request(), e.caller)
		e.limiter.Pay(key, limited, pageCost(batch))
	}
	return e.sendBatch(batch)
}

// end ends the stream for a reason. A server that stops tells its clients to come back at different times, also one
// whose configuration has changed so that all have to begin again.
func (e *eventStream) end(reason error) error {
	switch {
	case e.c.Request().Context().Err() != nil:
		return nil // the client closed the stream, as streams usually end
	case errors.Is(reason, errDraining), errors.Is(reason, errVisibility):
		return e.send(transport.AppendRetry(nil, e.jitter(0, maxDrainPause)))
	default:
		return reason
	}
}

// tick sends a tick, unless changes are not complete.
func (e *eventStream) tick() error {
	batch, complete := e.watcher.Tick()
	if !complete {
		e.tickAt = e.Now().Add(tickRetry)
		return nil
	}
	e.cursor = changesCursor(e.namespace, batch.Places)
	return e.sendEvent(eventTick, e.cursor, func(b []byte) []byte {
		b = timestamp(batch.AsOf).appendJSON(append(b, `{"as_of":`...))
		return append(appendString(append(b, `,"cursor":`...), e.cursor), '}')
	})
}

// sendBatch sends a batch, a large one as several events: see [partCursor].
func (e *eventStream) sendBatch(batch feed.Batch) error {
	name, users := eventChanges, batch.Users
	if batch.Reset {
		name = eventReset
	}
	last := changesCursor(e.namespace, batch.Places)
	if len(users) > maxEvent {
		e.cursor = partCursor(e.namespace)
	}
	for len(users) > maxEvent {
		part := changedIn(batch, users[:maxEvent])
		part.More = true
		if err := e.sendPart(name, part); err != nil {
			return err
		}
		name, users = eventChanges, users[maxEvent:] // added to the first part of a reset
	}
	e.cursor = last
	if err := e.sendPart(name, changedIn(batch, users)); err != nil {
		return err
	}
	e.delivered(e.c.Request().Context(), e.opened, batch.Users)
	return nil
}

func (e *eventStream) sendPart(name string, part changed) error {
	part.Cursor = e.cursor
	return e.sendEvent(name, e.cursor, func(b []byte) []byte {
		return append(part.appendFields(append(b, '{')), '}')
	})
}

// sendEvent sends an event with data, and sets the time of the next tick.
func (e *eventStream) sendEvent(name, id string, data func([]byte) []byte) error {
	buffer := request.Buffer()
	text := transport.AppendEnd(data(transport.AppendStart((*buffer)[:0], name, id)))
	defer request.PutBuffer(buffer, text)
	err := e.send(text)
	e.tickAt = e.Now().Add(e.jitter(tickInterval*4/5, tickInterval))
	return err
}

// send sends text. Its error means that the client is gone or receives too slowly.
func (e *eventStream) send(text []byte) error {
	if err := e.out.Send(text); err != nil {
		return fmt.Errorf("%w: %w", problem.ErrNotSent, err)
	}
	return nil
}
