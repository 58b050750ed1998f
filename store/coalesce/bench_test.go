package coalesce_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
)

// instant is a store that answers at once: what is measured is the way to it and back.
type instant struct {
	store.Batcher
	saying int // one of so many users has an availability; 0 for none
}

func (s instant) LookupBatches(_ context.Context, batches []*store.Batch[string]) {
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
