package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	maxBatch   = 1000    // pings or users in one request
	maxBytes   = 900_000 // of them; the server takes 1 MiB
	maxPing    = 8 << 10 // bytes of a ping, more than any valid one has
	maxWaiting = 100_000 // of a [Batch], for its next requests
)

// ErrTooManyWaiting is returned when 100,000 pings or lookups of a [Batch] wait already, since the server is slow or
// away.
var ErrTooManyWaiting = errors.New("too many pings or lookups wait for the server")

// Batch sends the pings and the lookups of many goroutines in few requests: while a request is in progress, it gathers
// what the next one has. A single call is sent at once.
type Batch struct {
	client    *Client
	namespace string
	pings     gatherer[json.RawMessage, error]
	lookups   gatherer[string, Presence]
}

// Batch returns a batch for a namespace. It needs no end.
func (c *Client) Batch(namespace string) *Batch {
	b := &Batch{client: c, namespace: namespace}
	b.pings.send, b.lookups.send = b.record, b.lookUp
	return b
}

// Ping records a ping. It returns when the server has it. A ping whose context ends is not sent if it still waits. One
// that the server refuses as invalid fails alone.
func (b *Batch) Ping(ctx context.Context, user string, ping Ping) error {
	event, err := Event{User: user, Device: ping.Device, Activity: ping.Activity, At: ping.At}.MarshalJSON()
	if err != nil {
		return err
	}
	if len(event) > maxPing {
		return fmt.Errorf("a ping has at most %d bytes", maxPing)
	}
	results, err := b.pings.do(ctx, event)
	if err != nil {
		return err
	}
	return results[0]
}

// record records pings, again without those that the server names as invalid. It returns what came of each.
func (b *Batch) record(ctx context.Context, pings []json.RawMessage) ([]error, error) {
	results := make([]error, len(pings))
	left := make([]int, len(pings)) // where in results each of pings belongs
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		_, err := record(ctx, b.client, b.namespace, "pings", always, pings)
		if err == nil {
			break
		}
		var problem *Error
		if !errors.As(err, &problem) || len(problem.Items) == 0 {
			return nil, err
		}
		first := problem.Items[0] // whose code the error has
		if first.Index < 0 || first.Index >= len(left) {
			return nil, err
		}
		results[left[first.Index]] = problem
		left = slices.Delete(left, first.Index, first.Index+1)
		pings = slices.Delete(pings, first.Index, first.Index+1)
	}
	return results, nil
}

// Lookup returns the presence of up to 100,000 users, in the order of the arguments. It fails as a whole.
func (b *Batch) Lookup(ctx context.Context, users ...string) ([]Presence, error) {
	for _, user := range users {
		if err := lastseen.CheckUser(user); err != nil {
			return nil, fmt.Errorf("user %q: %w", user, err)
		}
	}
	return b.lookups.do(ctx, users...)
}

func (b *Batch) lookUp(ctx context.Context, users []string) ([]Presence, error) {
	known := make(map[string]Presence, len(users))
	var unique []string
	for _, user := range users {
		if _, ok := known[user]; !ok {
			known[user] = Presence{}
			unique = append(unique, user)
		}
	}
	list, err := b.client.LookupUsers(ctx, b.namespace, unique, Evaluate{})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Users {
		known[p.User] = p
	}
	all := make([]Presence, len(users))
	for i, user := range users {
		all[i] = known[user]
	}
	return all, nil
}

// gatherer sends items that come while a request is in progress together, in the next one.
type gatherer[Item string | json.RawMessage, Result any] struct {
	send func(context.Context, []Item) ([]Result, error) // of at most maxBatch items and maxBytes; a result for each

	mu      sync.Mutex
	waiting []*gathered[Item, Result]
	sending bool
}

// gathered is one item that waits, and what came of it once done is closed.
type gathered[Item string | json.RawMessage, Result any] struct {
	gone   <-chan struct{} // closed when the caller no longer waits
	item   Item
	done   chan struct{}
	result Result
	err    error
}

func (g *gatherer[Item, Result]) do(ctx context.Context, items ...Item) ([]Result, error) {
	mine := make([]*gathered[Item, Result], len(items))
	for i, item := range items {
		mine[i] = &gathered[Item, Result]{gone: ctx.Done(), item: item, done: make(chan struct{})}
	}
	if err := g.add(mine); err != nil {
		return nil, err
	}
	results := make([]Result, len(items))
	for i, m := range mine {
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if m.err != nil {
			return nil, m.err
		}
		results[i] = m.result
	}
	return results, nil
}

func (g *gatherer[Item, Result]) add(items []*gathered[Item, Result]) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting)+len(items) > maxWaiting {
		return ErrTooManyWaiting
	}
	g.waiting = append(g.waiting, items...)
	if !g.sending && len(g.waiting) > 0 {
		g.sending = true
		go g.run()
	}
	return nil
}

// run sends requests until nothing waits.
func (g *gatherer[Item, Result]) run() {
	for {
		batch := g.next()
		if batch == nil {
			return
		}
		items := make([]Item, len(batch))
		for i, b := range batch {
			items[i] = b.item
		}
		// Not the context of one caller, which others do not share.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		results, err := g.send(ctx, items)
		cancel()
		for i, b := range batch {
			if b.err = err; err == nil {
				b.result = results[i]
			}
			close(b.done)
		}
	}
}

// next takes the items that the next request sends, and drops those whose callers no longer wait. It returns nil if
// nothing waits.
func (g *gatherer[Item, Result]) next() (batch []*gathered[Item, Result]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for bytes := 0; len(g.waiting) > 0 && len(batch) < maxBatch; {
		first := g.waiting[0]
		select {
		case <-first.gone:
		default:
			if bytes += len(first.item) + 4; bytes > maxBytes {
				return batch
			}
			batch = append(batch, first)
		}
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
	g.sending = len(batch) > 0
	return batch
}
