package client

import (
	"context"
	"net/http"
	"time"
)

// Version says what a server runs.
type Version struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Revision string `json:"revision"` // "" if not known
}

// GetVersion returns the server's version.
func (c *Client) GetVersion(ctx context.Context) (v Version, err error) {
	return v, c.do(ctx, request{method: http.MethodGet, path: "/version"}, &v)
}

// GetHealth returns an error unless the server runs. It does not ask the store.
func (c *Client) GetHealth(ctx context.Context) error {
	return c.do(ctx, request{method: http.MethodGet, path: "/healthz"}, nil)
}

// GetReadiness returns an error unless the server takes requests and its store answers.
func (c *Client) GetReadiness(ctx context.Context) error {
	return c.do(ctx, request{method: http.MethodGet, path: "/readyz"}, nil)
}

// Webhook is the state of a webhook.
type Webhook struct {
	Webhook      string    `json:"webhook"`
	Delivering   bool      `json:"delivering"` // a server delivers for it
	Disabled     bool      `json:"disabled"`   // the receiver answered 410
	LastDelivery time.Time `json:"last_delivery,omitzero"`
	LastFailure  time.Time `json:"last_failure,omitzero"`
	LastError    string    `json:"last_error"`
	LagMs        int64     `json:"lag_ms"`    // how old the oldest change of the last event was
	BehindMs     int64     `json:"behind_ms"` // for how long the receiver accepts nothing
}

// ListWebhooks returns the webhooks that are configured.
func (c *Client) ListWebhooks(ctx context.Context) ([]Webhook, error) {
	var list struct{ Webhooks []Webhook }
	err := c.do(ctx, request{method: http.MethodGet, path: route("webhooks")}, &list)
	return list.Webhooks, err
}

// WebhookAttempt is what came of a test event.
type WebhookAttempt struct {
	Result string `json:"result"` // delivered, failed, too_large, refused, gone
	Reason string `json:"reason"` // "" if it was delivered
}

// TestWebhook sends a test event to the receiver of a webhook.
func (c *Client) TestWebhook(ctx context.Context, webhook string) (a WebhookAttempt, err error) {
	r := request{method: http.MethodPost, path: route("webhooks", webhook, "test"), again: ifRefused}
	return a, c.do(ctx, r, &a)
}

// EnableWebhook enables a webhook that its receiver disabled.
func (c *Client) EnableWebhook(ctx context.Context, webhook string) error {
	return c.do(ctx, request{method: http.MethodPost, path: route("webhooks", webhook, "enable")}, nil)
}
