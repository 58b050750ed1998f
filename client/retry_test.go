package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scripted returns a client of a server that answers as told, one answer after the other, and the waits of the client,
// which take no time. It is a fake, since no real server fails in this order.
func scripted(t *testing.T, answers ...func(http.ResponseWriter)) (*Client, *[]time.Duration, *atomic.Int64) {
	t.Helper()
	requests := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answers[min(int(requests.Add(1)), len(answers))-1](w)
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, Options{})
	require.NoError(t, err)
	var waits []time.Duration
	c.sleep = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return c, &waits, requests
}

func answer(status int, retryAfter, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// TestRepeats: what is safe to repeat is repeated, and not before the server wants.
func TestRepeats(t *testing.T) {
	const problem = `{"status":503,"code":"store_unavailable","detail":"…","request_id":"r"}`
	const overloaded = `{"status":503,"code":"overloaded","detail":"…","request_id":"r"}`
	fine := answer(200, "", `{"user":"alice","status":"green"}`)
	ping := func(c *Client) error { _, err := c.PingUser(t.Context(), "chat", "alice", Ping{}); return err }
	leave := func(c *Client) error { _, err := c.RecordLeave(t.Context(), "chat", "alice", Leave{}); return err }
	for name, test := range map[string]struct {
		do       func(*Client) error
		answers  []func(http.ResponseWriter)
		requests int
		succeeds bool
	}{
		"a ping without an answer":        {ping, []func(http.ResponseWriter){cut, fine}, 2, true},
		"a ping in an outage":             {ping, []func(http.ResponseWriter){answer(503, "3", problem), fine}, 2, true},
		"a ping behind a proxy":           {ping, []func(http.ResponseWriter){answer(502, "", "<html>"), fine}, 2, true},
		"a ping in a long outage":         {ping, []func(http.ResponseWriter){answer(503, "1", problem)}, 4, false},
		"a ping that is not allowed":      {ping, []func(http.ResponseWriter){answer(403, "", "{}"), fine}, 1, false},
		"a ping that has to wait long":    {ping, []func(http.ResponseWriter){answer(429, "60", "{}"), fine}, 1, false},
		"a leave without an answer":       {leave, []func(http.ResponseWriter){cut, fine}, 1, false},
		"a leave in an outage":            {leave, []func(http.ResponseWriter){answer(503, "3", problem), fine}, 1, false},
		"a leave that exceeds the rate":   {leave, []func(http.ResponseWriter){answer(429, "3", "{}"), fine}, 2, true},
		"a leave at an overloaded server": {leave, []func(http.ResponseWriter){answer(503, "3", overloaded), fine}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, waits, requests := scripted(t, test.answers...)
			err := test.do(c)
			require.Equal(t, test.succeeds, err == nil, err)
			require.EqualValues(t, test.requests, requests.Load())
			require.Len(t, *waits, test.requests-1)
		})
	}
	c, waits, _ := scripted(t, answer(503, "3", problem), fine)
	require.NoError(t, ping(c))
	require.GreaterOrEqual(t, (*waits)[0], 3*time.Second)

	// A leave that could not be sent is sent again.
	c, waits, _ = scripted(t, fine)
	c.base = "http://127.0.0.1:1"
	require.Error(t, leave(c))
	require.Len(t, *waits, 3)

	// It is not worth to wait beyond the caller's time.
	c, waits, _ = scripted(t, answer(503, "20", problem), fine)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.PingUser(ctx, "chat", "alice", Ping{})
	require.ErrorContains(t, err, "store_unavailable")
	require.Empty(t, *waits)
}

// TestGathers: what comes while a request is in progress is sent with the next one, but not if its caller has gone.
func TestGathers(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var sent [][]int
	g := gatherer[int, int]{send: func(_ context.Context, items []int) ([]int, error) {
		sent = append(sent, items)
		if len(sent) == 1 {
			close(began)
			<-goOn
		}
		return items, nil
	}}
	results := make(chan int)
	do := func(i int) {
		r, err := g.do(t.Context(), i)
		if err == nil {
			results <- r[0]
		}
	}
	go do(0)
	<-began
	for i := range maxBatch + 1 {
		go do(i + 1)
	}
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.waiting) == maxBatch+1
	}, time.Minute, time.Millisecond)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := g.do(gone, -1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = g.do(t.Context(), make([]int, maxWaiting)...)
	require.ErrorIs(t, err, ErrTooManyWaiting)
	close(goOn)
	sum := 0
	for range maxBatch + 2 {
		sum += <-results
	}
	require.Equal(t, (maxBatch+1)*(maxBatch+2)/2, sum)
	require.Len(t, sent, 3)
	require.Len(t, sent[1], maxBatch)
	require.Len(t, sent[2], 1)
}

// TestCacheForgets: a status is served for MaxAge, not past its end, and the number of users is bounded.
func TestCacheForgets(t *testing.T) {
	c, _, requests := scripted(t, answer(200, "", `{"as_of":"2026-01-01T00:00:00Z","users":[
		{"user":"alice","status":"green","valid_until":"2026-01-01T00:00:03Z"},{"user":"bob","status":"grey"}]}`))
	cache, now := c.Cache("chat", CacheOptions{MaxUsers: 2}), time.Now()
	cache.now = func() time.Time { return now }
	look := func(users ...string) int {
		t.Helper()
		before := requests.Load()
		all, err := cache.Lookup(t.Context(), users...)
		require.NoError(t, err)
		require.Len(t, all, len(users))
		return int(requests.Load() - before)
	}
	require.Equal(t, 1, look("alice", "bob"))
	require.Equal(t, 0, look("bob", "alice", "bob"))
	now = now.Add(3 * time.Second)
	require.Equal(t, 0, look("bob"))
	require.Equal(t, 1, look("alice"))
	now = now.Add(2 * time.Second)
	require.Equal(t, 1, look("bob"))
	cache.keep([]Presence{{User: "carol"}, {User: "dave"}}, now)
	require.Len(t, cache.known, 2)
}
