package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func openForBenchmark(b *testing.B, o Options) *Store {
	b.Helper()
	o.URL, o.Timeout, o.DialTimeout = redistest.Start(b), time.Minute, time.Minute
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := Open(o)
	require.NoError(b, err)
	s.hiddenSettles = 0
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// BenchmarkPingHidden measures pings in a namespace without the bit of hidden times and with it, while another user is
// hidden, and while one of the pinged users is; and Redis' CPU time.
func BenchmarkPingHidden(b *testing.B) {
	for _, kind := range []string{"without", "bit", "another", "one"} {
		for _, size := range []int{1, 32} {
			b.Run(kind+"/"+strconv.Itoa(size), func(b *testing.B) { benchmarkHidden(b, kind, size) })
		}
	}
}

func benchmarkHidden(b *testing.B, kind string, size int) {
	ctx, s := context.Background(), openForBenchmark(b, Options{Invisible: kind != "without"})
	now, err := s.Now(ctx)
	require.NoError(b, err)
	batch := make([]store.Sighting, size)
	for i := range batch {
		batch[i] = store.Sighting{User: fmt.Sprint("user", i), At: now}
	}
	_, err = s.Ping(ctx, "chat", batch)
	require.NoError(b, err)
	if user := map[string]string{"another": "x", "one": "user0"}[kind]; user != "" {
		_, err = s.SetAvailability(ctx, "chat", user, lastseen.Said{Availability: lastseen.Invisible}, now)
		require.NoError(b, err)
	}
	before, pings := redisCPU(b, s), 0
	for b.Loop() {
		now, _ = s.Now(ctx)
		pings += size
		for i := range batch {
			batch[i].At = now
		}
		if _, err := s.Ping(ctx, "chat", batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((redisCPU(b, s)-before)/float64(pings), "redis-µs/ping")
}

// BenchmarkDescribe measures lookups of 100 users, of whom none, every tenth or each says something.
func BenchmarkDescribe(b *testing.B) {
	for _, every := range []int{0, 10, 1} {
		b.Run(fmt.Sprint("every", every), func(b *testing.B) {
			ctx, s := context.Background(), openForBenchmark(b, Options{})
			now, err := s.Now(ctx)
			require.NoError(b, err)
			users := make([]string, 100)
			for i := range users {
				users[i] = fmt.Sprint("user", i)
				_, err = s.Ping(ctx, "chat", []store.Sighting{{User: users[i], At: now}})
				require.NoError(b, err)
				if every > 0 && i%every == 0 {
					_, err = s.SetAvailability(ctx, "chat", users[i], lastseen.Said{Availability: lastseen.Busy}, now)
					require.NoError(b, err)
				}
			}
			before := redisCPU(b, s)
			for b.Loop() {
				if _, _, err := s.Describe(ctx, "chat", users); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((redisCPU(b, s)-before)/float64(b.N), "redis-µs/lookup")
		})
	}
}
