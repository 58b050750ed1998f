package storetest

import (
	"context"

	"github.com/lastseen/lastseen/store"
)

// OneByOne is a store that takes batches, with a call for each.
type OneByOne struct{ store.Store }

// PingBatches implements [store.Batcher].
func (s OneByOne) PingBatches(ctx context.Context, batches []*store.Batch[store.Sighting]) {
	for _, b := range batches {
		b.States, b.Err = s.Ping(ctx, b.Namespace, b.Items)
	}
}

// LookupBatches implements [store.Batcher].
func (s OneByOne) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	for _, b := range batches {
		var details map[string]store.Details
		b.States, details, b.Err = s.Describe(ctx, b.Namespace, b.Items)
		for at, user := range b.Items {
			if d, some := details[user]; some {
				b.Details = append(b.Details, store.ItemDetails{At: at, Details: d})
			}
		}
	}
}

// NodeOf implements [store.Batcher]: all users are on one node.
func (OneByOne) NodeOf(string) (of func(user string) string) {
	return func(string) string { return "" }
}
