package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	minReconnect = time.Second // advice to clients whose stream ends
	maxReconnect = 3 * time.Second
	// MaxDrainPause is the longest time until clients of a server that stops connect to another.
	MaxDrainPause = 10 * time.Second

	eventTick = "tick" // others have the names of frames
)

// events is a stream of Server-Sent Events about what a subscription follows.
type events struct {
	*Waiting
	*subscription.Subscription
	out    *transport.Writer
	limit  int    // of users in a batch
	cursor string // of the last event; empty before the first
}

// ServeEvents streams events to the response until the client is gone, the server stops or the caller is not authorized
// any longer. The stream begins with the users followed or, if it continues after a cursor, with what changed since, if
// anything. It calls hold for the time in which the request only waits. For HEAD it sends the header alone.
func (w *Waiting) ServeEvents(
	s *subscription.Subscription, to http.ResponseWriter, head bool, cursor string, limit int, hold func() func(),
) error {
	e := &events{Waiting: w, Subscription: s, cursor: cursor, limit: min(limit, maxBatch)}
	first, err := e.Poll(w.o.Context, e.limit) // before the header, so that an error has a status
	if err == nil {
		err = e.Charge(first)
	}
	if err != nil {
		return err
	}
	e.out = transport.Open(to)
	if head {
		return nil
	}
	defer hold()()
	err = e.send(transport.AppendRetry(nil, w.server.Jitter(minReconnect, maxReconnect)))
	if err == nil && (cursor == "" || first.Reset || first.Page || len(first.Users) > 0) {
		err = e.sendBatch(first)
	}
	for err == nil {
		err = e.step()
	}
	return e.end(err)
}

// step waits for the next event, and sends it.
func (e *events) step() error {
	var batch feed.Batch
	var next subscription.Event
	err := e.Await(time.Time{}, func(ctx context.Context) (found bool, again time.Duration, err error) {
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
func (e *events) end(reason error) error {
	switch {
	case e.o.Context.Err() != nil:
		return nil // the client closed the stream, as streams usually end
	case errors.Is(reason, errDraining), errors.Is(reason, subscription.ErrVisibility):
		return e.send(transport.AppendRetry(nil, e.server.Jitter(0, MaxDrainPause)))
	default:
		return reason
	}
}

// sendTick sends a tick.
func (e *events) sendTick(batch feed.Batch) error {
	e.cursor = subscription.Cursor(e.o.Namespace, batch.Positions)
	return e.sendEvent(eventTick, func(b []byte) []byte {
		b = request.Timestamp(batch.AsOf).AppendJSON(append(b, `{"as_of":`...))
		return append(appendCursor(b, e.cursor), '}')
	})
}

// sendBatch sends a batch, a large one as several events: see [subscription.PartCursor].
func (e *events) sendBatch(batch feed.Batch) error {
	name, users := frameChanges, batch.Users
	if batch.Reset {
		name = frameReset
	}
	last := subscription.Cursor(e.o.Namespace, batch.Positions)
	if len(users) > maxBatch {
		e.cursor = subscription.PartCursor(e.o.Namespace)
	}
	for len(users) > maxBatch {
		if err := e.sendPart(name, batch, users[:maxBatch], true); err != nil {
			return err
		}
		name, users = frameChanges, users[maxBatch:] // added to the first part of a reset
	}
	e.cursor = last
	if err := e.sendPart(name, batch, users, batch.More); err != nil {
		return err
	}
	e.Sent(e.o.Context, batch)
	return nil
}

// sendPart sends some users of a batch.
func (e *events) sendPart(name string, batch feed.Batch, users []feed.Update, more bool) error {
	return e.sendEvent(name, func(b []byte) []byte {
		b = request.Timestamp(batch.AsOf).AppendJSON(append(b, `{"as_of":`...))
		b = append(b, `,"users":[`...)
		for i, u := range users {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.hub.Show.Presence(b, u.User, u.Published)
		}
		b = appendCursor(append(b, ']'), e.cursor)
		return append(strconv.AppendBool(append(b, `,"more":`...), more), '}')
	})
}

// sendEvent sends an event with data, and the cursor as its ID.
func (e *events) sendEvent(name string, data func([]byte) []byte) error {
	buffer := request.Buffer()
	text := transport.AppendEnd(data(transport.AppendStart((*buffer)[:0], name, e.cursor)))
	defer request.PutBuffer(buffer, text)
	return e.send(text)
}

// send sends text. Its error means that the client is gone or receives too slowly.
func (e *events) send(text []byte) error {
	if err := e.out.Send(text); err != nil {
		return fmt.Errorf("%w: %w", problem.ErrNotSent, err)
	}
	return nil
}
