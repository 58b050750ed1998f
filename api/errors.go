package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
)

// apiError is an error in a response. All fields but cause are public; cause goes into the log.
type apiError struct {
	code     code
	detail   string        // what was wrong, and what is allowed
	items    []itemError   // of a batch
	line     int           // of NDJSON, from 1; 0 if it does not apply
	recorded *int          // items recorded before the error; nil if it does not apply
	call     *callResponse // of a refused action; nil if it does not apply
	cause    error
	header   map[string]string // of the response, besides those that follow from the status
}

// itemError is what is wrong with one item of a batch.
type itemError struct {
	// The index of the item in the batch, from 0.
	Index int `json:"index" minimum:"0"`
	// What is wrong with the item, and what is allowed.
	Detail string `json:"detail"`
} // @name ItemError

func newError(c code, detail string) *apiError { return &apiError{code: c, detail: detail} }

func errorf(c code, format string, args ...any) *apiError {
	return newError(c, fmt.Sprintf(format, args...))
}

// sentence returns a detail from an error of package lastseen, which begins in lower case.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Error returns a text for the log. Unlike the response, it has the cause.
func (e *apiError) Error() string {
	text := string(e.code) + ": " + e.detail
	if e.cause != nil {
		text += " (" + e.cause.Error() + ")"
	}
	return text
}

func (e *apiError) Unwrap() error { return e.cause }

// problem is the body of an error response: see RFC 9457.
type problem struct {
	// The path of the explanation of the code on the server. If a reverse proxy serves the server below a path, that
	// path comes first. It is the same for all requests, so it also identifies the code.
	Type string `json:"type" format:"uri-reference"`
	// A short summary of the code.
	Title string `json:"title"`
	// The HTTP status code.
	Status int `json:"status"`
	// The kind of error, for programs.
	Code code `json:"code"`
	// What is wrong with this request, and what is allowed, for people.
	Detail string `json:"detail"`
	// The ID of the request, as in the header X-Request-Id and in the server's log.
	RequestID string `json:"request_id"`
	// The first 20 invalid items of a batch.
	Errors []itemError `json:"errors,omitempty"`
	// Only with NDJSON: the number of the invalid line, from 1.
	Line int `json:"line,omitzero" minimum:"1" validate:"optional"`
	// Only with NDJSON: the number of items recorded before the error.
	Recorded *int `json:"recorded,omitzero" minimum:"0" validate:"optional"`
	// Only with `call_refused`: the call as it is.
	Call *callResponse `json:"call,omitzero" validate:"optional"`
} // @name Problem

// handleError is the one place where an error becomes a response.
func (s *server) handleError(err error, c echo.Context) {
	e := classify(err)
	problemType := e.code.problemType()
	header := c.Response().Header()
	gone := clientGone(err, c)
	switch {
	case problemType.Status < http.StatusInternalServerError:
		s.logRefusal(c, e)
	case !gone:
		s.logFailure(c, e, err)
	}
	if !gone {
		s.metrics.failed(problemType.Code)
	}
	if c.Response().Committed {
		return // too late for another response
	}
	if problemType.Status == http.StatusServiceUnavailable {
		header.Set(echo.HeaderRetryAfter, s.retryAfter())
	}
	for name, value := range e.header {
		header.Set(name, value)
	}
	header[echo.HeaderCacheControl] = noStore
	body := problem{
		Type: "/docs/errors#" + string(e.code), Title: problemType.Title, Status: problemType.Status, Code: e.code,
		Detail: e.detail, RequestID: header.Get(echo.HeaderXRequestID), Errors: e.items, Line: e.line,
		Recorded: e.recorded, Call: e.call,
	}
	if err := writeJSON(c, problemType.Status, typeProblem, body); err != nil {
		s.Logger.Debug("response not sent", "request_id", body.RequestID, "error", err)
	}
	drainBody(c)
}

// errNotSent means that the client did not receive a response.
var errNotSent = errors.New("the response could not be sent")

// clientGone reports whether the request failed only because its client closed the connection or reads too slowly.
func clientGone(err error, c echo.Context) bool {
	return errors.Is(err, errNotSent) || errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil
}

// classify returns what the response says about an error.
func classify(err error) *apiError {
	var known *apiError
	if errors.As(err, &known) {
		return known
	}
	var mismatch *store.MismatchError
	if errors.As(err, &mismatch) && len(mismatch.Settings) > 0 {
		return errorf(codeNamespaceMismatch,
			"The namespace is stored with other settings than this server's. An operator must correct %s.",
			strings.Join(mismatch.Settings, " and "))
	}
	if errors.Is(err, store.ErrTooManyCalls) {
		return errTooManyCalls(err)
	}
	for _, f := range slices.Concat(failures(), callFailures()) {
		if errors.Is(err, f.err) {
			return newError(f.code, f.detail)
		}
	}
	return newError(codeInternal, "Internal error. The log has the details under the request ID.")
}

type failure struct {
	err    error
	code   code
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
			echo.ErrNotFound, codeNotFound,
			"This path does not exist. A trailing slash counts. See /docs/ for all paths.",
		},
		{
			echo.ErrMethodNotAllowed, codeMethodNotAllowed,
			"This path does not accept the method. The header Allow lists those it accepts.",
		},
		{
			auth.ErrKeysUnavailable, codeKeysUnavailable,
			"The keys of the token's issuer are not available, so the token cannot be verified. Try again.",
		},
		{store.ErrFull, codeStoreFull, "The store is full. Reads still work."},
		{store.ErrOverloaded, codeOverloaded, "The server is overloaded. It is safe to send the request again."},
		{store.ErrWrongType, codeWrongKeyType, "The namespace's key in Redis holds a value of another type."},
		{
			store.ErrMismatch, codeNamespaceMismatch,
			"The namespace is stored in a format that this version of the server does not support.",
		},
		{
			store.ErrNamespaceLimit, codeStoreFull,
			"The namespace does not exist, and the number of namespaces has reached the setting max-namespaces.",
		},
		{
			store.ErrNoFeed, codeFeedUnavailable,
			"This namespace has no changes feed: its setting changes is off, other programs write its users " +
				"(redis-key), or the Redis user of the server lacks the right @stream. Look users up instead.",
		},
		{
			store.ErrNoDevices, codeDevicesUnavailable,
			"This namespace has no devices: " + isShared + " Send pings and leaves without a device.",
		},
		{store.ErrEvicts, codeAvailabilityNotReady, "The store may lose what hides users. Nothing was changed."},
		{store.ErrNoAvailability, codeNoAvailability, "This namespace has no availability: " + isShared},
		{store.ErrNoContacts, codeNoContacts, "This namespace has no contacts: " + isShared},
		{
			store.ErrTooManyContacts, codeTooManyContacts,
			"The user would have more than 5,000 contacts. Nothing was changed.",
		},
		{
			store.ErrContactsChanged, codeContactsChanged,
			"Another request changed the contacts while this one changed many. Part of its change was made: removals " +
				"first.",
		},
		{connections.ErrStopping, codeStoreUnavailable, "The server is shutting down."},
		{feed.ErrTooManyWatches, codeOverloaded, "The server follows as many users as it can. Try another server."},
		{store.ErrNotRecorded, codeStoreUnavailable, unavailable},
		{store.ErrClosed, codeStoreUnavailable, "The server is shutting down."},
		{store.ErrUnavailable, codeStoreUnavailable, unavailable},
		{context.DeadlineExceeded, codeStoreUnavailable, unavailable},
		{context.Canceled, codeStoreUnavailable, unavailable},
	}
}
