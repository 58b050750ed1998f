package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
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

// halfAnswer says that it is longer than it is.
func halfAnswer(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("{"))
}

func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// TestRepeats: what is safe to repeat is repeated, and not before the server wants.
func TestRepeats(t *testing.T) {
	const problem = `{"status":503,"code":"store_unavailable","detail":"…","request_id":"r"}`
	const overloaded = `{"status":503,"code":"overloaded","detail":"…","request_id":"r"}`
	fine := answer(200, "", `{"user":"alice","status":"green"}`)
	ping := func(c *Client) error { _, err := c.PingUser(t.Context(), "chat", "alice", Ping{}); return err }
	disconnect := func(c *Client) error { return c.CloseConnections(t.Context(), "chat", "alice") }
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
		"closing without an answer":       {disconnect, []func(http.ResponseWriter){cut, fine}, 1, false},
		"an answer that breaks off":       {ping, []func(http.ResponseWriter){halfAnswer, fine}, 2, true},
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
	var sent [][]string
	g := gatherer[string, string]{send: func(_ context.Context, items []string) ([]string, error) {
		sent = append(sent, items)
		if len(sent) == 1 {
			close(began)
			<-goOn
		}
		return items, nil
	}}
	results := make(chan bool)
	do := func(i int) {
		r, err := g.do(t.Context(), strconv.Itoa(i))
		results <- err == nil && r[0] == strconv.Itoa(i)
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
	_, err := g.do(gone, "gone")
	require.ErrorIs(t, err, context.Canceled)
	_, err = g.do(t.Context(), make([]string, maxWaiting)...)
	require.ErrorIs(t, err, ErrTooManyWaiting)
	close(goOn)
	for range maxBatch + 2 {
		require.True(t, <-results, "the result of another")
	}
	require.Len(t, sent, 3)
	require.Len(t, sent[1], maxBatch)
	require.Len(t, sent[2], 1)

	// A batch is at most as long as a server takes.
	long := make([]string, 20)
	for i := range long {
		long[i] = strings.Repeat("a", maxBytes/10)
	}
	_, err = g.do(t.Context(), long...)
	require.NoError(t, err)
	for _, batch := range sent[3:] {
		require.Less(t, len(strings.Join(batch, "")), maxBytes)
	}
}

// TestNextSkipsThoseWhoLeft: however much those had who no longer wait, the others are sent.
func TestNextSkipsThoseWhoLeft(t *testing.T) {
	left := make(chan struct{})
	close(left)
	g := gatherer[string, string]{}
	for range 11 {
		g.waiting = append(g.waiting, &gathered[string, string]{gone: left, item: strings.Repeat("a", maxBytes/10)})
	}
	g.waiting = append(g.waiting, &gathered[string, string]{item: "alice"})
	batch := g.next()
	require.Len(t, batch, 1)
	require.Equal(t, "alice", batch[0].item)
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
	all, err := cache.Lookup(t.Context(), "alice")
	require.NoError(t, err)
	require.Equal(t, time.Second, all[0].ValidFor(), "what is left of 3 seconds")
	cache.keep([]Presence{{User: "carol"}, {User: "dave"}}, now)
	require.Len(t, cache.known, 2)
}

// TestCacheServesNothingLate: an answer that takes longer than MaxAge makes what was known before too old.
func TestCacheServesNothingLate(t *testing.T) {
	now, took := time.Now(), time.Duration(0)
	late := func(w http.ResponseWriter) {
		now = now.Add(took)
		answer(200, "", `{"as_of":"2026-01-01T00:00:00Z","users":[
			{"user":"alice","status":"green","valid_until":"2026-01-01T00:01:00Z"},{"user":"bob","status":"grey"}]}`)(w)
	}
	c, _, requests := scripted(t, late)
	cache := c.Cache("chat", CacheOptions{})
	cache.now = func() time.Time { return now }
	_, err := cache.Lookup(t.Context(), "alice")
	require.NoError(t, err)
	took = 6 * time.Second
	all, err := cache.Lookup(t.Context(), "alice", "bob")
	require.NoError(t, err)
	require.Equal(t, time.Minute, all[0].ValidFor())
	require.EqualValues(t, 3, requests.Load())
}

// TestStopWaits: the leave is sent after the ping in progress has ended.
func TestStopWaits(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var order []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if what == "ping" {
			close(began)
			<-goOn
		}
		order = append(order, what)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	c, err := New(server.URL, Options{})
	require.NoError(t, err)
	p := c.StartPinger("chat", "alice", PingerOptions{})
	<-began
	stopped := make(chan error)
	go func() { stopped <- p.Stop(t.Context()) }()
	<-p.stopping
	close(goOn)
	require.NoError(t, <-stopped)
	require.Equal(t, []string{"ping", "leave"}, order)
}

// TestRosterKnows: only what was sent, or must have been, and only while changes arrive.
func TestRosterKnows(t *testing.T) {
	now := time.Now()
	r := Roster{now: func() time.Time { return now }}
	knows := func(user string, status lastseen.Status, want bool) {
		t.Helper()
		p, known := r.Get(user)
		require.Equal(t, status, p.Status)
		require.Equal(t, want, known)
	}
	green := []Presence{{User: "alice", Status: lastseen.Green, LastSeen: now}}
	knows("alice", lastseen.Grey, false)
	r.Apply(Changes{Users: green, everyone: true}, nil) // after a cursor
	knows("alice", lastseen.Green, true)
	knows("bob", lastseen.Grey, false)
	r.Apply(Changes{Users: green, everyone: true, Reset: true, More: true}, nil)
	knows("bob", lastseen.Grey, false)
	r.Apply(Changes{everyone: true}, nil)
	knows("bob", lastseen.Grey, true)
	r.Apply(Changes{Users: []Presence{{User: "alice", Status: lastseen.Grey}}, everyone: true}, nil) // deleted
	users, known := r.All()
	require.Empty(t, users)
	require.True(t, known)

	now = now.Add(silence)
	knows("bob", lastseen.Grey, false)
	r.Apply(Changes{}, io.ErrUnexpectedEOF)
	knows("bob", lastseen.Grey, false)
	r.Apply(Changes{Users: green, Reset: true}, nil) // of named users
	knows("alice", lastseen.Green, true)
	knows("bob", lastseen.Grey, false)
}
