package calls

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// BenchmarkRinging lets 10,000 calls ring on one Redis, a thousand of which are due each second, and reports how late
// they end.
func BenchmarkRinging(b *testing.B) {
	const n = 10_000
	url := redistest.Start(b)
	var mu sync.Mutex
	var lags []time.Duration
	r := startReal(b, url)
	r.watch.late = func(lag time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		lags = append(lags, lag)
	}
	for round := 0; b.Loop(); round++ {
		began := time.Now()
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		each(all, func(i int) {
			due := 30*time.Second + time.Duration(i)*time.Millisecond
			_, err := r.Start(b.Context(), ns, store.NewCall{
				ID: fmt.Sprint(round, "-", i), From: fmt.Sprint("from-", i), To: fmt.Sprint("to-", i),
				Ring: due - time.Since(began), Quiet: quiet,
			})
			require.NoError(b, err)
		})
		b.ReportMetric(time.Since(began).Seconds(), "starting-s")
		require.Eventually(b, func() bool {
			return r.Stats().Reached[lastseen.Missed] == int64(n*(round+1))
		}, 5*time.Minute, 50*time.Millisecond)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(lags)
	b.ReportMetric(float64(len(lags)), "batches")
	b.ReportMetric(lags[len(lags)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(lags[len(lags)*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(lags[len(lags)-1].Seconds()*1000, "max-ms")
}
