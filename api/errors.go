package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
)

// handleError is the one place where an error becomes a response.
func (s *server) handleError(err error, c echo.Context) {
	e := classify(err)
	status := e.Code.Type().Status
	header := c.Response().Header()
	gone := telemetry.ClientGone(err, c)
	switch {
	case status < http.StatusInternalServerError:
		s.Failures.Refused(e, func() []slog.Attr { return s.gate.Attributes(c) })
	case !gone:
		s.Failures.Failed(e, err, reachOf(c.Request().Method, c.Path()), s.gate.Attributes(c))
	}
	if !gone {
		s.Telemetry.Failed(e.Code)
	}
	if c.Response().Committed {
		return // too late for another response
	}
	if status == http.StatusServiceUnavailable {
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(s.load.RetryAfter(s.Random())))
	}
	for name, value := range e.Header {
		header.Set(name, value)
	}
	header[echo.HeaderCacheControl] = noStore
	body := e.Body(header.Get(echo.HeaderXRequestID))
	if err := request.WriteJSON(c, body.Status, body); err != nil {
		s.Logger.Debug("response not sent", "request_id", body.RequestID, "error", err)
	}
	request.Drain(c)
}

// classify returns what the response says about an error.
func classify(err error) *problem.Error {
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return known
	}
	if mismatch, ok := errors.AsType[*store.MismatchError](err); ok && len(mismatch.Settings) > 0 {
		return problem.Errorf(problem.NamespaceMismatch,
			"The namespace is stored with other settings than this server's. An operator must correct %s.",
			strings.Join(mismatch.Settings, " and "))
	}
	if errors.Is(err, store.ErrTooManyCalls) {
		return problem.New(problem.TooManyCalls,
			"Too many calls were started in the last minutes. No call was started.").
			Because(err).RetryAfter(tooManyCallsWait)
	}
	for _, f := range slices.Concat(failures(), callFailures()) {
		if errors.Is(err, f.err) {
			return problem.New(f.code, f.detail)
		}
	}
	return problem.New(problem.Internal, "Internal error. The log has the details under the request ID.")
}

// tooManyCallsWait is after how many seconds a caller with too many calls that are kept should try again. The oldest of
// them is forgotten within [store.CallsKept].
const tooManyCallsWait = 60

type failure struct {
	err    error
	code   problem.Code
	detail string
}

// isShared says why a namespace has less than others.
const isShared = "other programs write its users (redis-key, redis-score-unit) or the redis-prefix has braces."

// failures returns the errors of the router, the authenticator and the store with their codes. None of the store's ever
// becomes a presence status: unknown is not offline.
func failures() []failure {
	unavailable := "The store is unavailable. It is safe to send the request again."
	return []failure{
		{
			echo.ErrNotFound, problem.NotFound,
			"This path does not exist. A trailing slash counts. See /docs/ for all paths.",
		},
		{
			echo.ErrMethodNotAllowed, problem.MethodNotAllowed,
			"This path does not accept the method. The header Allow lists those it accepts.",
		},
		{
			auth.ErrKeysUnavailable, problem.KeysUnavailable,
			"The keys of the token's issuer are not available, so the token cannot be verified. Try again.",
		},
		{store.ErrFull, problem.StoreFull, "The store is full. Reads still work."},
		{store.ErrOverloaded, problem.Overloaded, "The server is overloaded. It is safe to send the request again."},
		{store.ErrWrongType, problem.WrongKeyType, "The namespace's key in Redis holds a value of another type."},
		{
			store.ErrMismatch, problem.NamespaceMismatch,
			"The namespace is stored in a format that this version of the server does not support.",
		},
		{
			store.ErrNamespaceLimit, problem.StoreFull,
			"The namespace does not exist, and the number of namespaces has reached the setting max-namespaces.",
		},
		{
			store.ErrNoFeed, problem.FeedUnavailable,
			"This namespace has no changes feed: its setting changes is off, other programs write its users " +
				"(redis-key), or the Redis user of the server lacks the right @stream. Look users up instead.",
		},
		{
			store.ErrNoDevices, problem.DevicesUnavailable,
			"This namespace has no devices: " + isShared + " Send pings and leaves without a device.",
		},
		{store.ErrEvicts, problem.AvailabilityNotReady, "The store may lose what hides users. Nothing was changed."},
		{store.ErrNoAvailability, problem.NoAvailability, "This namespace has no availability: " + isShared},
		{store.ErrNoContacts, problem.NoContacts, "This namespace has no contacts: " + isShared},
		{
			store.ErrTooManyContacts, problem.TooManyContacts,
			"The user would have more than 5,000 contacts. Nothing was changed.",
		},
		{
			store.ErrContactsChanged, problem.ContactsChanged,
			"Another request changed the contacts while this one changed many. Part of its change was made: removals " +
				"first.",
		},
		{connections.ErrStopping, problem.StoreUnavailable, "The server is shutting down."},
		{feed.ErrTooManyWatches, problem.Overloaded, "The server follows as many users as it can. Try another server."},
		{store.ErrNotRecorded, problem.StoreUnavailable, unavailable},
		{store.ErrClosed, problem.StoreUnavailable, "The server is shutting down."},
		{store.ErrUnavailable, problem.StoreUnavailable, unavailable},
		{context.DeadlineExceeded, problem.StoreUnavailable, unavailable},
		{context.Canceled, problem.StoreUnavailable, unavailable},
	}
}

// callFailures are the errors of calls with their codes.
func callFailures() []failure {
	return []failure{
		{store.ErrNoCalls, problem.NoCalls, "This namespace has no calls: " + isShared},
		{
			store.ErrCallNotFound, problem.CallNotFound,
			"This call does not exist, was forgotten 10 minutes after its end, or is not one of this user.",
		},
		{store.ErrCallerBusy, problem.CallerBusy, "The user who calls is in another call. No call was started."},
		{store.ErrCalleeBusy, problem.CalleeBusy, "The user to call is in another call. No call was started."},
		{
			store.ErrCalleeUnavailable, problem.CalleeUnavailable,
			"The user to call is not available. No call was started.",
		},
		{
			store.ErrCallKeyReused, problem.IdempotencyKeyReused,
			"This Idempotency-Key was sent with another request. No call was started.",
		},
	}
}
