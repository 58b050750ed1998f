package api

import (
	"context"
	"errors"
	"hash/maphash"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
)

// MaxRedialWait is the longest time that a caller waits before calling the same user again.
const MaxRedialWait = 5 * time.Minute

// redials are the last calls of callers to callees that this server began. How they ended is in the store, as long as
// it keeps them.
type redials struct {
	seed maphash.Seed
	last *lru.Cache[uint64, redial] // by the hash of both users, so that all entries take the same space
}

// redial is a call, and how many before it, one after the other, were not answered.
type redial struct {
	id         string
	unanswered int
}

func newRedials() redials {
	last, _ := lru.New[uint64, redial](limit.DefaultSize) // fails only for a size that is not positive
	return redials{maphash.MakeSeed(), last}
}

func (r redials) key(namespace string, n store.NewCall) uint64 {
	return maphash.Comparable(r.seed, [...]string{namespace, n.From, n.To})
}

// beginCall begins a call, unless the caller has to wait after calls that the callee did not answer. A request that is
// repeated returns its call all the same, which only the store knows: it is asked as if the callee were unavailable.
// Finish is that of the keeper.
func (s *server) beginCall(
	ctx context.Context, namespace string, n store.NewCall,
) (step store.CallStep, finish func(), err error) {
	finish = func() {}
	key, unanswered := s.redials.key(namespace, n), 0
	wait := s.settings(namespace).RedialWait
	refused := store.ErrCalleeUnavailable // if the store says so
	if !n.CalleeUnavailable && wait > 0 {
		last, _ := s.redials.last.Get(key)
		if unanswered, refused, err = s.checkRedial(ctx, namespace, last, wait); err != nil {
			return step, finish, err
		}
		n.CalleeUnavailable = refused != nil
	}
	if n.CalleeUnavailable && n.Key == "" {
		return step, finish, refused // without a call to the store: there is nothing to repeat
	}
	s.overload.begin() // the keeper's store does not count calls
	step, finish, err = s.Keeper.Start(ctx, namespace, n)
	s.overload.end()
	switch {
	case errors.Is(err, store.ErrCalleeUnavailable):
		return step, finish, refused
	case err == nil && wait > 0 && step.Outcome == lastseen.Stepped:
		s.redials.last.Add(key, redial{step.Call.ID, unanswered})
	}
	return step, finish, err
}

// checkRedial returns how many calls to the callee in a row were not answered, given the last one, and why the caller
// cannot call now; nil if they can. It depends only on calls of the caller, as the caller knows them.
func (s *server) checkRedial(
	ctx context.Context, namespace string, last redial, wait time.Duration,
) (unanswered int, refused, err error) {
	if last.id == "" {
		return 0, nil, nil
	}
	call, err := s.Store.ReadCall(ctx, namespace, last.id)
	if err != nil || call.State == lastseen.Ended || call.State == lastseen.Lost {
		if errors.Is(err, store.ErrCallNotFound) {
			err = nil
		}
		return 0, nil, err
	}
	if !call.State.Over() { // the store might not see it any longer, and begin a call without a wait
		return 0, store.ErrCallerBusy, nil
	}
	now, err := s.Store.Now(ctx)
	unanswered = last.unanswered + 1
	wait = min(wait<<min(unanswered-1, 16), MaxRedialWait)
	if rest := min(wait, time.Duration(call.Over.Add(wait)-now)*time.Millisecond); rest > 0 {
		refused = errCallTooSoon(rest)
	}
	return unanswered, refused, err
}

// errCallTooSoon is the error of a caller who has to wait.
func errCallTooSoon(wait time.Duration) error {
	e := newError(codeCallTooSoon, "The callee did not answer the last call of this caller: wait before the next one. "+
		"No call was started.")
	e.header = map[string]string{echo.HeaderRetryAfter: strconv.FormatInt(wholeSeconds(wait), 10)}
	return e
}

// appChanges are how often a party can change app of a call per second. The other party is sent each change.
const appChanges = 2

// chargeApp returns an error if a party changes app of a call too often.
func (s *server) chargeApp(namespace string, a store.CallAct) error {
	if a.Action != lastseen.Alive || a.App == "" {
		return nil
	}
	return s.chargeWithin(limit.ByCall(namespace, a.ID, a.User), limit.Limits{Caller: appChanges}, 1)
}
