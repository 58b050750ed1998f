package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// watch is a request that follows changes, and can stay open for that. One goroutine uses it.
type watch struct {
	*server
	c         echo.Context
	namespace string
	owner     string // whose contacts are followed; empty if others are
	caller    *auth.Caller
	watcher   changesWatcher
	opened    lastseen.Instant // by the store's clock; changes recorded later are delivered live
	giveBack  func()           // the users that the caller follows
	uncharged int              // users who count as requests only after a reset

	// The round ends when the caller has to be authorized again, and then ends the context of the request.
	round   context.Context //nolint:containedctx // one goroutine uses it, that of the request
	ctx     context.Context //nolint:containedctx // the same
	cancel  func()
	checkAt time.Time // when the caller has to be authorized again at the latest
}

// Errors of [watch.next] that are no failures.
var (
	errDue      = errors.New("there is no batch yet")
	errDraining = errors.New("the server is stopping")
)

// isPause reports whether an error means that a request ended its waiting, and can respond as usual.
func isPause(err error) bool { return errors.Is(err, errDue) || errors.Is(err, errDraining) }

// watch begins to follow changes for an authorized request. The caller closes the watch.
//
// Users whose presence it returns count as requests against the caller's rate limit. A request with a cursor continues,
// and they have been counted before: see [watch.charge].
func (s *server) watch(c echo.Context, asked changesQuery) (*watch, error) {
	w := &watch{
		server: s, c: c, namespace: asked.namespace, owner: asked.contactsOf, caller: callerOf(c),
		opened: math.MaxInt64,
	}
	w.uncharged = len(asked.Users)
	if err := w.charge(asked.After == nil); err != nil {
		return nil, err
	}
	var err error
	if w.giveBack, err = s.watched.take(w.caller, max(1, len(asked.Users))); err != nil {
		return nil, err
	}
	ctx := c.Request().Context()
	if s.metrics != nil {
		if w.opened, err = s.Store.Now(ctx); err != nil {
			w.giveBack()
			return nil, err
		}
	}
	s.overload.begin()
	defer s.overload.end()
	if err = w.open(ctx, asked); err != nil {
		w.giveBack()
		return nil, err
	}
	w.begin(s.Now())
	if s.newest.Load() != s { // a reload since the request was authorized, which the round may not have seen
		w.checkAt = s.Now()
	}
	return w, nil
}

// open opens the watcher. Contacts count as users who were named, once it is known how many there are.
func (w *watch) open(ctx context.Context, asked changesQuery) (err error) {
	charge := func() error { return w.checkRateLimit(w.c, w.caller, 1) }
	if w.owner == "" {
		w.watcher, err = w.openWatcher(ctx, w.namespace, w.caller, asked.Query, charge)
		return err
	}
	w.watcher, err = w.openContacts(ctx, w.namespace, w.owner, w.caller, asked.After, charge)
	if err != nil {
		return err
	}
	w.uncharged = w.watcher.Len()
	if err = w.charge(asked.After == nil); err != nil {
		w.watcher.Close()
	}
	return err
}

// charge charges the users, once, if the response has the presence of all of them. So does the reset of a request with
// a cursor that proves nothing, and anyone can make one: it must not be cheaper than a lookup.
func (w *watch) charge(all bool) error {
	n := w.uncharged
	if !all || n == 0 {
		return nil
	}
	w.uncharged = 0
	return w.checkRateLimit(w.c, w.caller, n)
}

// close ends the watch.
func (w *watch) close() {
	w.cancel()
	w.watcher.Close()
	w.giveBack()
}

// poll returns the next batch without waiting; it has no users if nothing has changed. It can be a call to the store.
// While it is not known whether something has changed, it returns an error: a client must not take that for no change.
func (w *watch) poll(limit int) (batch feed.Batch, err error) {
	w.overload.begin()
	defer w.overload.end()
	for range maxPolls {
		batch, err = w.watcher.Poll(w.c.Request().Context(), limit)
		if err != nil || batch.Snapshot || batch.Reset || len(batch.Users) > 0 || batch.More {
			return batch, err
		}
		if _, complete := w.watcher.Tick(); complete {
			return batch, nil
		}
	}
	return batch, errStale
}

// maxPolls is how often a poll looks again if something has changed after it looked.
const maxPolls = 3

// errStale means that the feed was not read or not swept for some seconds.
var errStale = fmt.Errorf("%w: the changes feed is not complete", store.ErrUnavailable)

// next waits for the next batch. It returns errDue if there is none until a time, errDraining if the server is
// stopping, and the error of a caller that is not authorized any longer.
func (w *watch) next(until time.Time, limit int) (feed.Batch, error) {
	for {
		now := w.Now()
		if w.Draining() {
			return feed.Batch{}, errDraining
		}
		if w.round.Err() != nil || !now.Before(w.checkAt) {
			if err := w.authorizeAgain(now); err != nil {
				return feed.Batch{}, err
			}
		}
		if !now.Before(until) {
			return feed.Batch{}, errDue
		}
		batch, ended, err := w.wait(min(until.Sub(now), w.checkAt.Sub(now)), limit)
		switch gone := w.c.Request().Context().Err(); {
		case err == nil:
			return batch, nil
		case gone != nil:
			return feed.Batch{}, gone
		case !ended:
			return feed.Batch{}, err
		}
	}
}

// wait waits for the next batch. It reports whether the time ended, or the round.
func (w *watch) wait(d time.Duration, limit int) (batch feed.Batch, ended bool, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	batch, err = w.watcher.Next(ctx, limit)
	return batch, ctx.Err() != nil, err
}

// The times between two authorizations of a request that stays open: the ping interval within these bounds.
const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// authorizeAgain returns an error unless the request still can be served, by the newest configuration. If the keys of
// the token's issuer are not available, the token stays valid until it expires. If the visibility of the namespace has
// changed, the client has to begin again: what it was told fits the one before.
func (w *watch) authorizeAgain(now time.Time) error {
	newest := w.newest.Load()
	w.cancel()
	w.begin(now) // before the check, so that a reload during the check is not missed
	caller, err := newest.authenticateAgain(w.c)
	switch {
	case err == nil:
		err = cmp.Or(checkPermission(w.c, read, caller), checkContactsOf(w.namespace, w.owner, caller))
	case errors.Is(err, auth.ErrKeysUnavailable) && w.caller != nil && now.Before(w.caller.Expires):
		err = nil
	}
	if err == nil {
		err = newest.checkKnown(w.c, read)
	}
	return cmp.Or(err, newest.checkVisibility(w.namespace, w.visibility(w.namespace)))
}

// begin begins a round, and sets the time of the next authorization.
func (w *watch) begin(now time.Time) {
	w.round = w.rounds.current()
	ctx, cancel := context.WithCancel(w.c.Request().Context())
	stop := context.AfterFunc(w.round, cancel)
	w.ctx, w.cancel = ctx, func() { stop(); cancel() }

	pause := min(max(minRecheck, w.newest.Load().settings(w.namespace).PingInterval), maxRecheck)
	pause = w.jitter(pause*4/5, pause)
	if w.caller != nil && !w.caller.Expires.IsZero() {
		pause = min(pause, max(minRecheck, w.caller.Expires.Sub(now)))
	}
	w.checkAt = now.Add(pause)
}

// jitter returns a random duration.
func (s *server) jitter(low, high time.Duration) time.Duration {
	return low + time.Duration(s.Random()*float64(high-low))
}
