package webhooks

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	maxHeld     = 100_000 // users of a webhook whose changes are held; then no more are read
	minRetry    = time.Second
	maxRetry    = 5 * time.Minute
	followRetry = time.Second // after the store failed
	noFeedRetry = time.Minute // after the store said that there is no feed
	fullRetry   = time.Second // while maxHeld are held
)

// The reasons for which a stream begins again, or ends.
var (
	errAgain = errors.New("it is read again from the place")
	errGone  = errors.New("the receiver is gone")
	errLost  = errors.New("changes are missing, and the last reset was a short time ago")
)

// stream delivers one namespace. One goroutine uses it, but for what the runner keeps in it.
type stream struct {
	r         *runner
	namespace string
	lost      bool // something was kept, or may have been: a reset comes before a snapshot
	wake      store.Waker

	place   place
	version string           // of the place that is kept
	saved   time.Time        // when it was
	read    []store.Position // up to which the feed was read
	held    held
	counted int // of held, in the runner's sum

	resetAt time.Time                 // when a reset was delivered last
	behind  time.Time                 // since when the feed was not read to its end; zero if it was
	slow    bool                      // the receiver does not keep up
	failing atomic.Pointer[time.Time] // since when the receiver accepts nothing; nil if it accepted the last event

	// The runner's.

	listed  time.Time // when the namespace was known last
	forgets bool      // nothing is kept of the namespace when it ends
	cancel  context.CancelFunc
	ended   chan struct{}
}

func newStream(r *runner, namespace string, lost bool, now time.Time) *stream {
	return &stream{
		r: r, namespace: namespace, lost: lost, wake: store.NewWaker(), listed: now, ended: make(chan struct{}),
	}
}

// run delivers until the context ends, or the receiver is gone.
func (s *stream) run(ctx context.Context) {
	defer close(s.ended)
	for {
		retry := followRetry
		switch err := s.follow(ctx); {
		case ctx.Err() != nil, errors.Is(err, errGone):
			return
		case errors.Is(err, errAgain):
			retry = 0
		case errors.Is(err, store.ErrNoFeed):
			s.r.warn("the namespace has no changes feed", "namespace", s.namespace)
			retry = noFeedRetry
		default:
			s.r.warn("cannot follow the namespace; trying again", "namespace", s.namespace, "error", err)
		}
		s.held = held{}
		s.count()
		if store.Pause(ctx, retry); ctx.Err() != nil {
			return
		}
	}
}

// awaitReset waits until a reset may be sent. If the receiver is too slow, that can take long. If it keeps up, the feed
// is at fault, and no receiver is to be wrong for as long as that.
func (s *stream) awaitReset(ctx context.Context) {
	every := feedResetEvery
	if s.slow {
		every = resetEvery
	}
	if s.slow && time.Since(s.resetAt) < every {
		s.failed(time.Now(), errLost)
	}
	store.Pause(ctx, time.Until(s.resetAt.Add(every)))
}

// keepsUp notes whether the receiver keeps up with what is read of the feed. A reset says nothing about that, and
// neither does a watcher that has to wait for its turn.
func (s *stream) keepsUp(b feed.Batch) {
	switch {
	case b.Reset || b.Positions == nil:
	case !b.More || b.Page || b.Snapshot:
		s.slow, s.behind = false, time.Time{}
	case s.behind.IsZero():
		s.behind = time.Now()
	default:
		s.slow = s.slow || time.Since(s.behind) >= keptUp
	}
}

// count adds what is held to the sum of the webhook.
func (s *stream) count() {
	s.r.held.Add(int64(s.held.len() - s.counted))
	s.counted = s.held.len()
}

