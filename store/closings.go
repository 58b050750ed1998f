package store

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
)

// Closings lets one process have all processes close the connections of a user, or drop what they have not written
// yet about a namespace that is being deleted.
type Closings interface {
	// CloseConnections asks all processes on this store to close the connections of a user that were open at that
	// moment, by the store's clock. Asking again does it again. Without a user, no connection is closed; the processes
	// drop what they received before that moment in the namespace and have not written.
	CloseConnections(ctx context.Context, namespace, user string) error

	// Closings returns what was asked after a place, in order, each user of a namespace once, and the next place. The
	// empty place is the present: it returns nothing but the next place. It may return a closing again, after a
	// failover, and it forgets closings after ClosingsKept. If the place is lost, so that other data may be lost as
	// well, it also returns the zero Closing. A store on a Redis Cluster notices only a loss of the closings.
	Closings(ctx context.Context, after ClosingPlace) ([]Closing, ClosingPlace, error)
}

const (
	// ClosingsKept is how long a closing can be read. A process that could not read for longer misses it.
	ClosingsKept = time.Hour
	// MaxClosings is the number of closings that are kept at most.
	MaxClosings = 100_000
)

// ClosingPlace is a position among the closings. It is opaque outside the store.
type ClosingPlace string

// Closing asks to close the connections of a user that were opened before a time, or, without a user, to drop what was
// received in the namespace before that time. The zero Closing reports that the store may have lost data.
type Closing struct {
	Namespace, User string
	At              lastseen.Instant // by the store's clock
}
