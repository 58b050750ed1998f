// Package operations has the handlers of what operators ask about the service itself, rather than about its users.
package operations

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/singleflight"

	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
)

// Webhooks are those of the configuration; see [webhooks.Manager].
type Webhooks interface {
	States(ctx context.Context) ([]webhooks.State, error)
	Enable(ctx context.Context, name string) error
	Try(ctx context.Context, name string) (webhooks.Attempt, error)
}

// webhookState is how one webhook fares.
type webhookState struct {
	Webhook string `json:"webhook"`
	// Whether a server delivers for it.
	Delivering bool `json:"delivering"`
	// Whether the receiver answered 410: nothing is delivered.
	Disabled bool `json:"disabled"`
	// When the receiver last accepted an event. Null if it accepted none.
	Delivered request.Timestamp `json:"last_delivery" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// How old the oldest change of that event was. Without the time for which it was held.
	LagMs int64 `json:"lag_ms" format:"int64" minimum:"0"`
	// For how long the receiver accepts nothing, in the namespace where that is longest. 0 if it does.
	BehindMs int64 `json:"behind_ms" format:"int64" minimum:"0"`
	// When a request to the receiver last failed. Null if none did.
	Failed request.Timestamp `json:"last_failure" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
	// Why it did.
	LastError *string `json:"last_error" extensions:"x-nullable"`
} // @name Webhook

// webhooksResponse has all webhooks.
type webhooksResponse struct {
	Webhooks []webhookState `json:"webhooks"`
} // @name Webhooks

// attemptResponse is what came of a test event.
type attemptResponse struct {
	// What came of it, as in the metric lastseen_webhooks_requests_total.
	Result webhooks.Result `json:"result" swaggertype:"string" enums:"delivered,failed,too_large,refused,gone"`
	// Why it was not delivered. Null if it was.
	Reason *string `json:"reason" extensions:"x-nullable"`
} // @name WebhookAttempt

// Options are what the handlers respond with.
type Options struct {
	Webhooks Webhooks // nil for none
	Ready    func(context.Context) error
	Draining func() bool
	Version  Version
}

// Handlers respond to operators, and to what watches over the process.
type Handlers struct {
	o      Options
	probes singleflight.Group // of readiness
}

// New returns the handlers.
func New(o Options) *Handlers {
	if o.Webhooks == nil {
		o.Webhooks = webhooks.New(webhooks.Options{Webhooks: func() []*webhooks.Webhook { return nil }})
	}
	return &Handlers{o: o}
}

// ListWebhooks responds with how webhooks fare.
//
// @ID listWebhooks
// @Summary List webhooks
// @Description Returns how the webhooks of the configuration fare, sorted by name, whichever servers deliver for them.
// @Description It is up to ten seconds old. URLs are not shown. Requires the scope `admin` in all namespaces.
// @Success 200 {object} webhooksResponse "The webhooks."
// @Router /v1/webhooks [get]
func (h *Handlers) ListWebhooks(c echo.Context, _ request.Query) error {
	states, err := h.o.Webhooks.States(c.Request().Context())
	if err != nil {
		return err
	}
	response := webhooksResponse{Webhooks: []webhookState{}}
	for _, s := range states {
		response.Webhooks = append(response.Webhooks, webhookState{
			Webhook: s.Webhook, Delivering: s.Holder && !s.Disabled, Disabled: s.Disabled,
			Delivered: request.Timestamp(s.Delivered), LagMs: s.Lag.Milliseconds(),
			BehindMs: s.Behind.Milliseconds(), Failed: request.Timestamp(s.Failed),
			LastError: request.Optional(s.Error),
		})
	}
	return request.Respond(c, response)
}

// TestWebhook sends a test event.
//
// @ID testWebhook
// @Summary Send a test event to a webhook
// @Description Sends an event with the type `test`, once, from the server that gets this request, also if the webhook
// @Description is disabled. The response says what came of it, after up to 15 seconds. Requires the scope `admin` in
// @Description all namespaces.
// @Success 200 {object} attemptResponse "What came of it."
// @Router /v1/webhooks/{webhook}/test [post]
func (h *Handlers) TestWebhook(c echo.Context, _ request.Query) error {
	a, err := h.o.Webhooks.Try(c.Request().Context(), c.Param("webhook"))
	if err != nil {
		return explain(err)
	}
	return request.Respond(c, attemptResponse{a.Result, request.Optional(a.Reason)})
}

// EnableWebhook has a webhook delivered again.
//
// @ID enableWebhook
// @Summary Enable a webhook
// @Description Has a webhook delivered again whose receiver answered 410, from where it was. The server that delivers
// @Description learns it within two seconds. Enabling one that is not disabled does nothing. Requires the scope `admin`
// @Description in all namespaces.
// @Success 204 "Enabled."
// @Router /v1/webhooks/{webhook}/enable [post]
func (h *Handlers) EnableWebhook(c echo.Context, _ request.Query) error {
	if err := h.o.Webhooks.Enable(c.Request().Context(), c.Param("webhook")); err != nil {
		return explain(err)
	}
	return c.NoContent(http.StatusNoContent)
}

func explain(err error) error {
	if errors.Is(err, webhooks.ErrUnknown) {
		return problem.New(problem.WebhookNotFound, "This server has no webhook of that name in its configuration.")
	}
	return err
}
