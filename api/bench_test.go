package api

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
)

// These benchmarks call the handler on the embedded store, without a network, so that what the code
// between them costs is seen.

const benchUsers = 100_000

// benchUser returns one of the user IDs, of 16 bytes.
func benchUser(n int) string { return fmt.Sprintf("%016x", uint64(n%benchUsers)*0x9E3779B97F4A7C15) }

// sink is a response writer that discards the response.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// bench is the handler with a store that holds the users.
type bench struct {
	b       testing.TB
	handler http.Handler
}

func newBench(b testing.TB, changes ...func(*Config)) *bench {
	b.Helper()
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(b.TempDir(), "lastseen.db"), Sync: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	now, err := s.Now(context.Background())
	require.NoError(b, err)
	batch := make([]store.Sighting, benchUsers)
	for n := range batch {
		batch[n] = store.Sighting{User: benchUser(n), At: now - lastseen.Instant(n%300_000)}
	}
	_, err = s.Ping(context.Background(), "chat", batch)
	require.NoError(b, err)
	c := Config{
		Store: s,
		Settings: Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
			PingInterval: 30 * time.Second,
		},
	}
	for _, change := range changes {
		change(&c)
	}
	return &bench{b: b, handler: New(c)}
}

// requests returns prepared requests, so that making them is not part of what is measured.
func (b *bench) requests(make func(n int) *http.Request) func() {
	requests := prepare(1000, make)
	w := &sink{header: http.Header{}}
	next := 0
	return func() {
		clear(w.header)
		b.handler.ServeHTTP(w, requests[next%len(requests)])
		require.Less(b.b, w.status, 300)
		next++
	}
}

func prepare(n int, make func(n int) *http.Request) (all []*http.Request) {
	for i := range n {
		all = append(all, make(i))
	}
	return all
}

// post returns a request about a user, without a body.
func post(n int, what string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, "/v1/namespaces/chat/users/"+benchUser(n*7919)+"/"+what, http.NoBody)
	if err != nil {
		panic(err)
	}
	return r
}

func minimalPing(n int) *http.Request {
	r := post(n, "ping")
	r.Header.Set("Prefer", "return=minimal")
	return r
}

// noOp returns a request that does not use the store.
func noOp(n int) *http.Request {
	r, err := http.NewRequest(http.MethodGet, "/v1/namespaces/"+benchUser(n*7919), http.NoBody)
	if err != nil {
		panic(err)
	}
	return r
}

func BenchmarkHandler(b *testing.B) {
	h := newBench(b)
	get := func(n int) *http.Request {
		r, err := http.NewRequest(http.MethodGet, "/v1/namespaces/chat/users/"+benchUser(n*7919), http.NoBody)
		require.NoError(b, err)
		return r
	}
	lookup := func(n int) *http.Request {
		users := make([]string, 100)
		for i := range users {
			users[i] = "user=" + benchUser(n*100+i*7919)
		}
		r, err := http.NewRequest(http.MethodGet, "/v1/namespaces/chat/lookup?"+strings.Join(users, "&"), http.NoBody)
		require.NoError(b, err)
		return r
	}
	list := func(int) *http.Request {
		r, err := http.NewRequest(http.MethodGet, "/v1/namespaces/chat/users", http.NoBody)
		require.NoError(b, err)
		return r
	}
	for _, c := range []struct {
		name string
		make func(int) *http.Request
	}{
		{"no-op", noOp},
		{"ping/minimal", minimalPing},
		{"ping", func(n int) *http.Request { return post(n, "ping") }},
		{"get", get},
		{"lookup of 100", lookup},
		{"page of 50", list},
	} {
		b.Run(c.name, func(b *testing.B) {
			serve := h.requests(c.make)
			b.ReportAllocs()
			for b.Loop() {
				serve()
			}
		})
	}
}

// TestPingAllocations checks that a ping allocates no more than row 13 of bench/RESULTS.md allows. What few requests
// need must cost the others nothing.
func TestPingAllocations(t *testing.T) {
	testenv.SkipWithRace(t, "pools drop what is put back at random")
	serve := newBench(t).requests(minimalPing)
	require.LessOrEqual(t, testing.AllocsPerRun(10_000, serve), 14.0)
}

