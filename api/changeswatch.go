package api

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// watch is a request that follows changes, and can stay open for that. One goroutine uses it.
type watch struct {
	openRequest
	owner     string // whose contacts are followed; empty if others are
	watcher   changesWatcher
	opened    lastseen.Instant // by the store's clock; changes recorded later are delivered live
	counted   ledger
	uncharged int // users who count as requests only after a reset
}

// watch begins to follow changes for an authorized request. The caller closes the watch.
//
// Users whose presence it returns count as requests against the caller's rate limit. A request with a cursor continues,
// and they have been counted before: see [watch.charge].
func (s *server) watch(c echo.Context, asked changesQuery) (*watch, error) {
	w := &watch{
		openRequest: openRequest{server: s, c: c, namespace: asked.namespace, caller: callerOf(c)},
		owner:       asked.contactsOf, opened: math.MaxInt64,
	}
	w.permitted = func(caller *auth.Caller) error {
		return cmp.Or(checkPermission(c, guard.Read, caller), checkContactsOf(w.namespace, w.owner, caller))
	}
	w.uncharged = len(asked.Users)
	if err := w.charge(asked.After == nil); err != nil {
		return nil, err
	}
	var err error
	w.counted = ledger{shared: s.Shared, namespace: asked.namespace, payer: func() (limit.Key, bool) {
		return w.limiter.Key(c.Request(), w.caller)
	}}
	if err = w.counted.set(max(1, len(asked.Users)), w.caller); err != nil {
		return nil, err
	}
	ctx := c.Request().Context()
	if w.opened, err = s.Store.Now(ctx); err != nil {
		w.counted.clear()
		return nil, err
	}
	s.load.Begin()
	defer s.load.End()
	if err = w.follow(ctx, asked); err != nil {
		w.counted.clear()
		return nil, err
	}
	w.open()
	return w, nil
}

// follow opens the watcher. Contacts count as users who were named, once it is known how many there are.
func (w *watch) follow(ctx context.Context, asked changesQuery) (err error) {
	charge := func() error { return w.limiter.Charge(w.c.Request(), w.caller, 1) }
	w.watcher, err = w.openWatcher(ctx, w.namespace, w.owner, w.caller, asked.Query, charge)
	if err != nil || w.owner == "" {
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
	return w.limiter.Charge(w.c.Request(), w.caller, n)
}

// close ends the watch.
func (w *watch) close() {
	w.cancel()
	w.watcher.Close()
	w.counted.clear()
}

// poll returns the next batch without waiting; it has no users if nothing has changed. It can be a call to the store.
// While it is not known whether something has changed, it returns an error: a client must not take that for no change.
func (w *watch) poll(limit int) (batch feed.Batch, err error) {
	w.load.Begin()
	defer w.load.End()
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
		pause, err := w.patience(until, w.authorizeAgain)
		if err != nil {
			return feed.Batch{}, err
		}
		batch, ended, err := w.wait(pause, limit)
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

// authorizeAgain is that of an [openRequest]. If the visibility of the namespace has changed, the client has to begin
// again: what it was told fits the one before.
func (w *watch) authorizeAgain(now time.Time) error {
	newest := w.newest.Load()
	return cmp.Or(w.openRequest.authorizeAgain(now), newest.checkVisibility(w.namespace, w.visibility(w.namespace)))
}

// delivered observes how long changes took that were written to a client which was waiting, since an instant, when they
// were recorded.
func (s *server) delivered(ctx context.Context, opened lastseen.Instant, users []feed.Update) {
	if len(users) == 0 {
		return
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return // the lag is not known
	}
	for _, u := range users {
		if u.Recorded >= opened {
			s.Telemetry.ObserveLag(now.Sub(u.Recorded))
		}
	}
}
