package api

import (
	"cmp"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store/feed"
)

// changesQuery is a request for changes.
type changesQuery struct {
	subscription.Query
	namespace string
	cursor    string        // where it continues; empty if it begins
	limit     int           // of users in a batch, except one that has all users followed
	wait      time.Duration // for a batch
}

// lastEventID is the header in which a client repeats the last event ID of a stream that ended.
const lastEventID = "Last-Event-ID"

// readChangesQuery reads a request for the changes of up to maxUsers users, of the contacts of one, or of everyone. For
// a stream of events, Last-Event-ID replaces the cursor: a browser that connects again repeats the query of its first
// request.
func readChangesQuery(c echo.Context, q request.Query, maxUsers int, events bool) (asked changesQuery, err error) {
	if asked.namespace, err = request.Namespace(c); err != nil {
		return asked, err
	}
	r := request.Params{Query: q}
	asked.limit = r.Number("limit", 1, request.MaxLimit, request.MaxLimit)
	asked.wait = r.Wait(maxWait)
	asked.Statuses = r.Statuses()
	asked.NoSnapshot = r.Choice("snapshot", "all", "none") == "none"
	if r.Err != nil {
		return asked, r.Err
	}
	users, named := q["user"]
	if err := request.CheckUsers(users, maxUsers); err != nil {
		return asked, err
	}
	owner, ofContacts := q.Get("contacts_of")
	switch {
	case named && ofContacts:
		return asked, problem.New(problem.InvalidParameter, "Use either users or contacts_of.")
	case ofContacts:
		if err := lastseen.CheckUser(owner); err != nil {
			detail := problem.From(problem.InvalidUser, err).Detail
			return asked, problem.New(problem.InvalidUser, "contacts_of: "+detail)
		}
	}
	asked.Users, asked.Owner, asked.Everyone = users, owner, !named && !ofContacts
	if !asked.Everyone && (asked.NoSnapshot || asked.Statuses != nil) {
		return asked, problem.New(problem.InvalidParameter, "Use status and snapshot only to follow everyone.")
	}
	cursor, continues := q.Get("cursor")
	if id := c.Request().Header.Get(lastEventID); events && id != "" {
		cursor, continues = id, true
	}
	if continues {
		asked.cursor = cursor
		asked.After, err = subscription.OpenCursor(asked.namespace, cursor)
	}
	return asked, err
}

// checkContactsOf returns an error unless a caller can follow the contacts of a user: callers who can list them can.
// The owner "" stands for no contacts.
func checkContactsOf(namespace, owner string, caller *auth.Caller) error {
	if owner == "" {
		return nil
	}
	return guard.ReadUser.Check(namespace, owner, caller)
}

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
		Server: func() *subscription.Server { return s.newest.Load().live.Server },
		Caller: func() *auth.Caller { return w.caller },
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
