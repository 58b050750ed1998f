//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// crowd is clients that each hold a connection of a user, and connect again as the guide asks.
type crowd struct {
	servers []*server // that they connect to in turn
	stop    context.CancelFunc
	over    sync.WaitGroup

	mu      sync.Mutex
	current map[string]*socket // by user
	opened  int
	ends    map[string]int // of connections, and of attempts to connect
}

// startCrowd connects users, rate a second, until the test ends.
func startCrowd(t testing.TB, users []string, rate int, servers ...*server) *crowd {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &crowd{servers: servers, stop: stop, current: map[string]*socket{}, ends: map[string]int{}}
	t.Cleanup(func() {
		c.stop()
		c.over.Wait()
	})
	for i, user := range users {
		c.over.Go(func() {
			wait(ctx, time.Duration(i)*time.Second/time.Duration(rate))
			c.hold(ctx, i, user)
		})
	}
	return c
}

// wait waits for a duration, or until the context ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// hold keeps a connection of a user open until the context ends. After a bye it opens another one before it closes the
// one that has to end.
func (c *crowd) hold(ctx context.Context, i int, user string) {
	var old *socket
	end := func() {
		if old != nil {
			if !old.open() {
				c.count("cut off") // before there was another one
			}
			old.close()
			old.abandon()
		}
		old = nil
	}
	defer end()
	for attempt := i; ctx.Err() == nil; attempt++ {
		s, err := openSocket(ctx, socketOptions{
			url:   c.servers[attempt%len(c.servers)].url,
			hello: device(user, fmt.Sprintf("page-%d-%d", i, attempt), "web"),
		})
		if err != nil {
			c.count(endOf(err))
			wait(ctx, rand.N(2*time.Second))
			continue
		}
		c.mu.Lock()
		c.current[user] = s
		c.opened++
		c.mu.Unlock()
		end()
		if after, bye := c.stay(ctx, s); bye {
			old = s
			wait(ctx, after)
			continue
		}
		c.count(endOf(s.err))
		wait(ctx, rand.N(time.Second))
	}
}

// stay waits until a connection has ended, or until it gets a bye, and returns after which time to open another one.
func (c *crowd) stay(ctx context.Context, s *socket) (after time.Duration, bye bool) {
	for {
		select {
		case <-ctx.Done():
			return 0, true
		case <-s.ended:
			return 0, false
		case <-s.news:
		}
		if f, ok := s.find("bye"); ok {
			var bye struct {
				After int64 `json:"reconnect_after_ms"`
			}
			_ = json.Unmarshal(f.data, &bye) // 0 is right, too
			c.count("bye")
			return time.Duration(bye.After) * time.Millisecond, true
		}
	}
}

func (c *crowd) count(end string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[end]++
}

// awaitOpen waits until all users have a connection.
func (c *crowd) awaitOpen(t testing.TB, users int) {
	t.Helper()
	await(t, fmt.Sprintf("%d connections", users), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for _, s := range c.current {
			if s.open() {
				n++
			}
		}
		return n == users
	})
}

// reset returns how connections ended, and how many were opened, since the last call.
func (c *crowd) reset() (ends map[string]int, opened int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends, opened = c.ends, c.opened
	c.ends, c.opened = map[string]int{}, 0
	return ends, opened
}
