package lastseen

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	minWebhookSecret = 24 // bytes; the bounds are those of Standard Webhooks 1.0.0
	maxWebhookSecret = 64
)

// ParseWebhookSecret returns the key that signs a webhook's events. text is whsec_ and the base64 of 24 to 64 bytes.
// Errors do not show the secret; they go on after "the secret".
func ParseWebhookSecret(text string) (key []byte, err error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	if !ok {
		return nil, errors.New("does not begin with whsec_")
	}
	if key, err = base64.StdEncoding.Strict().DecodeString(encoded); err != nil {
		return nil, errors.New("is not valid base64 after whsec_")
	}
	if len(key) < minWebhookSecret || len(key) > maxWebhookSecret {
		return nil, fmt.Errorf("has %d bytes; use %d to %d", len(key), minWebhookSecret, maxWebhookSecret)
	}
	return key, nil
}
