package connections

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// discard is a store that costs next to nothing, so that a benchmark measures the registry.
type discard struct {
	store.Store
	elapsed              *time.Duration
	calls, pings, record int
}

func (s *discard) Now(context.Context) (lastseen.Instant, error) { return base.Add(*s.elapsed), nil }

func (s *discard) RecordDevices(
	_ context.Context, _ string, _ time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	s.calls++
	s.record += len(batch)
	return make([]lastseen.State, len(batch)), nil
}

func (s *discard) Ping(_ context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	s.calls++
	s.pings += len(batch)
	return make([]lastseen.State, len(batch)), nil
}

func (s *discard) Closings(context.Context, store.ClosingPlace) ([]store.Closing, store.ClosingPlace, error) {
	return nil, "here", nil
}

// benchmarkRegistry returns a registry with connections on which every client was heard, each at its own time.
func benchmarkRegistry(b *testing.B, n int) (*Registry, *discard, []*Connection) {
	elapsed := start
	s := &discard{elapsed: &elapsed}
	settings := newFakeStore().settings
	r := New(Options{
		Store: s, Settings: func(string) Settings { return settings }, Logger: slog.New(slog.DiscardHandler),
	})
	r.monotonic = func() time.Duration { return elapsed }
	connections := make([]*Connection, n)
	for i := range connections {
		c, err := r.Open(b.Context(), Opening{
			Namespace: ns, User: fmt.Sprint("user-", i), Device: "0123456789abcdef", Kind: lastseen.Web,
			Close: func(Reason) {},
		})
		require.NoError(b, err)
		connections[i] = c
	}
	return r, s, connections
}

// BenchmarkSecond measures a second of a registry whose clients are heard every 22 seconds, and the part of the
// evidence that is written as records, which cost the store more than plain pings.
func BenchmarkSecond(b *testing.B) {
	for _, n := range []int{20_000, 65_536} {
		b.Run(fmt.Sprint("connections=", n), func(b *testing.B) {
			r, s, connections := benchmarkRegistry(b, n)
			for i := range connections { // spread over a ping's period
				connections[i].wrote -= time.Duration(i) * 22 * time.Second / time.Duration(n)
			}
			second := 0
			s.calls, s.pings, s.record = 0, 0, 0
			for b.Loop() {
				for i := second % 22; i < n; i += 22 {
					connections[i].Heard()
				}
				second++
				for range 4 {
					*s.elapsed += tickEvery
					r.tick(b.Context())
				}
			}
			written := float64(s.pings + s.record)
			b.ReportMetric(written/float64(b.N), "written/op")
			b.ReportMetric(float64(s.record)/max(1, written), "records/written")
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Second)*100, "%core")
		})
	}
}

// BenchmarkHeard measures what each frame costs.
func BenchmarkHeard(b *testing.B) {
	r, _, connections := benchmarkRegistry(b, 1)
	r.monotonic = New(Options{}).monotonic
	b.ReportAllocs()
	for b.Loop() {
		connections[0].Heard()
	}
}

// BenchmarkMemory measures the memory of a connection, without that of its user's name.
func BenchmarkMemory(b *testing.B) {
	const n = 65_536
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, _, connections := benchmarkRegistry(b, n)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/connection")
		runtime.KeepAlive(r)
		runtime.KeepAlive(connections)
	}
}

// BenchmarkOpen measures how fast connections open that come back all at once.
func BenchmarkOpen(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	for name, open := range map[string]func() (store.Store, error){
		"file": func() (store.Store, error) {
			return filestore.Open(filestore.Options{Path: storetest.DataFile(b), Sync: time.Second, Logger: quiet})
		},
		"Redis": func() (store.Store, error) {
			s, err := redisstore.Open(redisstore.Options{URL: redistest.Start(b), Logger: quiet})
			if err != nil {
				return nil, err
			}
			return coalesce.New(s, coalesce.Options{}), nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := open()
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, s.Close()) })
			settings := newFakeStore().settings
			r := New(Options{Store: s, Settings: func(string) Settings { return settings }, Logger: quiet})
			var n atomic.Int64
			b.SetParallelism(256)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c, err := r.Open(b.Context(), Opening{
						Namespace: ns, User: fmt.Sprint("user-", n.Add(1)), Kind: lastseen.Web, Close: func(Reason) {},
					})
					require.NoError(b, err)
					c.Heard()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "opened/s")
		})
	}
}
