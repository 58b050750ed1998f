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

// Next returns what a client is sent next. If it returns Nothing, call it again when [Options.Wake] is called, and
// after some time. What it returns is charged; if the limit is exceeded, that takes longer.
func (s *Subscription) Next(
	ctx context.Context, limit int,
) (batch feed.Batch, e Event, again time.Duration, err error) {
	batch, ok, again, err := s.NextBatch(ctx, limit)
	if err != nil {
		return batch, Nothing, 0, err
	}
	if ok {
		if batch.Page {
			key, limited := s.o.Payer()
			s.o.Server().Limiter.Pay(key, limited, pageCost(batch))
		}
		return batch, Changes, 0, nil
	}
	if left := s.tickAt.Sub(s.o.Server().Now()); left > 0 {
		return batch, Nothing, min(again, left), nil
	}
	if batch, ok = s.tick(); !ok {
		return batch, Nothing, min(again, tickRetry), nil
	}
	return batch, Tick, 0, nil
}

// NextBatch is Next without ticks. What it returns is not charged.
func (s *Subscription) NextBatch(
	ctx context.Context, limit int,
) (batch feed.Batch, ok bool, again time.Duration, err error) {
	if s.watcher == nil {
		return batch, false, TickInterval, nil
	}
	return s.watcher.Next(ctx, limit)
}

// tick returns a tick, unless changes are not complete.
func (s *Subscription) tick() (batch feed.Batch, ok bool) {
	ok = true
	if s.watcher != nil {
		batch, ok = s.watcher.Tick()
	}
	if ok {
		s.PlanTick()
	} else {
		s.tickAt = s.o.Server().Now().Add(tickRetry)
	}
	return batch, ok
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