// BenchmarkPingAllocations counts the allocations of a ping, from the router to the store. It is row 13 of
// bench/RESULTS.md.
func BenchmarkPingAllocations(b *testing.B) {
	h := newBench(b)
	for b.Loop() {
		b.ReportMetric(testing.AllocsPerRun(10_000, h.requests(minimalPing)), "ping-allocs/op")
	}
}

// withMetrics registers metrics nowhere else.
func withMetrics(c *Config) { c.Metrics = prometheus.NewRegistry() }

// BenchmarkMetrics compares pings with and without metrics: those of a client on a connection, and the handler alone.
func BenchmarkMetrics(b *testing.B) {
	without, with := newBench(b), newBench(b, withMetrics)
	b.Run("HTTP", func(b *testing.B) { comparePings(b, without.client(), with.client()) })
	b.Run("handler", func(b *testing.B) {
		comparePings(b, without.requests(minimalPing), with.requests(minimalPing))
	})
}

// comparePings alternates between both, so that what else the machine does affects both alike, and reports the median
// of the ratios.
func comparePings(b *testing.B, without, with func()) {
	b.Helper()
	const pings = 2000
	round := func(serve func()) float64 {
		began := time.Now()
		for range pings {
			serve()
		}
		return float64(time.Since(began)) / pings
	}
	var ratios, times []float64
	for b.Loop() {
		before, measured, after := round(without), round(with), round(without)
		ratios, times = append(ratios, (before+after)/2/measured), append(times, measured)
	}
	slices.Sort(ratios)
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], "ns/ping-with")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}

// client returns what sends pings on a connection of its own and reads the responses. It sends several at once, so that
// waking up the client and the server costs less than the ping.
func (b *bench) client() func() {
	const atOnce = 50
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.b, err)
	server := NewServer(b.handler, slog.New(slog.DiscardHandler))
	go server.Serve(listener)
	b.b.Cleanup(func() { server.Close() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(b.b, err)
	b.b.Cleanup(func() { conn.Close() })
	pings := prepare(20*atOnce, minimalPing)
	requests, responses, next := bufio.NewWriterSize(conn, 64<<10), bufio.NewReader(conn), 0
	return func() {
		pings[next%len(pings)].Host = "localhost"
		require.NoError(b.b, pings[next%len(pings)].Write(requests))
		next++
		if next%atOnce > 0 {
			return
		}
		require.NoError(b.b, requests.Flush())
		for range atOnce {
			response, err := http.ReadResponse(responses, nil)
			require.NoError(b.b, err)
			require.NoError(b.b, response.Body.Close())
			require.Equal(b.b, http.StatusNoContent, response.StatusCode)
		}
	}
}

// BenchmarkMiddleware measures what every request pays for limits, proxies and CORS, on a route that does not use
// the store.
func BenchmarkMiddleware(b *testing.B) {
	limits := func(c *Config) {
		c.Limits = limit.Limits{Caller: 1_000_000_000}
	}
	for _, c := range []struct {
		name   string
		set    func(*Config)
		header http.Header
	}{
		{"nothing", func(*Config) {}, nil},
		{"limits", limits, nil},
		{"limits behind a proxy", func(c *Config) {
			limits(c)
			c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}, http.Header{"X-Forwarded-For": {"198.51.100.1, 203.0.113.7"}}},
		{"CORS", allowing(app), http.Header{"Origin": {app}}},
		{"CORS, asked by no browser", allowing(app), nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			config := Config{Settings: Settings{}}
			c.set(&config)
			handler, w := New(config), &sink{header: http.Header{}}
			request, err := http.NewRequest(http.MethodGet, "/v1/namespaces/chat", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			request.Host = "127.0.0.1:8080"
			request.RemoteAddr = "192.0.2.1:4711"
			if c.header != nil {
				request.Header = c.header
			}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				handler.ServeHTTP(w, request)
			}
			if w.status != http.StatusOK {
				b.Fatal(w.status)
			}
		})
	}
}
