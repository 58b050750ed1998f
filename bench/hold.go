package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	lastseenProtocol   = "lastseen"
	centrifugeProtocol = "centrifuge"
)

// connectPath is where clients hold connections, in the namespace randomNS.
const connectPath = "/v1/namespaces/" + randomNS + "/connect"

// held is what the clients of one process have seen so far.
type held struct {
	Open     int            // connections that were welcomed and have not ended
	Welcomed int            // since the start
	Ended    map[string]int // connections and attempts to connect, by how they ended
	Refused  map[string]int // refusals that said when to come back, by that time
}

// holders are clients that each hold a connection of a user. A process may open 20,000 descriptors, so several
// processes run them.
type holders struct {
	urls     []string // of servers, in turn
	protocol string
	ids      users
	again    bool // connect again when a connection ended
	dialer   websocket.Dialer
	dials    chan struct{} // bounds how many connect at once

	mu sync.Mutex
	held
}

// hold runs clients until the context ends or its input does, and prints what they have seen as lines of JSON.
func hold(ctx context.Context, args []string, stdout io.Writer) error {
	set := flag.NewFlagSet("hold", flag.ContinueOnError)
	urls := set.String("urls", "", "ws:// URLs, separated by commas")
	first := set.Int("first", 0, "first user")
	n := set.Int("n", 0, "users")
	protocol := set.String("protocol", lastseenProtocol, "protocol")
	again := set.Bool("again", false, "connect again")
	atOnce := set.Int("at-once", 64, "clients that connect at once")
	if err := set.Parse(args); err != nil {
		return err
	}
	h := &holders{
		urls: strings.Split(*urls, ","), protocol: *protocol, ids: newUsers(*first + *n), again: *again,
		dials: make(chan struct{}, *atOnce), held: held{Ended: map[string]int{}, Refused: map[string]int{}},
	}
	h.dialer = websocket.Dialer{
		ReadBufferSize: 512, WriteBufferSize: 512, WriteBufferPool: &sync.Pool{}, HandshakeTimeout: 30 * time.Second,
		NetDialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: -1}).DialContext,
	}
	for i := *first; i < *first+*n; i++ {
		go h.run(ctx, i)
	}
	for pause(ctx, 100*time.Millisecond) == nil {
		h.mu.Lock()
		line, err := json.Marshal(h.held)
		h.mu.Unlock()
		if _, printErr := fmt.Fprintf(stdout, "%s\n", line); err != nil || printErr != nil {
			return errors.Join(err, printErr)
		}
	}
	return nil
}

// run holds the connection of one user.
func (h *holders) run(ctx context.Context, i int) {
	for failures := 0; ctx.Err() == nil; {
		welcomed, retryAfter, err := h.connect(ctx, i)
		h.mu.Lock()
		if welcomed {
			h.Open--
			failures = 0
		}
		h.Ended[nameOf(err)]++
		h.mu.Unlock()
		if !h.again {
			return
		}
		failures++
		_ = pause(ctx, max(retryAfter, backoff(failures))) // an error ends the loop, too
	}
}

// backoff returns how long a client waits: at first up to a second, then full jitter doubling to half a minute.
func backoff(failures int) time.Duration {
	return rand.N(min(30*time.Second, time.Second<<min(failures-1, 5)))
}

// nameOf names how a connection ended.
func nameOf(err error) string {
	var closed *websocket.CloseError
	var refused refusedError
	switch {
	case errors.As(err, &closed):
		return fmt.Sprint(closed.Code)
	case errors.As(err, &refused):
		return refused.Error()
	default:
		return "broken"
	}
}

// refusedError is a response to the upgrade that refuses it.
type refusedError int

func (e refusedError) Error() string { return fmt.Sprintf("HTTP %d", int(e)) }

// connect connects once, and returns when the connection has ended: also when to come back, if the server said so.
func (h *holders) connect(ctx context.Context, i int) (welcomed bool, retryAfter time.Duration, err error) {
	conn, retryAfter, err := h.dial(ctx, i)
	if err != nil {
		return false, retryAfter, err
	}
	end := func() { _ = conn.Close() } // a second time, too
	defer end()
	defer context.AfterFunc(ctx, end)()
	for {
		_, text, err := conn.ReadMessage()
		switch {
		case err != nil:
			return welcomed, retryAfter, err
		case h.protocol == centrifugeProtocol && string(text) == "{}": // a ping of the server
			if err := conn.WriteMessage(websocket.TextMessage, []byte("{}")); err != nil {
				return welcomed, retryAfter, err
			}
		case !welcomed:
			if !strings.Contains(string(text), h.welcome()) {
				retryAfter = h.problem(text) // the close code says the rest
				continue
			}
			welcomed = true
			h.mu.Lock()
			h.Open++
			h.Welcomed++
			h.mu.Unlock()
		}
	}
}

// welcome is what the first message of a server contains.
func (h *holders) welcome() string {
	if h.protocol == centrifugeProtocol {
		return `"client":`
	}
	return `"welcome":`
}

// problem notes a frame that says when to come back, and returns that time; 0 if it does not say so.
func (h *holders) problem(text []byte) time.Duration {
	var frame struct {
		Problem struct {
			After int `json:"retry_after_ms"`
		} `json:"problem"`
	}
	if json.Unmarshal(text, &frame) != nil || frame.Problem.After == 0 {
		return 0
	}
	return h.noteRefused(frame.Problem.After / 1000)
}

// noteRefused counts a refusal that said when to come back. It returns a random time within the second that ends then.
func (h *holders) noteRefused(seconds int) time.Duration {
	h.mu.Lock()
	h.Refused[fmt.Sprintf("%d s", seconds)]++
	h.mu.Unlock()
	return time.Duration(seconds)*time.Second - rand.N(time.Second)
}

// dial connects and says hello. After an error it returns when to come back, if the server said so.
func (h *holders) dial(ctx context.Context, i int) (*websocket.Conn, time.Duration, error) {
	h.dials <- struct{}{}
	defer func() { <-h.dials }()
	conn, response, err := h.dialer.DialContext(ctx, h.urls[i%len(h.urls)], nil)
	if err != nil {
		if response == nil {
			return nil, 0, err
		}
		_ = response.Body.Close() // the library has read it
		var retryAfter time.Duration
		if after, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
			retryAfter = h.noteRefused(after)
		}
		return nil, retryAfter, refusedError(response.StatusCode)
	}
	hello := `{"hello":{"user":"` + h.ids.id(i) + `","device":{"id":"bench","kind":"web"}}}`
	if h.protocol == centrifugeProtocol {
		hello = `{"id":1,"connect":{"name":"` + h.ids.id(i) + `"}}`
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte(hello)); err != nil {
		_ = conn.Close() // the error says why
		return nil, 0, err
	}
	return conn, 0, nil
}
