package coalesce_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// BenchmarkWait pings a real Redis with one replica, whose confirmation it waits for or not.
func BenchmarkWait(b *testing.B) {
	primary := redistest.StartProcess(b, "--repl-diskless-sync-delay", "0")
	redistest.StartReplica(b, primary)
	for _, callers := range []int{1, 64, 256} {
		for _, wait := range []int{0, 1} {
			b.Run(fmt.Sprintf("callers=%d/wait=%d", callers, wait), func(b *testing.B) {
				redis := openRedis(b, redisstore.Options{URL: primary.URL(), Wait: wait}, 10*time.Second)
				s := coalesce.New(redis, coalesce.Options{Timeout: 10 * time.Second})
				defer s.Close()
				var n atomic.Int64
				ping := func() error {
					user, at := fmt.Sprint("user", n.Add(1)%10_000), lastseen.InstantOf(time.Now())
					_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: user, At: at}})
					return err
				}
				require.Eventually(b, func() bool { return ping() == nil }, time.Minute, time.Millisecond)
				sideBySide(b, callers, ping)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pings/s")
			})
		}
	}
}
