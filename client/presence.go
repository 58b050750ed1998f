package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen"
)

// Presence is a user as a server showed them. Fields that a response does not have are zero.
type Presence struct {
	User       string          `json:"user"`
	Status     lastseen.Status `json:"status"`
	LastSeen   time.Time       `json:"last_seen,omitzero"`   // the newest ping or leave; zero for never
	Left       bool            `json:"left"`                 // the newest event is a leave
	ValidUntil time.Time       `json:"valid_until,omitzero"` // when it changes by time; zero for grey, and in changes
	AsOf       time.Time       `json:"as_of,omitzero"`       // when the status was evaluated; zero in changes

	Activity          string                `json:"activity,omitempty"` // "idle", or "" for a user who uses a device
	IdleSince         time.Time             `json:"idle_since,omitzero"`
	Availability      lastseen.Availability `json:"availability,omitempty"`
	AvailabilityUntil time.Time             `json:"availability_until,omitzero"` // zero for no end
	Note              string                `json:"note,omitempty"`              // text, never HTML
	InCall            bool                  `json:"in_call,omitempty"`

	PingAfterMs int64 `json:"ping_after_ms,omitempty"` // in responses to pings: the time until the next one
}

// ValidFor returns for how long after the arrival of a response the status holds unless a ping or a leave changes it: 0
// for grey.
func (p Presence) ValidFor() time.Duration {
	if p.ValidUntil.IsZero() {
		return 0
	}
	return p.ValidUntil.Sub(p.AsOf)
}

// Device is a device of a user: see docs/devices.md.
type Device struct {
	ID   string              `json:"id"`
	Kind lastseen.DeviceKind `json:"kind,omitempty"`
	Meta json.RawMessage     `json:"meta,omitempty"` // an object of at most 1 KiB
}

// Ping is what a ping can say besides the user. The zero value says nothing.
type Ping struct {
	Device   *Device   `json:"device,omitempty"`
	Activity string    `json:"activity,omitempty"` // "active" (or "") or "idle"; it requires a device
	At       time.Time `json:"at,omitzero"`        // zero for now
}

// Leave is what a leave can say besides the user. The zero value says nothing.
type Leave struct {
	Device *Device
	After  time.Duration // wait so long; a ping in the meantime makes the leave void. At most a minute
	At     time.Time     // zero for now
}

// Event is a ping or a leave in a batch.
type Event struct {
	User     string
	Device   *Device
	Activity string        // of pings
	After    time.Duration // of leaves
	At       time.Time
}

// MarshalJSON writes the event as an item of a batch.
func (e Event) MarshalJSON() ([]byte, error) {
	return jsonv2.Marshal(struct {
		User  string `json:"user,omitempty"`
		After string `json:"after,omitempty"`
		Ping
	}{e.User, duration(e.After), Ping{e.Device, e.Activity, e.At}})
}

// Evaluate says how statuses are computed. The zero value means now, and the thresholds of the namespace.
type Evaluate struct {
	AsOf          time.Time
	Green, Yellow time.Duration // the ages at which users turn yellow and grey; 0 for the namespace's
}

func (e Evaluate) query() url.Values {
	q := url.Values{}
	set(q, "as_of", stamp(e.AsOf))
	set(q, "green", duration(e.Green))
	set(q, "yellow", duration(e.Yellow))
	return q
}

// set sets a parameter, unless it is "".
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// PresenceList is the response to a lookup, in the order of the request.
type PresenceList struct {
	AsOf     time.Time  `json:"as_of"`
	GreenMs  int64      `json:"green_ms"`
	YellowMs int64      `json:"yellow_ms"`
	Users    []Presence `json:"users"`
}

// dated writes the time of a list into each of its presences.
func dated(users []Presence, asOf time.Time) {
	for i := range users {
		users[i].AsOf = asOf
	}
}

// PingUser records that a user is online, and returns the user's presence. Ping again after PingAfterMs.
func (c *Client) PingUser(ctx context.Context, namespace, user string, ping Ping) (p Presence, err error) {
	path := route("namespaces", namespace, "users", user, "ping")
	return p, c.do(ctx, request{method: http.MethodPost, path: path, body: ping}, &p)
}

// RecordLeave records that a user went away, and returns the user's presence; with After, an empty one.
func (c *Client) RecordLeave(ctx context.Context, namespace, user string, leave Leave) (p Presence, err error) {
	path := route("namespaces", namespace, "users", user, "leave")
	body := Event{Device: leave.Device, After: leave.After, At: leave.At}
	return p, c.do(ctx, request{method: http.MethodPost, path: path, body: body, again: ifRefused}, &p)
}

// RecordPings records up to 10,000 pings in 1 MiB of JSON, all or none, and returns how many.
func (c *Client) RecordPings(ctx context.Context, namespace string, pings []Event) (recorded int, err error) {
	return record(ctx, c, namespace, "pings", always, pings)
}

// RecordLeaves records up to 10,000 leaves in 1 MiB of JSON, all or none, and returns how many.
func (c *Client) RecordLeaves(ctx context.Context, namespace string, leaves []Event) (recorded int, err error) {
	return record(ctx, c, namespace, "leaves", ifRefused, leaves)
}

// record records events, each an [Event] or its JSON.
func record[E any](
	ctx context.Context, c *Client, namespace, what string, again repetition, events []E,
) (recorded int, err error) {
	var result struct{ Recorded int }
	path, body := route("namespaces", namespace, what), map[string][]E{what: events}
	r := request{method: http.MethodPost, path: path, body: body, again: again}
	return result.Recorded, c.do(ctx, r, &result)
}

// GetUser looks a user up. A user who was never seen is grey.
func (c *Client) GetUser(ctx context.Context, namespace, user string, e Evaluate) (p Presence, err error) {
	path := route("namespaces", namespace, "users", user)
	return p, c.do(ctx, request{method: http.MethodGet, path: path, query: e.query()}, &p)
}

// LookupUsers looks up to 1,000 users up.
func (c *Client) LookupUsers(
	ctx context.Context, namespace string, users []string, e Evaluate,
) (list PresenceList, err error) {
	path, body := route("namespaces", namespace, "lookup"), map[string][]string{"users": users}
	err = c.do(ctx, request{method: http.MethodPost, path: path, query: e.query(), body: body}, &list)
	dated(list.Users, list.AsOf)
	return list, err
}

// DeleteUser deletes what is stored of a user. It succeeds for users who were never seen. A repetition also deletes
// what was recorded in between.
func (c *Client) DeleteUser(ctx context.Context, namespace, user string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: route("namespaces", namespace, "users", user)}, nil)
}

// GetUserDot returns the user's dot as SVG, of so many pixels: 8 to 512, 0 for 16.
func (c *Client) GetUserDot(ctx context.Context, namespace, user string, size int, e Evaluate) ([]byte, error) {
	q := e.query()
	if size != 0 {
		q.Set("size", strconv.Itoa(size))
	}
	path := route("namespaces", namespace, "users", user, "dot.svg")
	return c.read(ctx, request{method: http.MethodGet, path: path, query: q})
}
