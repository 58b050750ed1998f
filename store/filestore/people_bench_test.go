package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// describable returns a store of 100,000 users, and some of them say something.
func describable(b *testing.B, every int) *Store {
	b.Helper()
	s, err := Open(Options{Path: filepath.Join(b.TempDir(), "lastseen.db"), Sync: time.Hour, Logger: quiet()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	batch := make([]store.Sighting, 100_000)
	for n := range batch {
		batch[n] = store.Sighting{User: benchUser(n), At: base}
	}
	_, err = s.Ping(context.Background(), "chat", batch)
	require.NoError(b, err)
	for n := 0; every > 0 && n < len(batch); n += every {
		s.mu.Lock()
		s.index.say("chat", benchUser(n), lastseen.Said{
			Availability: lastseen.Busy, Note: fmt.Sprint("in a meeting with ", n), Until: base + lastseen.Instant(n),
		})
		s.mu.Unlock()
	}
	return s
}

// BenchmarkDescribe looks up 100 users. None, every tenth, or all of them say something. It reports the median time of
// Lookup divided by that of Describe.
func BenchmarkDescribe(b *testing.B) {
	ids := make([]string, 100_000)
	for n := range ids {
		ids[n] = benchUser(n)
	}
	for _, every := range []int{0, 10, 1} {
		b.Run(fmt.Sprint("every=", every), func(b *testing.B) {
			s, users := describable(b, every), make([]string, 100)
			var lookups, describes []time.Duration
			for b.Loop() {
				for i := range users { // every tenth of them is every tenth of all
					users[i] = ids[rand.IntN(len(ids)/10)*10+i%10]
				}
				begun := time.Now()
				_, err := s.Lookup(context.Background(), "chat", users)
				lookups = append(lookups, time.Since(begun))
				require.NoError(b, err)
				for i := range users {
					users[i] = ids[rand.IntN(len(ids)/10)*10+i%10]
				}
				begun = time.Now()
				_, _, err = s.Describe(context.Background(), "chat", users)
				describes = append(describes, time.Since(begun))
				require.NoError(b, err)
			}
			slices.Sort(lookups)
			slices.Sort(describes)
			lookup, describe := lookups[len(lookups)/2], describes[len(describes)/2]
			b.ReportMetric(float64(lookup.Nanoseconds()), "ns/Lookup")
			b.ReportMetric(float64(describe.Nanoseconds()), "ns/Describe")
			b.ReportMetric(float64(lookup)/float64(describe), "Lookup/Describe")
			b.ReportMetric(0, "ns/op")
		})
	}
}
