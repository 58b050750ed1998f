package store

import (
	"context"

	"github.com/lastseen/lastseen"
)

// Batcher is a store that takes batches for several namespaces in one call. This costs less than one call for each.
type Batcher interface {
	Store

	// PingBatches does for each batch what Ping does, and LookupBatches what Lookup does. Each batch has its own
	// result.
	PingBatches(ctx context.Context, batches []*Batch[Sighting])
	LookupBatches(ctx context.Context, batches []*Batch[string])

	// NodeOf returns, for one call about a namespace, a function that names the server behind the store that keeps a
	// user. Calls to one server then need not wait for another. The name is "" if there is only one server, or if it
	// is not known.
	NodeOf(namespace string) (of func(user string) string)
}

// Batch holds the sightings of pings, or the users to look up, of one namespace.
type Batch[T any] struct {
	Namespace string
	Items     []T
	States    []lastseen.State // the result: the states of Items, in their order
	Err       error            // why the batch failed; nil if it did not
}
