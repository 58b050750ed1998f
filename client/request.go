package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// maxBody is how many bytes of a response are read: more than any response of lastseen has.
const maxBody = 32 << 20

// request is one operation.
type request struct {
	method string
	path   string // see route
	query  url.Values
	header http.Header
	body   any // sent as JSON; nil for none
	again  repetition
	wait   time.Duration // for how long the server may wait before it answers
}

// repetition says when a request that failed is sent again.
type repetition int

const (
	always    repetition = iota // it is safe to repeat
	ifRefused                   // unless the server may have acted on it
	never
)

// text returns the body as JSON; nil for none. Names that are not UTF-8 are refused, not changed.
func (r request) text() ([]byte, error) {
	if r.body == nil {
		return nil, nil
	}
	return jsonv2.Marshal(r.body)
}

// route makes a path of its parts; names of users can have any characters.
func route(parts ...string) string {
	path := "/v1"
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// do sends a request, repeats it where that is safe, and decodes the response into out, unless that is nil.
func (c *Client) do(ctx context.Context, r request, out any) error {
	body, err := c.read(ctx, r)
	if err != nil || out == nil || len(body) == 0 {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s %s: response: %w", r.method, r.path, err)
	}
	return nil
}

// read is do without decoding.
func (c *Client) read(ctx context.Context, r request) (body []byte, err error) {
	text, err := r.text()
	if err != nil {
		return nil, err
	}
	err = c.repeat(ctx, r.again, func() error {
		try, cancel := context.WithTimeout(ctx, c.options.Timeout+r.wait)
		defer cancel()
		response, err := c.send(try, r, text)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err = io.ReadAll(io.LimitReader(response.Body, maxBody+1))
		switch {
		case err != nil:
			return cutError{err}
		case len(body) > maxBody:
			return fmt.Errorf("%s %s: the response has more than %d bytes", r.method, r.path, maxBody)
		default:
			return nil
		}
	})
	return body, err
}

// cutError means that a response broke off.
type cutError struct{ error }

// repeat calls try until it succeeds, or fails in a way that a repetition would not change.
func (c *Client) repeat(ctx context.Context, allowed repetition, try func() error) error {
	for tried := 1; ; tried++ {
		err := try()
		if err == nil || tried == c.options.Tries || ctx.Err() != nil || !allowed.after(err) {
			return err
		}
		wait := backoff(err, tried)
		deadline, limited := ctx.Deadline()
		if wait > c.options.MaxWait || limited && time.Until(deadline) < wait {
			return err
		}
		if c.sleep(ctx, wait) != nil {
			return err
		}
	}
}

// after reports whether a request that failed is sent again.
func (r repetition) after(err error) bool {
	if r == never {
		return false
	}
	var problem *Error
	if errors.As(err, &problem) {
		refused := problem.Status == http.StatusTooManyRequests || problem.Code == "overloaded" ||
			problem.Code == "shutting_down"
		return refused || r == always && problem.Status >= 500 && problem.Status != http.StatusNotImplemented
	}
	var operation *net.OpError
	unsent := errors.As(err, &operation) && operation.Op == "dial"
	var network *url.Error
	return unsent || r == always && (errors.As(err, &network) || errors.As(err, new(cutError)))
}

// backoff is how long to wait after a failure: what the server asked for, or a random time of up to a second, then up
// to 2, 4, … and 30 seconds.
func backoff(err error, tried int) time.Duration {
	limit := min(time.Second<<min(tried-1, 5), 30*time.Second)
	wait := rand.N(limit)
	var problem *Error
	if errors.As(err, &problem) {
		wait = max(wait, problem.RetryAfter)
	}
	return wait
}

// send sends a request once, or twice with a token that expired. An error that is not nil is an [*Error] if the server
// answered.
func (c *Client) send(ctx context.Context, r request, text []byte) (*http.Response, error) {
	token, err := c.credentials(ctx)
	if err != nil {
		return nil, err
	}
	response, err := c.sendAs(ctx, r, text, token)
	var problem *Error
	if errors.As(err, &problem) && problem.Status == http.StatusUnauthorized && c.expired(token) {
		if token, err = c.credentials(ctx); err != nil {
			return nil, err
		}
		response, err = c.sendAs(ctx, r, text, token)
	}
	return response, err
}

func (c *Client) sendAs(ctx context.Context, r request, text []byte, token string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	q.URL.RawQuery = r.query.Encode()
	for name, values := range r.header {
		q.Header[name] = values
	}
	if text != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(q)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, problemOf(response)
	}
	return response, nil
}
