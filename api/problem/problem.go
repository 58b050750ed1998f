// Package problem describes errors to callers: their codes, their JSON by RFC 9457, and their close codes.
package problem

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Error is an error in a response. All fields but Cause are public; Cause goes into the log.
type Error struct {
	Code     Code
	Detail   string // what was wrong, and what is allowed
	Items    []Item // of a batch
	Line     int    // of NDJSON, from 1; 0 if it does not apply
	Recorded *int   // items recorded before the error; nil if it does not apply
	Call     any    // of a refused action, as in responses; nil if it does not apply
	Cause    error
	Header   map[string]string // of the response, besides those that follow from the status
}

var (
	// ErrNotSent means that the caller did not receive a response.
	ErrNotSent = errors.New("the response could not be sent")
	// ErrShed is the cause of errors of requests that are refused under load.
	ErrShed = errors.New("refused to leave room for pings")
)

// Item is what is wrong with one item of a batch.
type Item struct {
	// The index of the item in the batch, from 0.
	Index int `json:"index" minimum:"0"`
	// What is wrong with the item, and what is allowed.
	Detail string `json:"detail"`
} // @name ItemError

// New returns an error with a code and a detail.
func New(c Code, detail string) *Error { return &Error{Code: c, Detail: detail} }

// Errorf returns an error with a code and a formatted detail.
func Errorf(c Code, format string, args ...any) *Error { return New(c, fmt.Sprintf(format, args...)) }

// From returns an error whose detail is an error of package lastseen, which begins in lower case.
func From(c Code, err error) *Error {
	text := err.Error()
	return New(c, strings.ToUpper(text[:1])+text[1:]+".")
}

// Because sets the cause of an error and returns the error.
func (e *Error) Because(cause error) *Error {
	e.Cause = cause
	return e
}

// RetryAfter sets the header Retry-After of an error, in seconds, and returns the error.
func (e *Error) RetryAfter(seconds int64) *Error {
	e.Header = map[string]string{"Retry-After": strconv.FormatInt(seconds, 10)}
	return e
}

// Error returns a text for the log. Unlike the response, it has the cause.
func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.Detail
	if e.Cause != nil {
		text += " (" + e.Cause.Error() + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// maxItemErrors is the number of invalid items that an error names.
const maxItemErrors = 20

// Items collects the errors of the items of a request.
type Items struct {
	code  Code // of the first
	items []Item
	total int
}

// Add adds the error of the item with an index.
func (e *Items) Add(index int, err *Error) {
	if e.total == 0 {
		e.code = err.Code
	}
	e.total++
	if len(e.items) < maxItemErrors {
		e.items = append(e.items, Item{Index: index, Detail: err.Detail})
	}
}

// Err returns one error for all items, or nil if all are valid.
func (e *Items) Err() error {
	if e.total == 0 {
		return nil
	}
	wrong, first := "1 invalid item, at", e.items[0]
	if e.total > 1 {
		wrong = fmt.Sprintf("%d invalid items, the first at", e.total)
	}
	detail := fmt.Sprintf("%s index %d: %s The request had no effect.", wrong, first.Index, first.Detail)
	return &Error{Code: e.code, Detail: detail, Items: e.items}
}

// AtIndex adds the index of an item to an error for the caller.
func AtIndex(index int, err error) error {
	known, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	var bad Items
	bad.Add(index, known)
	return bad.Err()
}

// Body is the body of an error response: see RFC 9457.
type Body struct {
	// The path of the explanation of the code on the server. If a reverse proxy serves the server below a path, that
	// path comes first. It is the same for all requests, so it also identifies the code.
	Type string `json:"type" format:"uri-reference"`
	// A short summary of the code.
	Title string `json:"title"`
	// The HTTP status code.
	Status int `json:"status"`
	// The kind of error, for programs.
	Code Code `json:"code"`
	// What is wrong with this request, and what is allowed, for people.
	Detail string `json:"detail"`
	// The ID of the request, as in the header X-Request-Id and in the server's log.
	RequestID string `json:"request_id"`
	// The first 20 invalid items of a batch.
	Errors []Item `json:"errors,omitempty"`
	// Only with NDJSON: the number of the invalid line, from 1.
	Line int `json:"line,omitzero" minimum:"1" validate:"optional"`
	// Only with NDJSON: the number of items recorded before the error.
	Recorded *int `json:"recorded,omitzero" minimum:"0" validate:"optional"`
	// Only with `call_refused`: the call as it is.
	Call any `json:"call,omitzero" validate:"optional"`
} // @name Problem

// Body returns the body of the response to a request.
func (e *Error) Body(requestID string) Body {
	t := e.Code.Type()
	return Body{
		Type: "/docs/errors#" + string(e.Code), Title: t.Title, Status: t.Status, Code: e.Code, Detail: e.Detail,
		RequestID: requestID, Errors: e.Items, Line: e.Line, Recorded: e.Recorded, Call: e.Call,
	}
}
