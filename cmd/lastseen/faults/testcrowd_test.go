//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// firstPause is the longest pause before the first attempt to connect again.
	firstPause = time.Second
	// longestPause is the longest pause between attempts.
	longestPause = 30 * time.Second
	// cutOff is the end of a connection before its client, who was asked to connect again, had another one.
	cutOff = "cut off"
	// crowdAddresses is from how many addresses of this machine a crowd connects: proxies limit the connections of one.
	crowdAddresses = 32
)

// crowd is clients that each hold a connection of a user, and connect again as the guide asks.
type crowd struct {
	urls    []string // of servers that they connect to in turn
	clients []*http.Client
	grace   time.Duration // that they ask for; 0 for none
	stop    context.CancelFunc
	over    sync.WaitGroup

	mu      sync.Mutex
	current map[string]*socket // by user
	opened  int
	ends    map[string]int // of connections, and of attempts to connect
	begun   []time.Time    // of connections
}

// startCrowd connects users, rate a second, until the test ends.
func startCrowd(t testing.TB, users []string, rate int, urls ...string) *crowd {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &crowd{urls: urls, stop: stop, current: map[string]*socket{}, ends: map[string]int{}}
	for i := range crowdAddresses {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}}
		c.clients = append(c.clients, &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}})
	}
	t.Cleanup(c.end)
	for i, user := range users {
		c.over.Go(func() {
			if wait(ctx, time.Duration(i)*time.Second/time.Duration(rate)) {
				c.hold(ctx, i, user)
			}
		})
	}
	return c
}

// numbered returns names of n users.
func numbered(name string, n int) (users []string) {
	for i := range n {
		users = append(users, fmt.Sprintf("%s-%d", name, i))
	}
	return users
}

// wait reports whether the context lasted for a duration.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// end closes all connections, and waits for it.
func (c *crowd) end() {
	c.stop()
	c.over.Wait()
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
}

// hold keeps a connection of a user open until the context ends. After a bye it opens another one before it closes the
// one that has to end.
func (c *crowd) hold(ctx context.Context, i int, user string) {
	var old *socket
	defer func() {
		if old != nil {
			old.abandon()
		}
	}()
	for attempt, failures := i, 0; ctx.Err() == nil; attempt++ {
		s, err := openSocket(ctx, c.options(attempt, i, user))
		if err != nil {
			failures++
			c.count(ctx, endOf(err))
			wait(ctx, pauseAfter(failures))
			continue
		}
		failures = 0
		c.note(user, s)
		if old != nil {
			if !old.open() {
				c.count(ctx, cutOff)
			}
			old.close()
			old.abandon()
			old = nil
		}
		if c.stay(ctx, s) {
			old = s
			continue
		}
		c.count(ctx, endOf(s.err))
		wait(ctx, pauseAfter(1))
	}
}

// options returns how a client connects, to the servers in turn.
func (c *crowd) options(attempt, i int, user string) socketOptions {
	hello := device(user, fmt.Sprintf("page-%d-%d", i, attempt), "web")
	if c.grace > 0 {
		hello = hello.with("grace_ms", c.grace.Milliseconds())
	}
	return socketOptions{
		url: c.urls[attempt%len(c.urls)], hello: hello, client: c.clients[i%len(c.clients)],
	}
}

// pauseAfter returns how long a client waits after failures: with full jitter, and longer after each.
func pauseAfter(failures int) time.Duration {
	most := longestPause
	if failures < 6 {
		most = firstPause << (failures - 1)
	}
	return rand.N(most)
}

// stay waits until a connection has ended, or until it is time to open another one after a bye, which it reports.
func (c *crowd) stay(ctx context.Context, s *socket) (bye bool) {
	for {
		select {
		case <-ctx.Done():
			return true
		case <-s.ended:
			return false
		case <-s.news:
		}
		if f, ok := s.find("bye"); ok {
			var bye struct {
				After int64 `json:"reconnect_after_ms"`
			}
			_ = json.Unmarshal(f.data, &bye) // 0 is right, too
			c.count(ctx, "bye")
			wait(ctx, time.Duration(bye.After)*time.Millisecond)
			return true
		}
	}
}

func (c *crowd) count(ctx context.Context, end string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil {
		c.ends[end]++
	}
}

func (c *crowd) note(user string, s *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current[user] = s
	c.opened++
	c.begun = append(c.begun, time.Now())
}

// open returns how many users have a connection now.
func (c *crowd) open() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.current {
		if s.open() {
			n++
		}
	}
	return n
}

// awaitOpen waits until all users have a connection.
func (c *crowd) awaitOpen(t testing.TB, users int) {
	t.Helper()
	awaitLong(t, fmt.Sprintf("%d connections", users), func() bool { return c.open() == users })
}

// awaitLong is await for what takes minutes with thousands of clients.
func awaitLong(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after minutes still waiting for: %s", what)
		}
	}
}

// reset returns how connections ended, and how many began within a second at most, since the last call.
func (c *crowd) reset() (ends map[string]int, opened, fastest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends, opened, fastest = c.ends, c.opened, mostWithin(c.begun, time.Second)
	c.ends, c.opened, c.begun = map[string]int{}, 0, nil
	return ends, opened, fastest
}

// mostWithin returns the largest number of times in any period of a length.
func mostWithin(times []time.Time, length time.Duration) (most int) {
	slices.SortFunc(times, time.Time.Compare)
	first := 0
	for i := range times {
		for times[i].Sub(times[first]) >= length {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