// follow delivers from the place that is kept, or else a snapshot, and then changes, until something fails.
func (s *stream) follow(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.sendKept(ctx); err != nil {
		return err
	}
	if s.place.Positions == nil && s.lost {
		s.awaitReset(ctx)
	}
	w, err := s.r.o.Watch(ctx, s.namespace, feed.Query{
		Everyone: true, Statuses: []lastseen.Status{lastseen.Green, lastseen.Yellow}, After: s.place.Positions,
		Wake: s.wake.Wake,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	s.read, s.behind = s.place.Positions, time.Time{} // an outage of the store does not count
	for first := true; ; {
		b, ok, again := feed.Batch{}, false, fullRetry
		if s.r.held.Load() < maxHeld {
			b, ok, again, err = w.Next(ctx, maxUsers)
			if err == nil {
				s.keepsUp(b)
			}
		}
		if err == nil && ok {
			err = s.take(ctx, b, first)
			first = false
		}
		if err == nil {
			err = s.deliverDue(ctx)
		}
		if err != nil {
			return err
		}
		if !ok || !b.More {
			if err := s.await(ctx, again); err != nil {
				return err
			}
		}
	}
}

// take takes a batch: a part of a snapshot is sent at once, changes are held.
func (s *stream) take(ctx context.Context, b feed.Batch, first bool) error {
	switch begins := s.place.Positions == nil; {
	case b.Reset && !begins && !first: // the watcher was too slow; the store has more than its memory
		return errAgain
	case b.Reset && !begins, b.Page && !begins && !s.place.Paging: // or the namespace was deleted, and exists again
		return s.lose(ctx)
	case begins, s.place.Paging:
		return s.sendSnapshot(ctx, b)
	}
	now, hold := lastseen.Instant(0), s.r.current.Load().Hold
	if hold > 0 {
		var err error
		if now, err = s.r.o.Store.Now(ctx); err != nil {
			return err
		}
	}
	for _, u := range b.Users {
		age := min(max(now.Sub(u.Recorded), 0), hold) // after a takeover, it holds for a while already
		s.held.add(u, s.r.current.Load().Report, time.Now().Add(-age), s.read)
	}
	s.read = b.Positions
	s.count()
	return nil
}

// await waits until there may be something to do.
func (s *stream) await(ctx context.Context, again time.Duration) error {
	save, err := s.keepUp(ctx)
	if err != nil {
		return err
	}
	if c := s.held.first(); c != nil {
		again = min(again, time.Until(c.since.Add(s.r.current.Load().Hold)))
	}
	s.wake.Wait(ctx, min(again, save))
	return nil
}

// sendSnapshot delivers a part of a snapshot, after a reset if it is the first one after changes were lost.
func (s *stream) sendSnapshot(ctx context.Context, b feed.Batch) error {
	e, err := s.encoder(ctx)
	if err != nil {
		return err
	}
	events := e.snapshot(b.Users, b.More)
	if s.place.Positions == nil && s.lost {
		events = append([]event{e.reset()}, events...)
	}
	s.read = b.Positions
	return s.send(ctx, place{Events: events, Positions: b.Positions, Paging: b.More})
}

// deliverDue delivers the changes that have held for long enough.
func (s *stream) deliverDue(ctx context.Context) error {
	for {
		hold := s.r.current.Load().Hold
		due := s.held.take(time.Now().Add(-hold), maxUsers)
		s.count()
		if len(due) == 0 {
			return nil
		}
		e, err := s.encoder(ctx)
		if err != nil {
			return err
		}
		if err := s.send(ctx, place{Events: e.changed(due), Positions: s.settled()}); err != nil {
			return err
		}
		s.observeLag(ctx, due, hold)
	}
}

// observeLag observes how late the oldest of some changes was delivered.
func (s *stream) observeLag(ctx context.Context, delivered []change, hold time.Duration) {
	lag := time.Since(delivered[0].since) - hold
	if hold == 0 {
		now, err := s.r.o.Store.Now(ctx)
		if err != nil {
			return // the lag is not known
		}
		for _, c := range delivered {
			lag = max(lag, now.Sub(c.Recorded))
		}
	}
	s.r.lagged(lag)
}

func (s *stream) encoder(ctx context.Context) (encoder, error) {
	now, err := s.r.o.Store.Now(ctx)
	return encoder{namespace: s.namespace, at: now, append: s.r.o.Append}, err
}

// deliver sends an event until the receiver accepts or refuses it, and returns the events that are sent instead, if
// any. If that takes longer than changes are kept, it gives up: a reset follows. It returns errGone if the receiver is
// gone.
func (s *stream) deliver(ctx context.Context, e event) (instead []event, err error) {
	begun := time.Now()
	for tries := 0; ; tries++ {
		w, a, err := s.try(ctx, e)
		if err != nil {
			return nil, err
		}
		switch a.Result {
		case Delivered:
			s.recovered()
			if e.Kind == Reset {
				s.resetAt = time.Now()
				s.r.o.Observe.Reset(w.Name)
			}
			return nil, nil
		case TooLarge, Refused:
			s.recovered()
			return s.refused(ctx, e, a)
		case Gone:
			if s.r.disable(w) {
				return nil, errGone
			}
			continue // the entry changed meanwhile
		}
		s.failed(begun, a.reason)
		store.Pause(ctx, max(a.retryAfter, s.backoff(tries)))
		if time.Since(begun) >= store.ChangesKept {
			s.slow = true
			return nil, s.lose(ctx)
		}
	}
}

// backoff returns a random time until the next try, with full jitter.
func (s *stream) backoff(tries int) time.Duration {
	longest := min(minRetry<<min(tries, 16), maxRetry)
	return time.Duration(s.r.o.Random() * float64(longest))
}

// try sends an event once, when fewer than maxRequests are open. The error is that of the context.
func (s *stream) try(ctx context.Context, e event) (*entry, answer, error) {
	select {
	case s.r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, answer{}, ctx.Err()
	}
	defer func() { <-s.r.slots }()
	w := s.r.current.Load()
	a := w.try(ctx, w.Webhook, e)
	if err := ctx.Err(); err != nil {
		return nil, answer{}, err
	}
	s.r.o.Observe.Tried(w.Name, a.Result)
	s.r.tried(a)
	return w, a, nil
}

// refused returns the halves of an event that is too large. One that cannot be halved or was refused for another reason
// is dropped.
func (s *stream) refused(ctx context.Context, e event, a answer) (halves []event, err error) {
	if a.Result == TooLarge {
		encoder, err := s.encoder(ctx)
		if err != nil {
			return nil, err
		}
		if halves, ok := encoder.halves(e); ok {
			return halves, nil
		}
	}
	s.r.o.Observe.Dropped(s.r.current.Load().Name, e.Users)
	s.r.warn("an event was dropped", "namespace", s.namespace, "event", e.ID, "users", e.Users, "error", a.reason)
	return nil, nil
}

// failed notes that the receiver accepts nothing. The first time is logged.
func (s *stream) failed(since time.Time, reason error) {
	if s.failing.CompareAndSwap(nil, &since) {
		s.r.warn("the receiver does not accept events; trying again", "namespace", s.namespace, "error", reason)
	}
}

// recovered notes that the receiver accepted or refused an event.
func (s *stream) recovered() {
	if since := s.failing.Swap(nil); since != nil {
		s.r.logger.Info("the receiver accepts events again", "namespace", s.namespace, "after", time.Since(*since))
	}
}
