package observe

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// BenchmarkPing compares pings of callers side by side with and without metrics, on a real Redis and in a file. Rounds
// alternate, so that whatever else the machine does slows down both. The result is the throughput with metrics divided
// by the throughput without, once for each iteration: run it with -benchtime 20x.
func BenchmarkPing(b *testing.B) {
	o := coalesce.Options{Timeout: time.Minute}
	redis := stores.New(b, redisstore.Options{URL: redistest.Start(b)})
	measured := o
	measured.Observe = NewBatches(prometheus.NewRegistry(), coalesce.Pings, coalesce.Lookups)
	plain, with := coalesce.New(redis, o), coalesce.New(Batcher(redis, NewCalls()), measured)
	file := openFile(b)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("redis/callers=%d", callers), func(b *testing.B) { compare(b, plain, with, callers) })
	}
	b.Run("file/callers=1", func(b *testing.B) { compare(b, file, Store(file, NewCalls()), 1) })
}

// compare alternates rounds of pings on both stores.
func compare(b *testing.B, plain, with store.Store, callers int) {
	b.Helper()
	const pings = 20_000
	var spent [2]time.Duration
	for n := range b.N {
		for k := range 2 {
			which := (n + k) % 2 // so that neither is always the first
			begun := time.Now()
			pingSideBySide(b, []store.Store{plain, with}[which], callers, pings)
			spent[which] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "with/without")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N)/pings, "ns/ping")
}

func pingSideBySide(b *testing.B, s store.Store, callers, pings int) {
	b.Helper()
	failed := make(chan error, callers)
	for caller := range callers {
		go func() {
			batch := []store.Sighting{{User: fmt.Sprint("user", caller), At: 1}}
			var err error
			for n := caller; n < pings && err == nil; n += callers {
				_, err = s.Ping(context.Background(), "chat", batch)
			}
			failed <- err
		}()
	}
	for range callers {
		require.NoError(b, <-failed)
	}
}
