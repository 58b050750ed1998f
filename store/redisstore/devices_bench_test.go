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

// BenchmarkRecordDevices measures the refresh of a record, for users with 1 and 3 devices, and Redis' CPU time. Compare
// it with BenchmarkPingFeed.
func BenchmarkRecordDevices(b *testing.B) {
	for _, devices := range []int{1, 3} {
		b.Run(strconv.Itoa(devices), func(b *testing.B) { benchmarkDevices(b, devices) })
	}
}

func benchmarkDevices(b *testing.B, devices int) {
	ctx := context.Background()
	s, err := Open(Options{
		URL: redistest.Start(b), Timeout: time.Minute, DialTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	defer s.Close()
	now, err := s.Now(ctx)
	require.NoError(b, err)
	const window = time.Hour
	batch := make([]store.DeviceSighting, 1024)            // smaller hashes are stored in a different way
	now -= 12 * lastseen.Instant(time.Hour.Milliseconds()) // pings are faster than time
	for d := range devices {
		for i := range batch {
			batch[i] = store.DeviceSighting{
				User: fmt.Sprint("user", i), ID: fmt.Sprint("device", d, "~abcdefgh"), Kind: lastseen.Web, At: now,
			}
		}
		_, err = s.RecordDevices(ctx, "chat", window, batch)
		require.NoError(b, err)
	}
	for _, size := range []int{1, 16, 512} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			before, pings := redisCPU(b, s), 0
			for b.Loop() {
				now++
				pings += size
				for i := range batch[:size] {
					batch[i].At = now
				}
				if _, err := s.RecordDevices(ctx, "chat", window, batch[:size]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((redisCPU(b, s)-before)/float64(pings), "redis-µs/ping")
		})
	}
}
