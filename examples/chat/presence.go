package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// presence is the namespace of the chat on a lastseen server, by its URL. A chat server needs two requests.
type presence string

// presenceItem is an item of a bulk ping or leave.
type presenceItem struct {
	User     string            `json:"user"`
	Device   map[string]string `json:"device"`
	Activity string            `json:"activity,omitempty"` // of pings
	At       *time.Time        `json:"at,omitempty"`       // default: now
}

// newItem returns an item of a user with one page open.
func newItem(user string, idle bool) presenceItem {
	item := presenceItem{User: user, Device: map[string]string{"id": "page", "kind": "web"}}
	if idle {
		item.Activity = "idle"
	}
	return item
}

// report records what people did: a request for all pings, and one for all leaves.
func (p presence) report(ctx context.Context, did deeds) error {
	for what, items := range map[string][]presenceItem{"pings": did.pings, "leaves": did.leaves} {
		if len(items) == 0 {
			continue
		}
		if err := p.post(ctx, what, map[string]any{what: items}); err != nil {
			return err
		}
	}
	return nil
}

// post sends a request about the namespace.
func (p presence) post(ctx context.Context, what string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p)+"/"+what, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		content, _ = io.ReadAll(response.Body) // the status says enough
		return fmt.Errorf("%s: %s: %s", request.URL, response.Status, content)
	}
	return nil
}
