package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/access"
	"github.com/lastseen/lastseen/store"
)

// apiError is an error that a caller is told about. What is in it is public; a cause that is not
// goes into the log.
type apiError struct {
	code     code
	detail   string      // what was wrong, and what is allowed
	items    []itemError // of a batch
	line     int         // of NDJSON, from 1; 0 if it does not apply
	recorded *int        // items recorded before the error; nil if it does not apply
	cause    error

	challenge string  // the header WWW-Authenticate; none if it does not apply
	excess    *excess // which limit there is, and until when; nil if it is not about one
}

// itemError is what is wrong with one item of a batch.
type itemError struct {
	// Its place in the batch, from 0.
	Index int `json:"index" minimum:"0"`
	// What is wrong with it, and what is allowed.
	Detail string `json:"detail"`
} // @name ItemError

func newError(c code, detail string) *apiError { return &apiError{code: c, detail: detail} }

func errorf(c code, format string, args ...any) *apiError {
	return newError(c, fmt.Sprintf(format, args...))
}

// sentence makes a detail of an error from package lastseen, which begins in lower case.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Error is for the log: unlike the answer, it tells the cause.
func (e *apiError) Error() string {
	text := string(e.code) + ": " + e.detail
	if e.cause != nil {
		text += " (" + e.cause.Error() + ")"
	}
	return text
}

func (e *apiError) Unwrap() error { return e.cause }

// problem is the body of an error answer, by RFC 9457.
type problem struct {
	// Where the code is explained.
	Type string `json:"type" format:"uri-reference"`
	// What the code means, in short.
	Title string `json:"title"`
	// The status of the answer.
	Status int `json:"status"`
	// What went wrong, for programs.
	Code code `json:"code"`
	// What was wrong with this request, and what is allowed: for people.
	Detail string `json:"detail"`
	// As in the header X-Request-Id; the server's log has it, too.
	RequestID string `json:"request_id"`
	// What is wrong with items of a batch: the first 20.
	Errors []itemError `json:"errors,omitempty"`
	// The line of NDJSON at which reading stopped, from 1.
	Line int `json:"line,omitzero" minimum:"1" validate:"optional"`
	// How many items were recorded before the error; only with NDJSON.
	Recorded *int `json:"recorded,omitzero" minimum:"0" validate:"optional"`
} // @name Problem

// handleError is the one place where an error becomes an answer.
func (s *server) handleError(err error, c echo.Context) {
	e := classify(err)
	kind := e.code.kind()
	header := c.Response().Header()
	id := header.Get(echo.HeaderXRequestID)
	if kind.status >= http.StatusInternalServerError && !clientGone(err, c) {
		s.logger.Log(c.Request().Context(), e.code.level(), "request failed", "code", e.code, "request_id", id,
			"method", c.Request().Method, "route", c.Path(), "error", err)
	}
	if c.Response().Committed {
		return // too late for another answer
	}
	if kind.status == http.StatusServiceUnavailable {
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(1+int(s.random()*3)))
	}
	if e.challenge != "" {
		header.Set(echo.HeaderWWWAuthenticate, e.challenge)
	}
	if e.excess != nil {
		e.excess.describe(header)
	}
	header[echo.HeaderCacheControl] = noStore
	body := problem{
		Type: "/docs/errors#" + string(e.code), Title: kind.title, Status: kind.status, Code: e.code,
		Detail: e.detail, RequestID: id, Errors: e.items, Line: e.line, Recorded: e.recorded,
	}
	if err := write(c, kind.status, typeProblem, body); err != nil {
		s.logger.Debug("answer not sent", "request_id", id, "error", err)
	}
	linger(c)
}

// level is at which the log tells of an answer. Anybody can send tokens of which nobody can tell whether they are
// good; that the keys cannot be had is told by who fetches them, once.
func (c code) level() slog.Level {
	if c == codeKeysUnavailable {
		return slog.LevelDebug
	}
	return slog.LevelError
}

// errNotSent is the error of an answer that its caller did not take.
var errNotSent = errors.New("the answer could not be sent")

// notSent marks the error of sending an answer, if there is one.
func notSent(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errNotSent, err)
}

// clientGone reports whether the request failed only because its caller went away, or reads too slowly.
func clientGone(err error, c echo.Context) bool {
	return errors.Is(err, errNotSent) || errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil
}

// classify finds what to tell the caller about an error.
func classify(err error) *apiError {
	var known *apiError
	if errors.As(err, &known) {
		return known
	}
	var http *echo.HTTPError
	if errors.As(err, &http) {
		return ofEcho(http)
	}
	if errors.Is(err, access.ErrKeysUnavailable) {
		return newError(codeKeysUnavailable, "The keys of the token's issuer cannot be had at the moment, so nobody can tell whether it is good.")
	}
	for _, f := range storeFailures() {
		if errors.Is(err, f.err) {
			return newError(f.code, f.detail)
		}
	}
	return newError(codeInternal, "Something went wrong here; it was logged under the request ID.")
}

// ofEcho translates the router's errors.
func ofEcho(err *echo.HTTPError) *apiError {
	switch err.Code {
	case http.StatusNotFound:
		return newError(codeNotFound, "There is nothing at this path. A trailing slash counts.")
	case http.StatusMethodNotAllowed:
		return newError(codeMethodNotAllowed, "This path does not take that method; Allow lists those it takes.")
	default:
		return newError(codeInternal, "Something went wrong here; it was logged under the request ID.")
	}
}

type storeFailure struct {
	err    error
	code   code
	detail string
}

// storeFailures is what each failure of the store is called outside. None of them ever turns into a
// status: unknown is not offline.
func storeFailures() []storeFailure {
	unavailable := "The store does not answer. Whatever was sent may be sent again."
	return []storeFailure{
		{store.ErrFull, codeStoreFull, "The store has no room left for this. Reading still works."},
		{store.ErrOverloaded, codeOverloaded, "More is asked of this server than it can do now. Whatever was sent may be sent again."},
		{store.ErrWrongType, codeWrongKeyType, "The namespace's key in Redis holds something else than presence."},
		{store.ErrMismatch, codeStoreUnavailable, "The namespace is stored with another number of shards, score unit or hash than this server is set to."},
		{store.ErrClosed, codeStoreUnavailable, "The server is shutting down."},
		{store.ErrUnavailable, codeStoreUnavailable, unavailable},
		{context.DeadlineExceeded, codeStoreUnavailable, unavailable},
		{context.Canceled, codeStoreUnavailable, unavailable},
	}
}
