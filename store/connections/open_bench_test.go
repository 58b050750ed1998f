package connections

import (
	"fmt"
	"log/slog"
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
