package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options are settings of a [Client]. The zero value has usable ones.
type Options struct {
	// Key is the API key (ls_…) or a token that does not change. "" sends none.
	Key string
	// Token returns a user's token, in place of Key. It is called before the first request, and after each 401, which
	// means that the token expired; by concurrent requests at the same time.
	Token func(context.Context) (string, error)
	// Timeout is how long one try of a request waits for the response: 10 seconds unless set. Streams of changes have
	// no end; they are given up after 30 seconds without an event.
	Timeout time.Duration
	// Tries is how often a request is sent at most: 4 times unless set, 1 for no repetition.
	Tries int
	// MaxWait is how long a client waits at most between two tries: 30 seconds unless set. A server that asks for more
	// by Retry-After is not asked again.
	MaxWait time.Duration
	// HTTP sends the requests: with a transport of the client's own unless set. Its Timeout would end streams as well.
	HTTP *http.Client
}

// Client sends requests to one server. It can be used by many goroutines at once.
type Client struct {
	base    string // without a slash at the end
	options Options
	http    *http.Client
	sleep   func(context.Context, time.Duration) error

	mu    sync.Mutex
	token string // what Options.Token returned last
}

// New returns a client of the server at a URL, such as http://127.0.0.1:8080. The URL can have a path, where a proxy
// serves lastseen below one. It sends nothing; it fails for a URL that cannot be a server's.
func New(server string, o Options) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("URL of the server: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("URL of the server: use http:// or https:// and a host")
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, errors.New("URL of the server: no query, fragment or password; use Options.Key")
	case o.Key != "" && o.Token != nil:
		return nil, errors.New("use Key or Token, not both")
	case o.Timeout < 0 || o.Tries < 0 || o.MaxWait < 0:
		return nil, errors.New("a negative Timeout, Tries or MaxWait")
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxWait = cmp.Or(o.MaxWait, 30*time.Second)
	o.Tries = cmp.Or(o.Tries, 4)
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), options: o, http: o.HTTP, sleep: sleep}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		c.http = &http.Client{Transport: transport}
	}
	return c, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// credentials returns what a request is authorized with: "" for nothing.
func (c *Client) credentials(ctx context.Context) (string, error) {
	if c.options.Token == nil {
		return c.options.Key, nil
	}
	c.mu.Lock()
	known := c.token
	c.mu.Unlock()
	if known != "" {
		return known, nil
	}
	token, err := c.options.Token(ctx)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	c.mu.Lock()
	c.token = token
	c.mu.Unlock()
	return token, nil
}

// expired forgets a token that the server refused. It reports whether there can be another one.
func (c *Client) expired(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == token {
		c.token = ""
	}
	return c.options.Token != nil
}
