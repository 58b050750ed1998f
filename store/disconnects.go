package store

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
)

// Disconnects lets one process have all processes close the connections of a user, or drop what they have not written
// yet about a namespace that is being deleted.
type Disconnects interface {
	// CloseConnections asks all processes on this store to close the connections of a user that were open at that
	// moment, by the store's clock. Asking again does it again. Without a user, no connection is closed; the processes
	// drop what they received before that moment in the namespace and have not written.
	CloseConnections(ctx context.Context, namespace, user string) error

	// Disconnects returns what was asked after a position, in order, each user of a namespace once, and the next
	// position. With an empty position it returns only the next one. After a failover it may return a disconnect again.
	// It forgets disconnects after DisconnectsKept. If the position is lost, so that other data may be lost as well, it
	// also returns the zero Disconnect. A store on a Redis Cluster notices only a loss of the disconnects.
	Disconnects(ctx context.Context, after DisconnectPosition) ([]Disconnect, DisconnectPosition, error)
}

const (
	// DisconnectsKept is how long a disconnect can be read. A process that could not read for longer misses it.
	DisconnectsKept = time.Hour
	// MaxDisconnects is the number of disconnects that are kept at most.
	MaxDisconnects = 100_000
)

// DisconnectPosition is a position among the disconnects. It is opaque outside the store.
type DisconnectPosition string

// Disconnect asks to close the connections of a user that were opened before a time, or, without a user, to drop what
// was received in the namespace before that time. The zero Disconnect reports that the store may have lost data.
type Disconnect struct {
	Namespace, User string
	At              lastseen.Instant // by the store's clock
}
