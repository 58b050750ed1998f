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

// presence is the namespace of the chat on a lastseen server, by its URL. A chat server needs three requests.
type presence string

// settings are those of the namespace.
type settings struct{ green, yellow, pingInterval time.Duration }

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

// settings asks the server how often to ping, and when statuses change.
func (p presence) settings(ctx context.Context) (settings, error) {
	var response struct {
		Green        time.Duration `json:"green_ms"`
		Yellow       time.Duration `json:"yellow_ms"`
		PingInterval time.Duration `json:"ping_interval_ms"`
	}
	content, err := p.send(ctx, http.MethodGet, "", nil)
	if err == nil {
		err = json.Unmarshal(content, &response)
	}
	const ms = time.Millisecond
	return settings{response.Green * ms, response.Yellow * ms, response.PingInterval * ms}, err
}

// report records what people did: a request for all pings, and one for all leaves.
func (p presence) report(ctx context.Context, did deeds) error {
	for what, items := range map[string][]presenceItem{"pings": did.pings, "leaves": did.leaves} {
		if len(items) == 0 {
			continue
		}
		if _, err := p.send(ctx, http.MethodPost, "/"+what, map[string]any{what: items}); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request about the namespace and returns the response.
func (p presence) send(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, string(p)+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, request.URL, response.Status, content)
	}
	return content, err
}
