package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Error is a response that is not a success. Get it with errors.As.
type Error struct {
	Status    int         `json:"status"`     // of HTTP
	Code      string      `json:"code"`       // of docs/errors.md, for programs; "" if a proxy answered
	Title     string      `json:"title"`      // a summary of the code
	Detail    string      `json:"detail"`     // what is wrong with this request, for people
	RequestID string      `json:"request_id"` // the server's log has the same
	Call      *Call       `json:"call"`       // with call_refused: the call as it is
	Items     []ItemError `json:"errors"`     // the first 20 invalid items of a batch

	RetryAfter time.Duration `json:"-"` // when to try again; 0 if the server did not say
}

// ItemError is one invalid item of a batch.
type ItemError struct {
	Index  int    `json:"index"` // from 0
	Detail string `json:"detail"`
}

// Error has the code and the detail, and the ID of the request, which the server's log has as well.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("lastseen: %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("lastseen: %s: %s (request %s)", e.Code, e.Detail, e.RequestID)
}

// Permanent reports whether the same request cannot succeed later. What a proxy answers says nothing about that.
func (e *Error) Permanent() bool {
	return e.Code != "" && e.Status < 500 && e.Status != http.StatusTooManyRequests
}

// problemOf reads the error of a response.
func problemOf(response *http.Response) error {
	e := &Error{}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil || json.Unmarshal(body, e) != nil {
		e = &Error{} // of a proxy
	}
	e.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(min(seconds, 24*60*60)) * time.Second
	}
	return e
}
