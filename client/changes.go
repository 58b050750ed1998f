package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
)

// silence is how long a stream is believed without an event: docs/changes.md.
const silence = 30 * time.Second

// Follow says whom to follow. The zero value means everyone.
type Follow struct {
	Users      []string          // up to 1,000 users by name
	ContactsOf string            // or the contacts of a user
	Status     []lastseen.Status // or everyone, beginning with those who have one of these
	NoSnapshot bool              // everyone, but only what changes from now on
	Cursor     string            // where an earlier [Client.FollowChanges] ended; "" to begin
}

func (f Follow) body() map[string]any {
	body := map[string]any{}
	if f.Users != nil {
		body["users"] = f.Users
	}
	if f.ContactsOf != "" {
		body["contacts_of"] = f.ContactsOf
	}
	if len(f.Status) > 0 {
		body["status"] = f.Status
	}
	if f.NoSnapshot {
		body["snapshot"] = "none"
	}
	if f.Cursor != "" {
		body["cursor"] = f.Cursor
	}
	return body
}

// Changes is what a stream sends at once. Apply it to a [Roster].
type Changes struct {
	AsOf  time.Time  `json:"as_of"`
	Users []Presence `json:"users"` // each sets what is known of the user; empty if nothing changed
	More  bool       `json:"more"`  // more follow at once, and what is known is not complete before
	Reset bool       `json:"-"`     // forget what was known before: the first changes, and those after a gap

	Cursor string `json:"-"` // where a later [Client.FollowChanges] can continue

	everyone bool // who was never sent does not exist
}

// FollowChanges follows the changes of users by a stream of events. Where the stream is interrupted, the loop gets the
// error; if it goes on, so does the stream, with what changed meanwhile. While nothing changes, it gets changes without
// users, at least every 20 seconds.
//
// It ends when the loop does, when the context ends, and after an error that a repetition would not change, such as
// 403.
func (c *Client) FollowChanges(ctx context.Context, namespace string, f Follow) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		f := f
		for failed := 1; ; failed++ {
			goOn := true
			retry, err := c.stream(ctx, namespace, &f, func(changes Changes) bool {
				failed = 0
				changes.everyone = f.Users == nil && f.ContactsOf == "" && len(f.Status) == 0 && !f.NoSnapshot
				goOn = yield(changes, nil)
				return goOn
			})
			var problem *Error
			answered := errors.As(err, &problem)
			switch {
			case !goOn:
				return
			case answered && problem.Code == "invalid_cursor" && f.Cursor != "":
				f.Cursor = "" // begin again: the first changes are a reset
				continue
			}
			if !yield(Changes{}, err) || ctx.Err() != nil || answered && problem.Permanent() {
				return
			}
			if c.sleep(ctx, max(retry, backoff(err, max(failed, 1)))) != nil {
				yield(Changes{}, ctx.Err())
				return
			}
		}
	}
}

// stream reads one stream, and moves the cursor of f. It returns why the stream ended, and after what time the server
// wants to see the client again.
func (c *Client) stream(
	ctx context.Context, namespace string, f *Follow, each func(Changes) bool,
) (retry time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errors.New("nothing was received for 30 seconds")) })
	defer watchdog.Stop()
	begins := f.Cursor == ""
	r := request{
		method: http.MethodPost, path: route("namespaces", namespace, "changes"), body: f.body(),
		header: http.Header{"Accept": {"text/event-stream"}},
	}
	text, err := r.text()
	if err != nil {
		return 0, err
	}
	response, err := c.send(ctx, r, text)
	if err != nil {
		return 0, ended(ctx, err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxBody)
	for {
		e, ok := readEvent(lines)
		if !ok {
			return retry, ended(ctx, cmp.Or(lines.Err(), io.EOF))
		}
		retry = cmp.Or(e.retry, retry)
		if e.name != "changes" && e.name != "reset" && e.name != "tick" {
			continue // advice, or of a later version
		}
		var changes Changes
		if err := json.Unmarshal(e.data, &changes); err != nil {
			return retry, err
		}
		watchdog.Stop() // a slow loop is not a silent server
		changes.Reset, begins = e.name == "reset" || begins, false
		f.Cursor = cmp.Or(e.id, f.Cursor)
		changes.Cursor = f.Cursor
		if !each(changes) {
			return retry, nil
		}
		watchdog.Reset(silence)
	}
}

// ended returns why a stream ended, which its context may know better.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended the stream")
	}
	return err
}

// event is one of Server-Sent Events: https://html.spec.whatwg.org/multipage/server-sent-events.html.
type event struct {
	name, id string
	data     []byte
	retry    time.Duration
}

// readEvent reads the lines up to an empty one. It reports whether the stream goes on.
func readEvent(lines *bufio.Scanner) (e event, ok bool) {
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = append(e.data, value...)
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				e.retry = min(time.Duration(ms)*time.Millisecond, time.Minute)
			}
		case "":
			if lines.Text() == "" {
				return e, true
			}
		}
	}
	return e, false
}
