package api

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// MaxRedialWait is the longest time that a caller waits before calling the same user again.
const MaxRedialWait = 5 * time.Minute

// redials are the last calls of callers to callees that this server began.
type redials struct {
	seed maphash.Seed
	now  func() time.Time // not set with the clock: see [limit.New]
	mu   sync.Mutex
	last *lru.Cache[uint64, redial] // by the hash of both users, so that all entries take the same space
}

// redial is a call, and how many before it, one after the other, were not answered.
type redial struct {
	id         string
	unanswered int
	over       time.Time // when the call was over, if the caller tried again since
}

func newRedials(now func() time.Time) *redials {
	last, _ := lru.New[uint64, redial](limit.DefaultSize) // fails only for a size that is not positive
	return &redials{seed: maphash.MakeSeed(), now: now, last: last}
}

func (r *redials) key(namespace, from, to string) uint64 {
	return maphash.Comparable(r.seed, [...]string{namespace, from, to})
}

func (r *redials) get(namespace, from, to string) redial {
	last, _ := r.last.Get(r.key(namespace, from, to))
	return last
}

func (r *redials) set(namespace, from, to string, last redial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Add(r.key(namespace, from, to), last)
}

// over notes how long a call has been over, if it is the last one of its parties.
func (r *redials) over(namespace string, c lastseen.Call, ago time.Duration) {
	key := r.key(namespace, c.From, c.To)
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, _ := r.last.Peek(key); last.id == c.ID {
		last.over = r.now().Add(-ago)
		r.last.Add(key, last)
	}
}

// notAnswered reports whether a call is over without an answer.
func notAnswered(c lastseen.Call) bool {
	return c.State.Over() && c.State != lastseen.Ended && c.State != lastseen.Lost
}

// beginCall begins a call, unless the caller has to wait after calls that the callee did not answer. A request that is
// repeated returns its call all the same, which only the store knows: it is asked as if the callee were unavailable.
// Finish is that of the manager.
func (s *server) beginCall(
	ctx context.Context, namespace string, n store.NewCall,
) (step store.CallStep, finish func(), err error) {
	finish = func() {}
	unanswered := 0
	wait := s.settings(namespace).RedialWait
	refused := store.ErrCalleeUnavailable // if the store says so
	if !n.CalleeUnavailable && wait > 0 {
		if unanswered, refused, err = s.checkRedial(ctx, namespace, n, wait); err != nil {
			return step, finish, err
		}
		n.CalleeUnavailable = refused != nil
	}
	if n.CalleeUnavailable && n.Key == "" {
		return step, finish, refused // without a call to the store: there is nothing to repeat
	}
	s.load.Begin() // the manager's store does not count calls
	step, finish, err = s.Calls.Start(ctx, namespace, n)
	s.load.End()
	switch {
	case errors.Is(err, store.ErrCalleeUnavailable):
		return step, finish, refused
	case err == nil && wait > 0 && step.Outcome == lastseen.Stepped:
		s.redials.set(namespace, n.From, n.To, redial{id: step.Call.ID, unanswered: unanswered})
	}
	return step, finish, err
}

// checkRedial returns how many calls to the callee in a row were not answered, and why the caller cannot call now; nil
// if they can. It depends only on calls of the caller, as the caller knows them.
func (s *server) checkRedial(
	ctx context.Context, namespace string, n store.NewCall, wait time.Duration,
) (unanswered int, refused, err error) {
	last := s.redials.get(namespace, n.From, n.To)
	if last.id == "" {
		return 0, nil, nil
	}
	call, err := store.ReadCall(ctx, s.Store, namespace, last.id)
	switch {
	case errors.Is(err, store.ErrCallNotFound):
		return 0, nil, nil
	case err == nil && !call.State.Over(): // the store might not see it any longer, and begin a call without a wait
		return 0, store.ErrCallerBusy, nil
	case err != nil || !notAnswered(call):
		return 0, nil, err
	}
	since := s.redials.now().Sub(last.over)
	if last.over.IsZero() { // noted, so that a clock of the store that is set makes nobody wait for longer
		now, err := s.Store.Now(ctx)
		if err != nil {
			return 0, nil, err
		}
		ago := min(max(0, now-call.Over), lastseen.Instant(store.CallsKept.Milliseconds())) // whatever its clock says
		since = time.Duration(ago) * time.Millisecond
		s.redials.over(namespace, call, since)
	}
	unanswered = last.unanswered + 1
	if rest := min(wait<<min(unanswered-1, 16), MaxRedialWait) - since; rest > 0 {
		refused = errCallTooSoon(rest)
	}
	return unanswered, refused, nil
}

// errCallTooSoon is the error of a caller who has to wait.
func errCallTooSoon(wait time.Duration) error {
	return problem.New(problem.CallTooSoon, "The callee did not answer the last call of this caller: wait before the "+
		"next one. No call was started.").RetryAfter(guard.WholeSeconds(wait))
}

// appChanges are how often a party can change app of a call per second. The other party is sent each change.
const appChanges = 2

// chargeApp returns an error if a party changes app of a call too often.
func (s *server) chargeApp(namespace string, a store.CallAct) error {
	if a.App == "" {
		return nil
	}
	return s.limiter.ChargeWithin(limit.ByCall(namespace, a.ID, a.User), limit.Limits{Caller: appChanges}, 1)
}
