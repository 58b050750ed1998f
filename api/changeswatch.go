package api

import (
	"cmp"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/store/feed"
)

// watch is a request that follows changes, and can stay open for that. One goroutine uses it.
type watch struct {
	openRequest
	*subscription.Subscription
}

// watch begins to follow changes for an authorized request. The caller closes the watch.
func (s *server) watch(c echo.Context, asked changesQuery) (*watch, error) {
	w := &watch{openRequest: openRequest{server: s, c: c, namespace: asked.namespace, caller: callerOf(c)}}
	w.permitted = func(caller *auth.Caller) error {
		return cmp.Or(checkPermission(c, guard.Read, caller), checkContactsOf(w.namespace, asked.Owner, caller))
	}
	w.Subscription = subscription.New(subscription.Options{
		Ledger: subscription.Ledger{
			Shared: s.Subscriptions, Namespace: w.namespace,
			Payer: func() (limit.Key, bool) { return w.limiter.Key(c.Request(), w.caller) },
		},
		Server: func() *subscription.Server { return s.newest.Load().live.Server }, Caller: func() *auth.Caller { return w.caller },
	})
	if err := w.Open(c.Request().Context(), asked.Query); err != nil {
		return nil, err
	}
	w.open()
	return w, nil
}

// close ends the watch.
func (w *watch) close() {
	w.cancel()
	w.Close()
}

// next waits for the next batch. It returns errDue if there is none until a time, errDraining if the server is
// stopping, and the error of a caller that is not authorized any longer.
func (w *watch) next(until time.Time, limit int) (batch feed.Batch, err error) {
	for ok := false; !ok && err == nil; {
		var pause time.Duration
		if pause, err = w.patience(until, w.authorizeAgain); err == nil {
			batch, ok, err = w.Wait(w.ctx, pause, limit)
		}
		err = cmp.Or(w.c.Request().Context().Err(), err)
	}
	return batch, err
}

// authorizeAgain is that of an [openRequest]. If the visibility of the namespace has changed, the client has to begin
// again: what it was told fits the one before.
func (w *watch) authorizeAgain(now time.Time) error {
	newest := w.newest.Load().live
	return cmp.Or(w.openRequest.authorizeAgain(now), newest.CheckVisibility(w.namespace, w.isRestricted(w.namespace)))
}
