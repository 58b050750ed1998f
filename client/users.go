package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/lastseen/lastseen"
)

// UserDevices are the devices of a user.
type UserDevices struct {
	User      string                `json:"user"`
	AsOf      time.Time             `json:"as_of"`
	Kinds     []lastseen.DeviceKind `json:"kinds"`    // of the live devices
	Activity  string                `json:"activity"` // "active", "idle", or "" without a live device
	IdleSince time.Time             `json:"idle_since,omitzero"`
	Devices   []UserDevice          `json:"devices"` // those seen last first
}

// UserDevice is one device of a user.
type UserDevice struct {
	Device
	Since     time.Time `json:"since"`
	LastSeen  time.Time `json:"last_seen"`
	Activity  string    `json:"activity"`
	IdleSince time.Time `json:"idle_since,omitzero"`
	Gone      bool      `json:"gone"` // its newest event is a leave
	Live      bool      `json:"live"` // it keeps the user present
}

// ListDevices returns the devices of a user.
func (c *Client) ListDevices(ctx context.Context, namespace, user string) (d UserDevices, err error) {
	path := route("namespaces", namespace, "users", user, "devices")
	return d, c.do(ctx, request{method: http.MethodGet, path: path}, &d)
}

// CloseConnections closes the WebSockets that a user has open now, on all servers. It records no leave. It is not
// repeated, since the user can have opened others.
func (c *Client) CloseConnections(ctx context.Context, namespace, user string) error {
	path := route("namespaces", namespace, "users", user, "connections")
	return c.do(ctx, request{method: http.MethodDelete, path: path, again: ifRefused}, nil)
}

// UserAvailability is what a user says about being available.
type UserAvailability struct {
	User         string                `json:"user"`
	Availability lastseen.Availability `json:"availability"` // "" for nothing
	Note         string                `json:"note"`
	Until        time.Time             `json:"until,omitzero"` // zero for no end
	For          time.Duration         `json:"-"`              // to set it: instead of Until, a time from now on
}

func availability(namespace, user string) string {
	return route("namespaces", namespace, "users", user, "availability")
}

// GetAvailability returns a user's availability as the user set it, also if it is invisible.
func (c *Client) GetAvailability(ctx context.Context, namespace, user string) (a UserAvailability, err error) {
	return a, c.do(ctx, request{method: http.MethodGet, path: availability(namespace, user)}, &a)
}

// SetAvailability replaces a user's availability and note: until a time, for a time, or without an end.
func (c *Client) SetAvailability(
	ctx context.Context, namespace string, set UserAvailability,
) (a UserAvailability, err error) {
	body := struct {
		Availability lastseen.Availability `json:"availability,omitempty"`
		Note         string                `json:"note,omitempty"`
		Until        time.Time             `json:"until,omitzero"`
		For          string                `json:"for,omitempty"`
	}{set.Availability, set.Note, set.Until, duration(set.For)}
	r := request{method: http.MethodPut, path: availability(namespace, set.User), body: body}
	return a, c.do(ctx, r, &a)
}

// DeleteAvailability ends a user's availability and note.
func (c *Client) DeleteAvailability(ctx context.Context, namespace, user string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: availability(namespace, user)}, nil)
}

// Contacts says which contacts of a user a list has. The zero value means all.
type Contacts struct {
	Status []lastseen.Status // contacts with one of these; empty for all
	InCall *bool             // contacts who are in a call, or who are not; nil for both
	Limit  int               // contacts of a page: 1 to 1,000; 0 for 50, in [Client.Contacts] for 1,000
	Cursor string            // the NextCursor of the page before; "" for the first one
	Evaluate
}

func contacts(namespace, user string) string {
	return route("namespaces", namespace, "users", user, "contacts")
}

// ListContacts returns one page of a user's contacts with their presence.
func (c *Client) ListContacts(
	ctx context.Context, namespace, user string, l Contacts,
) (p PresencePage, err error) {
	q := l.query()
	if l.InCall != nil {
		q.Set("in_call", strconv.FormatBool(*l.InCall))
	}
	page(q, l.Limit, l.Cursor, l.Status...)
	err = c.do(ctx, request{method: http.MethodGet, path: contacts(namespace, user), query: q}, &p)
	dated(p.Users, p.AsOf)
	return p, err
}

// Contacts returns all contacts of a user, page by page. It ends with the first error.
func (c *Client) Contacts(ctx context.Context, namespace, user string, l Contacts) iter.Seq2[Presence, error] {
	l.Limit = cmp.Or(l.Limit, 1000)
	return pages(l.Cursor, func(cursor string) ([]Presence, string, error) {
		l := l
		l.Cursor = cursor
		p, err := c.ListContacts(ctx, namespace, user, l)
		return p.Users, p.NextCursor, err
	})
}

// SetContacts replaces a user's contacts: up to 5,000.
func (c *Client) SetContacts(ctx context.Context, namespace, user string, users []string) error {
	body := map[string][]string{"users": users}
	return c.do(ctx, request{method: http.MethodPut, path: contacts(namespace, user), body: body}, nil)
}

// ChangeContacts adds and removes contacts. A user in both lists is removed.
func (c *Client) ChangeContacts(ctx context.Context, namespace, user string, add, remove []string) error {
	body := struct {
		Add    []string `json:"add,omitempty"`
		Remove []string `json:"remove,omitempty"`
	}{add, remove}
	return c.do(ctx, request{method: http.MethodPatch, path: contacts(namespace, user), body: body}, nil)
}

// DeleteContacts deletes all contacts of a user.
func (c *Client) DeleteContacts(ctx context.Context, namespace, user string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: contacts(namespace, user)}, nil)
}
