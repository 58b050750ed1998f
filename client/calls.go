package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/lastseen/lastseen"
)

// Call is a call between two users: see docs/calls.md.
type Call struct {
	ID         string             `json:"id"`
	From       string             `json:"from"`
	To         string             `json:"to"`
	State      lastseen.CallState `json:"state"`
	FromDevice string             `json:"from_device"`
	ToDevice   string             `json:"to_device"`
	By         *CallActor         `json:"by"` // whose action led to the state; nil if time did
	CreatedAt  time.Time          `json:"created_at"`
	AcceptedAt time.Time          `json:"accepted_at,omitzero"`
	EndedAt    time.Time          `json:"ended_at,omitzero"`
	ExpiresAt  time.Time          `json:"expires_at,omitzero"`
	App        json.RawMessage    `json:"app"` // any JSON of the app's
}

// CallActor is a party of a call, on a device.
type CallActor struct {
	User   string `json:"user"`
	Device string `json:"device"`
}

// NewCall is a call to start.
type NewCall struct {
	From   string          `json:"from,omitempty"` // "" for the user of the token
	To     string          `json:"to"`
	Device string          `json:"device,omitempty"` // on which the user calls
	App    json.RawMessage `json:"app,omitempty"`    // any JSON of at most 16 KiB
	If     string          `json:"if,omitempty"`     // "present": only if the callee is green or yellow

	// Key makes a repetition safe: a random one unless set.
	Key string `json:"-"`
}

// StartCall calls a user.
func (c *Client) StartCall(ctx context.Context, namespace string, n NewCall) (call Call, err error) {
	header := http.Header{"Idempotency-Key": {cmp.Or(n.Key, rand.Text())}}
	r := request{method: http.MethodPost, path: route("namespaces", namespace, "calls"), body: n, header: header}
	return call, c.do(ctx, r, &call)
}

// GetCall returns a call.
func (c *Client) GetCall(ctx context.Context, namespace, id string) (call Call, err error) {
	return call, c.do(ctx, request{method: http.MethodGet, path: route("namespaces", namespace, "calls", id)}, &call)
}

// CallAction is who acts on a call.
type CallAction struct {
	User   string          `json:"user,omitempty"` // "" for the user of the token
	Device string          `json:"device,omitempty"`
	App    json.RawMessage `json:"app,omitempty"` // only to accept and to keep alive: it replaces that of the call
}

// AcceptCall accepts a call that rings.
func (c *Client) AcceptCall(ctx context.Context, namespace, id string, a CallAction) (Call, error) {
	return c.act(ctx, namespace, id, "accept", a)
}

// RejectCall rejects a call that rings.
func (c *Client) RejectCall(ctx context.Context, namespace, id string, a CallAction) (Call, error) {
	return c.act(ctx, namespace, id, "reject", a)
}

// EndCall ends a call, or cancels one that rings.
func (c *Client) EndCall(ctx context.Context, namespace, id string, a CallAction) (Call, error) {
	return c.act(ctx, namespace, id, "end", a)
}

// KeepCallAlive says that a party still takes part.
func (c *Client) KeepCallAlive(ctx context.Context, namespace, id string, a CallAction) (Call, error) {
	return c.act(ctx, namespace, id, "alive", a)
}

func (c *Client) act(ctx context.Context, namespace, id, action string, a CallAction) (call Call, err error) {
	path := route("namespaces", namespace, "calls", id, action)
	return call, c.do(ctx, request{method: http.MethodPost, path: path, body: a}, &call)
}

// Calls are the calls of a user.
type Calls struct {
	Calls       []Call `json:"calls"`         // the ongoing one; before it, once, that of the cursor, if it has ended
	Cursor      string `json:"cursor"`        // to get what changes after this response
	PollAfterMs int64  `json:"poll_after_ms"` // when to ask again
}

// ListCalls returns the calls of a user, at once, or as soon as they differ from those of a cursor: at the latest after
// wait, up to 50 seconds.
func (c *Client) ListCalls(
	ctx context.Context, namespace, user, cursor string, wait time.Duration,
) (calls Calls, err error) {
	q := url.Values{}
	set(q, "user", user)
	set(q, "cursor", cursor)
	set(q, "wait", duration(wait))
	r := request{method: http.MethodGet, path: route("namespaces", namespace, "calls"), query: q, wait: wait}
	return calls, c.do(ctx, r, &calls)
}
