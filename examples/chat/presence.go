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

// namespace is the one of the chat.
const namespace = "chat"

// presence is a lastseen server, of which a chat server needs three requests.
type presence struct {
	url    string
	client *http.Client
}

// settings are those of the namespace.
type settings struct{ green, yellow, pingInterval time.Duration }

// presenceItem is an item of a bulk ping or leave.
type presenceItem struct {
	User     string     `json:"user"`
	Device   device     `json:"device"`
	Activity string     `json:"activity,omitempty"` // of pings
	At       *time.Time `json:"at,omitempty"`       // default: now
}

type device struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// settings asks the server how often to ping, and when statuses change.
func (p presence) settings(ctx context.Context) (settings, error) {
	var answer struct {
		Green        int `json:"green_ms"`
		Yellow       int `json:"yellow_ms"`
		PingInterval int `json:"ping_interval_ms"`
	}
	err := p.call(ctx, http.MethodGet, "", nil, &answer)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return settings{ms(answer.Green), ms(answer.Yellow), ms(answer.PingInterval)}, err
}

// report records what people did: a request for all pings, and one for all leaves.
func (p presence) report(ctx context.Context, did deeds) error {
	if len(did.pings) > 0 {
		if err := p.call(ctx, http.MethodPost, "/pings", map[string]any{"pings": did.pings}, nil); err != nil {
			return err
		}
	}
	if len(did.leaves) == 0 {
		return nil
	}
	return p.call(ctx, http.MethodPost, "/leaves", map[string]any{"leaves": did.leaves}, nil)
}

// call sends a request about the namespace and decodes the response.
func (p presence) call(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url := p.url + "/v1/namespaces/" + namespace + path
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, content)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(content, answer)
}
