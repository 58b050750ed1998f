package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	maxEvent     = 500         // users in one event
	minReconnect = time.Second // advice to clients whose stream ends
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
	limit  int    // of users in a batch
	cursor string // of the last event; empty before the first
}

// serveEvents streams events until the client is gone, the server stops or the caller is not authorized any longer.
// The stream begins with the users followed or, if it continues after a cursor, with what changed since, if anything.
func (w *watch) serveEvents(cursor string, limit int) error {
	e := &eventStream{watch: w, cursor: cursor, limit: min(limit, maxEvent)}
	first, err := w.Poll(w.c.Request().Context(), e.limit) // before the header, so that an error has a status
	if err == nil {
		err = w.Charge(first)
	}
	if err != nil {
		return err
	}
	e.out = transport.Open(w.c.Response())
	if w.c.Request().Method == http.MethodHead {
		return nil
	}
	defer w.hold(telemetry.ServerSentEvents)()
	err = e.send(transport.AppendRetry(nil, w.live.Jitter(minReconnect, maxReconnect)))
	if err == nil && (cursor == "" || first.Reset || first.Page || len(first.Users) > 0) {
		err = e.sendBatch(first)
	}
	for err == nil {
		err = e.step()
	}
	return e.end(err)
}

// step waits for the next event, and sends it.
func (e *eventStream) step() error {
	var batch feed.Batch
	var next subscription.Event
	err := e.await(time.Time{}, func(ctx context.Context) (found bool, again time.Duration, err error) {
		batch, next, again, err = e.Next(ctx, e.limit)
		return next != subscription.Nothing, again, err
	})
	switch {
	case err != nil:
		return err
	case next == subscription.Tick:
		return e.sendTick(batch)
	default:
		return e.sendBatch(batch)
	}
}

// end ends the stream for a reason. A server that stops tells its clients to come back at different times, also one
// whose configuration has changed so that all have to begin again.
func (e *eventStream) end(reason error) error {
	switch {
	case e.c.Request().Context().Err() != nil:
		return nil // the client closed the stream, as streams usually end
	case errors.Is(reason, errDraining), errors.Is(reason, subscription.ErrVisibility):
		return e.send(transport.AppendRetry(nil, e.live.Jitter(0, maxDrainPause)))
	default:
		return reason
	}
}

// sendTick sends a tick.
func (e *eventStream) sendTick(batch feed.Batch) error {
	e.cursor = subscription.Cursor(e.namespace, batch.Positions)
	return e.sendEvent(eventTick, e.cursor, func(b []byte) []byte {
		b = request.Timestamp(batch.AsOf).AppendJSON(append(b, `{"as_of":`...))
		return append(request.AppendString(append(b, `,"cursor":`...), e.cursor), '}')
	})
}

// sendBatch sends a batch, a large one as several events: see [subscription.PartCursor].
func (e *eventStream) sendBatch(batch feed.Batch) error {
	name, users := eventChanges, batch.Users
	if batch.Reset {
		name = eventReset
	}
	last := subscription.Cursor(e.namespace, batch.Positions)
	if len(users) > maxEvent {
		e.cursor = subscription.PartCursor(e.namespace)
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
	e.Sent(e.c.Request().Context(), batch)
	return nil
}

func (e *eventStream) sendPart(name string, part changed) error {
	part.Cursor = e.cursor
	return e.sendEvent(name, e.cursor, func(b []byte) []byte {
		return append(part.appendFields(append(b, '{')), '}')
	})
}

// sendEvent sends an event with data.
func (e *eventStream) sendEvent(name, id string, data func([]byte) []byte) error {
	buffer := request.Buffer()
	text := transport.AppendEnd(data(transport.AppendStart((*buffer)[:0], name, id)))
	defer request.PutBuffer(buffer, text)
	return e.send(text)
}

// send sends text. Its error means that the client is gone or receives too slowly.
func (e *eventStream) send(text []byte) error {
	if err := e.out.Send(text); err != nil {
		return fmt.Errorf("%w: %w", problem.ErrNotSent, err)
	}
	return nil
}
