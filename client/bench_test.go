package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/client"
	"github.com/lastseen/lastseen/internal/testserver"
)

// BenchmarkPages shows pages with the avatars of 50 of 5,000 users: each page with a request of its own, with a batch,
// and with a cache. requests/page says what the server has to do.
func BenchmarkPages(b *testing.B) {
	s := testserver.Start(b)
	counter := &requests{RoundTripper: &http.Transport{MaxIdleConnsPerHost: 64}}
	c, err := client.New(s.URL, client.Options{HTTP: &http.Client{Transport: counter}})
	require.NoError(b, err)
	everyone := make([]string, 5000)
	pings := make([]client.Event, len(everyone))
	for i := range everyone {
		everyone[i] = fmt.Sprintf("user-%d", i)
		pings[i].User = everyone[i]
	}
	_, err = c.RecordPings(b.Context(), "chat", pings)
	require.NoError(b, err)
	batch, cache := c.Batch("chat"), c.Cache("chat", client.CacheOptions{})
	for name, lookup := range map[string]func(context.Context, ...string) ([]client.Presence, error){
		"alone": func(ctx context.Context, users ...string) ([]client.Presence, error) {
			list, err := c.LookupUsers(ctx, "chat", users, client.Evaluate{})
			return list.Users, err
		},
		"batch": batch.Lookup,
		"cache": cache.Lookup,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(32)
			before := counter.n.Load()
			b.RunParallel(func(pb *testing.PB) {
				page := make([]string, 50)
				for pb.Next() {
					for i := range page {
						page[i] = everyone[rand.IntN(len(everyone))]
					}
					if _, err := lookup(b.Context(), page...); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(counter.n.Load()-before)/float64(b.N), "requests/page")
		})
	}
}
