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
)

// instant is a store that answers at once, or after a round trip: what is measured is the way to it and
// back.
type instant struct {
	store.Store
	roundTrip time.Duration
	saying    int // one of so many users has an availability; 0 for none
}

func (s instant) PingBatches(_ context.Context, batches []*store.Batch[store.PresenceEvent]) {
	time.Sleep(s.roundTrip)
	for _, b := range batches {
		b.States = make([]lastseen.State, len(b.Items))
		for i, event := range b.Items {
			b.States[i] = lastseen.State{At: event.At}
		}
	}
}

func (s instant) LookupBatches(_ context.Context, batches []*store.Batch[string]) {
	time.Sleep(s.roundTrip)
	for _, b := range batches {
		b.States = make([]lastseen.State, len(b.Items))
		for at := 0; s.saying > 0 && at < len(b.Items); at += s.saying {
			busy := store.Details{Availability: lastseen.AvailabilityState{Availability: lastseen.Busy}}
			b.Details = append(b.Details, store.ItemDetails{At: at, Details: busy})
		}
	}
}

func (instant) NodeOf(string) (of func(user string) string) { return func(string) string { return "" } }

func (instant) Close() error { return nil }

// BenchmarkPing has callers ping side by side, each one user at a time.
func BenchmarkPing(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		for _, roundTrip := range []time.Duration{0, 100 * time.Microsecond} {
			b.Run(fmt.Sprintf("callers=%d/roundtrip=%s", callers, roundTrip), func(b *testing.B) {
				var batches, members atomic.Int64
				s := coalesce.New(instant{roundTrip: roundTrip}, coalesce.Options{
					Observe: func(_ string, n int, _ time.Duration) { batches.Add(1); members.Add(int64(n)) },
				})
				defer s.Close()
				sideBySide(b, callers, func() error {
					_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: "alice", At: 1}})
					return err
				})
				b.ReportMetric(float64(members.Load())/float64(max(1, batches.Load())), "members/batch")
			})
		}
	}
}

// BenchmarkLookup has callers look up one user at a time.
func BenchmarkLookup(b *testing.B) {
	s := coalesce.New(instant{}, coalesce.Options{})
	defer s.Close()
	sideBySide(b, 64, func() error {
		_, _, err := s.Describe(context.Background(), "chat", []string{"alice"})
		return err
	})
}

// sideBySide shares b.N calls among callers.
func sideBySide(b *testing.B, callers int, call func() error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	failed := make(chan error, callers)
	for caller := range callers {
		go func() {
			var err error
			for n := caller; n < b.N && err == nil; n += callers {
				err = call()
			}
			failed <- err
		}()
	}
	for range callers {
		require.NoError(b, <-failed)
	}
}

// BenchmarkDescribe has callers look up 100 users at a time, of whom none or every tenth has an availability.
func BenchmarkDescribe(b *testing.B) {
	users := make([]string, 100)
	for i := range users {
		users[i] = fmt.Sprintf("user-%011d", i)
	}
	for _, saying := range []int{0, 10} {
		b.Run(fmt.Sprint("saying=", saying), func(b *testing.B) {
			s := coalesce.New(instant{saying: saying}, coalesce.Options{})
			defer s.Close()
			sideBySide(b, 64, func() error {
				_, _, err := s.Describe(context.Background(), "chat", users)
				return err
			})
		})
	}
}
