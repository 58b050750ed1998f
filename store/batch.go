package store

import (
	"context"

	"github.com/lastseen/lastseen"
)

// Batch is one of several batches that a store works off together: the sightings of pings, or the
// users to look up, of one namespace.
type Batch[T any] struct {
	Namespace string
	Items     []T
	States    []lastseen.State // the answer: those of Items, in their order
	Err       error            // why there is none
}

// Batcher is a store to which the batches of several namespaces can be given at once, which takes
// less than one call for each.
type Batcher interface {
	Store

	// PingBatches does for each group what Ping does, and LookupBatches what Lookup does. Each group has
	// its own outcome.
	PingBatches(ctx context.Context, groups []*Batch[Sighting])
	LookupBatches(ctx context.Context, groups []*Batch[string])

	// NodeOf tells, for one call about a namespace, the name of the server behind the store that keeps a
	// user, so that what goes to one of them does not have to wait for another. The name is "" if there
	// is but one server, or if that is not known.
	NodeOf(namespace string) (of func(user string) string)
}
