package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// benchUser returns one of a million IDs of 16 bytes.
func benchUser(n int) string { return fmt.Sprintf("%016x", uint64(n)*0x9E3779B97F4A7C15) }

// describable returns a store of 100,000 users, some of them with an availability.
func describable(b *testing.B, every int) *Store {
	b.Helper()
	s := open(b, Options{})
	batch := make([]store.PresenceEvent, 100_000)
	for n := range batch {
		batch[n] = store.PresenceEvent{User: benchUser(n), At: base}
	}
	_, err := s.Ping(context.Background(), "chat", batch)
	require.NoError(b, err)
	for n := 0; every > 0 && n < len(batch); n += every {
		s.tables.mu.Lock()
		s.tables.index.setAvailability("chat", benchUser(n), lastseen.AvailabilityState{
			Availability: lastseen.Busy, Note: fmt.Sprint("in a meeting with ", n), Until: base + lastseen.Instant(n),
		})
		s.tables.mu.Unlock()
	}
	return s
}

// BenchmarkDescribe looks up 100 users. None, every tenth, or all of them have an availability. It reports the median
// time.
func BenchmarkDescribe(b *testing.B) {
	ids := make([]string, 100_000)
	for n := range ids {
		ids[n] = benchUser(n)
	}
	for _, every := range []int{0, 10, 1} {
		b.Run(fmt.Sprint("every=", every), func(b *testing.B) {
			s, users := describable(b, every), make([]string, 100)
			var describes []time.Duration
			for b.Loop() {
				for i := range users { // every tenth of them is every tenth of all
					users[i] = ids[rand.IntN(len(ids)/10)*10+i%10]
				}
				begun := time.Now()
				_, _, err := s.Describe(context.Background(), "chat", users)
				describes = append(describes, time.Since(begun))
				require.NoError(b, err)
			}
			slices.Sort(describes)
			b.ReportMetric(float64(describes[len(describes)/2].Nanoseconds()), "ns/Describe")
			b.ReportMetric(0, "ns/op")
		})
	}
}
