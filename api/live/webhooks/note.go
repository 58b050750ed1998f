package webhooks

import (
	"context"
	"encoding/json"

	"github.com/lastseen/lastseen/store"
)

// notePrefix begins the names of leases and notes, which are those of webhooks.
const notePrefix = "webhook-"

// readNote reads what servers noted of a webhook under a key: a namespace, or ownNote. It has no version if there is
// nothing. What cannot be read is the zero value, with a version.
func readNote[T any](ctx context.Context, s Store, webhook, key string) (value T, n store.Note, err error) {
	n, err = s.Note(ctx, notePrefix+webhook, key)
	if err == nil && n.Version != "" && json.Unmarshal(n.Text, &value) != nil {
		var none T
		value = none
	}
	return value, n, err
}

// writeNote replaces a note, and returns its version; "" if another server replaced it meanwhile.
func writeNote[T any](ctx context.Context, s Store, webhook, key, old string, value T) (version string, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	version = newID()
	set, err := s.SetNote(ctx, notePrefix+webhook, key, old, store.Note{Version: version, Text: text})
	if err != nil || !set {
		return "", err
	}
	return version, nil
}
