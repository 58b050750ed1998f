package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/lastseen/lastseen"
)

// maxEvent is how many bytes of a request a [Verifier] reads: more than any event has.
const maxEvent = 1 << 20

// Verifier checks that requests to a receiver of webhooks are lastseen's: see docs/webhooks.md.
type Verifier struct {
	secrets []*standardwebhooks.Webhook
}

// NewVerifier returns a verifier that accepts events signed with any of the secrets: whsec_ and the base64 of 24 to 64
// bytes.
func NewVerifier(secrets ...string) (*Verifier, error) {
	v := &Verifier{}
	for i, secret := range secrets {
		key, err := lastseen.ParseWebhookSecret(strings.TrimSpace(secret))
		if err != nil {
			return nil, fmt.Errorf("secret %d %w", i+1, err)
		}
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, err
		}
		v.secrets = append(v.secrets, hook)
	}
	if v.secrets == nil {
		return nil, errors.New("no secret")
	}
	return v, nil
}

// WebhookEvent is what a webhook reports.
type WebhookEvent struct {
	ID        string        // a repetition has the same: ignore an ID that you handled
	Type      string        // presence.changed, presence.reset, presence.snapshot, test
	Timestamp time.Time     // when lastseen made the event
	Namespace string        // "" in a test
	Users     []WebhookUser // of presence.changed and presence.snapshot
	More      bool          // of presence.snapshot: another part follows
	Webhook   string        // of test
}

// WebhookUser is a user in an event.
type WebhookUser struct {
	Presence
	Previous lastseen.Status `json:"previous"` // before; "" if it is not known
}

// Read reads a request, and returns the event in it. An error means that the request is not lastseen's, or old: answer
// 400. A request with an unknown type is to be accepted: a later version sent it.
func (v *Verifier) Read(r *http.Request) (WebhookEvent, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxEvent))
	if err != nil {
		return WebhookEvent{}, err
	}
	return v.Verify(body, r.Header)
}

// Verify is [Verifier.Read] for a body that was read: byte for byte as it arrived.
func (v *Verifier) Verify(body []byte, header http.Header) (e WebhookEvent, err error) {
	for _, hook := range v.secrets {
		if err = hook.Verify(body, header); err == nil {
			break
		}
	}
	if err != nil {
		return e, err
	}
	var sent struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			Namespace string
			Users     []WebhookUser
			More      bool
			Webhook   string
		}
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return e, err
	}
	return WebhookEvent{
		ID: header.Get("webhook-id"), Type: sent.Type, Timestamp: sent.Timestamp, Namespace: sent.Data.Namespace,
		Users: sent.Data.Users, More: sent.Data.More, Webhook: sent.Data.Webhook,
	}, nil
}
