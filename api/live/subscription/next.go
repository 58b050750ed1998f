package subscription

import (
	"context"
	"time"

	"github.com/lastseen/lastseen/store/feed"
)

const (
	// TickInterval is the time between two things that a client is sent at most, while changes are complete.
	TickInterval = 20 * time.Second
	// tickRetry is the time until the next attempt if they are not.
	tickRetry = time.Second
	// maxPolls is how often a poll looks again if something has changed after it looked.
	maxPolls = 3
)

// Event is what a client is sent next.
type Event int

// The events.
const (
	Nothing Event = iota // something else is to be done
	Changes
	Tick // the client knows all changes up to the time of the batch; that of a subscription to nothing has no time
)

// Next waits for what a client is sent next, for a time at most. It returns Nothing if the time or the context has
// ended. What it returns is charged; if the limit is exceeded, that takes longer.
func (s *Subscription) Next(ctx context.Context, d time.Duration, limit int) (batch feed.Batch, e Event, err error) {
	due := s.tickAt.Sub(s.o.Server().Now())
	batch, ok, err := s.Wait(ctx, min(d, due), limit)
	switch {
	case ok && batch.Page:
		key, limited := s.o.Payer()
		s.o.Server().Limiter.Pay(key, limited, pageCost(batch))
		return batch, Changes, nil
	case ok:
		return batch, Changes, nil
	case err != nil || ctx.Err() != nil || d < due:
		return batch, Nothing, err
	}
	return s.tick()
}

// Wait waits for the next batch, for a time at most. It returns false if the time or the context has ended.
func (s *Subscription) Wait(ctx context.Context, d time.Duration, limit int) (batch feed.Batch, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if s.watcher == nil {
		<-ctx.Done()
		return batch, false, nil
	}
	batch, err = s.watcher.Next(ctx, limit)
	if ctx.Err() != nil && err != nil {
		return batch, false, nil
	}
	return batch, err == nil, err
}

// tick returns a tick, unless changes are not complete.
func (s *Subscription) tick() (batch feed.Batch, e Event, err error) {
	complete := true
	if s.watcher != nil {
		batch, complete = s.watcher.Tick()
	}
	if !complete {
		s.tickAt = s.o.Server().Now().Add(tickRetry)
		return batch, Nothing, nil
	}
	s.PlanTick()
	return batch, Tick, nil
}

// PlanTick sets the time of the next tick: a client is sent something else now.
func (s *Subscription) PlanTick() {
	server := s.o.Server()
	s.tickAt = server.Now().Add(server.Jitter(TickInterval*4/5, TickInterval))
}

// Poll returns the next batch without waiting; it has no users if nothing has changed. It can be a call to the store.
// While it is not known whether something has changed, it returns an error: a client must not take that for no change.
func (s *Subscription) Poll(ctx context.Context, limit int) (batch feed.Batch, err error) {
	load := s.o.Server().Load
	load.Begin()
	defer load.End()
	for range maxPolls {
		batch, err = s.watcher.Poll(ctx, limit)
		if err != nil || batch.Snapshot || batch.Reset || len(batch.Users) > 0 || batch.More {
			return batch, err
		}
		if _, complete := s.watcher.Tick(); complete {
			return batch, nil
		}
	}
	return batch, errStale
}

// Sent notes that a batch was handed to the network. It observes how long the changes took that were recorded since the
// subscription was opened.
func (s *Subscription) Sent(ctx context.Context, batch feed.Batch) {
	s.PlanTick()
	if len(batch.Users) == 0 {
		return
	}
	server := s.o.Server()
	now, err := server.Store.Now(ctx)
	if err != nil {
		return // the lag is not known
	}
	for _, u := range batch.Users {
		if u.Recorded >= s.opened {
			server.Lag(now.Sub(u.Recorded))
		}
	}
}
