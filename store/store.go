// Package store is the contract between the service and what keeps its data. Every store gives
// exactly the same answers; package storetest holds the suite that proves it.
//
// # What is kept
//
// A store holds namespaces; a namespace holds users; a user has one [lastseen.State]. Statuses are
// not stored, so a store knows nothing of thresholds: callers turn them into [lastseen.Range]s.
//
// # Promises of every method
//
//   - It may be called from many goroutines at once.
//   - Writes commute: whatever the order of arrival, a user ends in the greatest state asserted (see
//     [lastseen.Merge]). Repeating a write is harmless.
//   - A write that returned no error is in every later answer, through every replica.
//   - A write that failed with [ErrUnavailable], or whose context ended, may have happened or not, or
//     in part. Sending it again is safe.
//   - When the store cannot know the answer it returns an error, never an empty one: unknown is not
//     offline.
//   - Errors match one of the sentinels below under [errors.Is], or the context's error. Anything
//     else is a defect.
//   - Names and times are valid by the rules of package lastseen; the caller checks them. Slices
//     passed in are not kept or changed.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
)

// The ways in which a store fails. Callers see these; the cause is wrapped for the log.
var (
	// ErrUnavailable: the store cannot be reached, is not ready, or did not answer in time.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFull: the store has no room left. Reading still works.
	ErrFull = errors.New("store full")
	// ErrOverloaded: more is asked of the store than it can take now. Nothing was done.
	ErrOverloaded = errors.New("store overloaded")
	// ErrWrongType: the namespace's key holds something else than presence.
	ErrWrongType = errors.New("key holds another type")
	// ErrMismatch: the namespace was written with settings that this server does not have.
	ErrMismatch = errors.New("namespace has other settings")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store closed")
)

// Sighting is one assertion about a user, a ping or a leave, at a time.
type Sighting struct {
	User string
	At   lastseen.Instant
}

// Record is a user and their state.
type Record struct {
	User string
	lastseen.State
}

// ListQuery says which users to list, and from where on.
type ListQuery struct {
	Ranges []lastseen.Range // disjoint; whoever is in one of them is listed
	Order  Order
	After  *Record // list strictly after this place in the order; nil for the start
	Limit  int     // at most so many; at least 1
}

// NamespaceInfo describes a namespace that has been pinged.
type NamespaceInfo struct {
	Name   string
	Newest lastseen.Instant // the newest time stored in it; 0 if nobody is left in it
}

// MaxTrim is how many users one call of Trim removes at most, so that no call takes long.
const MaxTrim = 1000

// Store keeps who was last seen when.
type Store interface {
	// Ping records that each user was here. It returns the resulting states in the order given; a
	// user named twice has the same, final, state twice. A namespace exists from its first ping on.
	Ping(ctx context.Context, namespace string, batch []Sighting) ([]lastseen.State, error)

	// Leave records that each user went away, and answers as Ping does. A user never seen stays
	// unknown, with the zero state.
	Leave(ctx context.Context, namespace string, batch []Sighting) ([]lastseen.State, error)

	// Lookup returns the users' states in the order asked, the zero state for those never seen.
	Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error)

	// List returns the next users in the query's order. Fewer than the limit means that nobody is
	// left after them.
	//
	// Walking page by page, each page after the last record of the one before, users whose state
	// does not change are listed exactly once, whatever happens to others meanwhile. Newest first
	// lists nobody twice. The cost of a page does not grow with its depth.
	List(ctx context.Context, namespace string, q ListQuery) ([]Record, error)

	// Count returns how many users are in each range, in the order asked.
	Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error)

	// Newest returns the newest time stored in the namespace, by a ping or a leave; 0 if there is
	// nobody in it.
	Newest(ctx context.Context, namespace string) (lastseen.Instant, error)

	// Forget erases a user from every answer, at once and across a crash. Forgetting someone
	// unknown is no error.
	Forget(ctx context.Context, namespace, user string) error

	// Trim erases users last seen before the cutoff, present or left, at most MaxTrim of them. It
	// returns how many; call it again until it returns 0.
	Trim(ctx context.Context, namespace string, cutoff lastseen.Instant) (int, error)

	// Namespaces returns the namespaces that exist whose names come after the given one, bytewise
	// ascending, at most limit of them.
	Namespaces(ctx context.Context, after string, limit int) ([]NamespaceInfo, error)

	// Register makes namespaces exist before their first ping, as those that are configured do.
	// Those that exist are left as they are.
	Register(ctx context.Context, namespaces []string) error

	// DeleteNamespace erases a namespace and everyone in it, at once and across a crash. Deleting
	// one that does not exist is no error. It exists again from its next ping or Register on.
	DeleteNamespace(ctx context.Context, namespace string) error

	// Lease asks that, of all processes on this store, this one alone does the named work for the
	// given time, or goes on doing it. It reports whether that is granted; false means that another
	// one does it. The name is one that a namespace could have.
	Lease(ctx context.Context, name string, ttl time.Duration) (bool, error)

	// Now returns the time by the clock that all replicas of this store share. It never runs
	// backwards within a process.
	Now(ctx context.Context) (lastseen.Instant, error)

	// Ready returns nil when the store can take reads and writes, and says why when it cannot.
	Ready(ctx context.Context) error

	// Close finishes what was accepted and releases everything. Calls after it fail with ErrClosed;
	// closing again does nothing.
	Close() error
}
