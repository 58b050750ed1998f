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
	errLost  = errors.New("the receiver was away or slow for longer than changes are kept")
	errReset = errors.New("changes may be missing")
	errGone  = errors.New("the receiver is gone")
)

// stream delivers one namespace. One goroutine uses it, but for what the runner keeps in it.
type stream struct {
	r         *runner
	namespace string
	wake      chan struct{}
	held      held
	counted   int                       // of held, in the runner's sum
	nextReset time.Time                 // when a reset costs nothing
	spare     bool                      // one reset can be earlier
	failing   atomic.Pointer[time.Time] // since when the receiver accepts nothing; nil if it accepted the last event

	// The runner's.

	listed time.Time // when the namespace was known last
	cancel context.CancelFunc
	ended  chan struct{}
}

func newStream(r *runner, namespace string, now time.Time) *stream {
	return &stream{
		r: r, namespace: namespace, wake: make(chan struct{}, 1), listed: now, ended: make(chan struct{}),
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
		case errors.Is(err, errReset):
			retry = 0
		case errors.Is(err, errLost):
			s.failed(time.Now(), err)
			retry = 0
		case errors.Is(err, store.ErrNoFeed):
			s.r.warn("the namespace has no changes feed", "namespace", s.namespace)
			retry = noFeedRetry
		default:
			s.r.warn("cannot follow the namespace; trying again", "namespace", s.namespace, "error", err)
		}
		s.held = held{}
		s.count()
		if pause(ctx, max(retry, s.resetWait())); ctx.Err() != nil {
			return
		}
	}
}

// resetWait returns for how long a reset has to wait: one in resetEvery, and another one if there was none for long.
func (s *stream) resetWait() time.Duration {
	if s.spare {
		return 0
	}
	return time.Until(s.nextReset)
}

// noteReset notes that a reset was delivered.
func (s *stream) noteReset() {
	now := time.Now()
	s.spare = now.Sub(s.nextReset) >= resetEvery || s.spare && !now.Before(s.nextReset)
	s.nextReset = now.Add(resetEvery)
	s.r.o.Observe.Reset(s.r.current.Load().Name)
}

// count adds what is held to the sum of the webhook.
func (s *stream) count() {
	s.r.held.Add(int64(s.held.len() - s.counted))
	s.counted = s.held.len()
}

// follow delivers a reset, a snapshot, and changes until something fails.
func (s *stream) follow(ctx context.Context) error {
	w, err := s.r.o.Watch(ctx, s.namespace, feed.Query{
		Everyone: true, Statuses: []lastseen.Status{lastseen.Green, lastseen.Yellow}, Wake: s.notify,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	for begun, paging, more := false, false, false; ; {
		b, ok, again := feed.Batch{}, false, fullRetry
		if s.r.held.Load() < maxHeld {
			b, ok, again, err = w.Next(ctx, maxUsers)
		}
		switch {
		case err != nil:
			return err
		case !ok:
		case begun && (b.Snapshot || b.Reset):
			return whyReset(more)
		case begun && !paging && b.Page: // the namespace was deleted, and exists again
			return errReset
		case !begun || paging:
			err = s.snapshot(ctx, b, !begun)
			begun, paging = true, b.More
		default:
			for _, u := range b.Users {
				s.held.add(u, s.r.current.Load().Report, time.Now())
			}
			s.count()
		}
		if err == nil {
			err = s.deliverDue(ctx)
		}
		if err != nil {
			return err
		}
		if more = ok && b.More; !more {
			s.await(ctx, again)
		}
	}
}

// whyReset returns why a watcher has a reset: because the receiver was too slow for it, or for another reason.
func whyReset(behind bool) error {
	if behind {
		return errLost
	}
	return errReset
}

// notify wakes the stream. It returns at once.
func (s *stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// await waits until there may be something to do.
func (s *stream) await(ctx context.Context, again time.Duration) {
	if since, ok := s.held.next(); ok {
		again = min(again, time.Until(since.Add(s.r.current.Load().Hold)))
	}
	t := time.NewTimer(again)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-s.wake:
	}
}

// snapshot delivers a part of a snapshot. Before the first one it delivers a reset.
func (s *stream) snapshot(ctx context.Context, b feed.Batch, first bool) error {
	e, err := s.encoder(ctx)
	if err != nil {
		return err
	}
	if first {
		if err := s.deliver(ctx, e.reset()); err != nil {
			return err
		}
		s.noteReset()
	}
	return s.deliverAll(ctx, e.snapshot(b.Users, b.More))
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
		if err := s.deliverAll(ctx, e.changed(due)); err != nil {
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
	s.r.o.Observe.Lag(s.r.current.Load().Name, lag)
}

func (s *stream) encoder(ctx context.Context) (encoder, error) {
	now, err := s.r.o.Store.Now(ctx)
	return encoder{namespace: s.namespace, at: now, append: s.r.o.Append}, err
}

func (s *stream) deliverAll(ctx context.Context, events []event) error {
	for _, e := range events {
		if err := s.deliver(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends an event until the receiver accepts or refuses it. It returns errLost if that takes longer than changes
// are kept, and errGone if the receiver is gone.
func (s *stream) deliver(ctx context.Context, e event) error {
	begun := time.Now()
	for tries := 0; ; tries++ {
		w, a, err := s.try(ctx, e)
		if err != nil {
			return err
		}
		switch a.Result {
		case Delivered:
			s.recovered()
			return nil
		case TooLarge, Refused:
			s.recovered()
			return s.refused(ctx, e, a)
		case Gone:
			if s.r.disable(w) {
				return errGone
			}
			continue // the entry changed meanwhile
		}
		s.failed(begun, a.reason)
		pause(ctx, max(a.retryAfter, s.backoff(tries)))
		if time.Since(begun) >= store.ChangesKept {
			return errLost
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
	return w, a, nil
}

// refused halves an event that is too large, and drops one that cannot be halved or was refused for another reason.
func (s *stream) refused(ctx context.Context, e event, a answer) error {
	if a.Result == TooLarge {
		encoder, err := s.encoder(ctx)
		if err != nil {
			return err
		}
		if halves, ok := encoder.halves(e); ok {
			return s.deliverAll(ctx, halves)
		}
	}
	s.r.o.Observe.Dropped(s.r.current.Load().Name, e.users)
	s.r.warn("an event was dropped", "namespace", s.namespace, "event", e.id, "users", e.users, "error", a.reason)
	return nil
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
