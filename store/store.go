// Package store is the contract between the service and what keeps its data. Every store gives exactly the same
// results; package storetest holds the suite that proves it.
//
// # What is kept
//
// A store holds namespaces; a namespace holds users; a user has one [lastseen.State]. Statuses are not stored, so a
// store knows no thresholds: callers turn them into [lastseen.Range]s.
//
// # Promises of every method
//
//   - It may be called from many goroutines at once.
//   - Writes commute: whatever the order of arrival, a user ends in the greatest of the states written (see
//     [lastseen.Merge]). Repeating a write is harmless.
//   - A write that returned no error is in every later result, through every server. What a [ReplicaReader] reads from
//     replicas is the only exception.
//   - A write that failed with [ErrUnavailable], or whose context ended, may have happened, or not, or in part.
//     Sending it again is safe.
//   - A store that cannot know the result returns an error, never an empty result: unknown is not offline.
//   - Errors match one of the sentinels of this package under [errors.Is], or the context's error. Anything else is
//     a defect.
//   - Names and times are valid by the rules of package lastseen; the caller checks them. Slices passed in are not
//     kept or changed.
package store

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
)

// Store keeps when each user was last seen.
type Store interface {
	Writer
	Reader
	Lister
	Eraser
	Changes
	Devices
	Availabilities
	Contacts
	Calls
	Disconnects
	Signals
	Namespaces
	Leaser
	Notes
	Clock
	Secrets

	// Load returns how close the store is to its limits at this moment, from 0 to 1: how much of the time that a call
	// can wait, or of the room for calls that wait, is used. If it stays at 0.5 or more, callers make fewer calls. A
	// store that does not work is not loaded: fewer calls would not help it. Load is cheap and does not wait for the
	// store.
	Load() float64

	// Ready returns nil if the store can take reads and writes, and otherwise the reason.
	Ready(ctx context.Context) error

	// Close finishes the calls that were accepted and releases everything. Calls after it fail with ErrClosed;
	// closing again does nothing.
	Close() error
}

// Writer records pings and leaves.
type Writer interface {
	// Ping records that each user was here. It returns the resulting states in the order given; a user named twice
	// has the same, final, state twice.
	//
	// A time more than MaxAhead ahead of the store's own clock, read in the same call, is replaced by the time of
	// that clock: nothing is stored further ahead, whatever time the caller assumes.
	//
	// A namespace exists from its first ping or leave on. Creating one fails with ErrNamespaceLimit if the store holds
	// as many as allowed.
	Ping(ctx context.Context, namespace string, batch []PresenceEvent) ([]lastseen.State, error)

	// Leave records that each user went away, and returns the same as Ping. It also records users never seen before,
	// so that the order in which pings and leaves arrive does not matter.
	Leave(ctx context.Context, namespace string, batch []PresenceEvent) ([]lastseen.State, error)
}

// PresenceEvent is one ping or leave of a user at a time.
type PresenceEvent struct {
	User string
	At   lastseen.Instant
}

// MaxAhead is how far a write may be ahead of the store's own clock.
const MaxAhead = 5 * time.Second

// Bounded returns the time at which a write is recorded, given the time by the store's clock: its own time, or the
// clock's if its own is more than MaxAhead ahead.
func Bounded(at, now lastseen.Instant) lastseen.Instant {
	if at > now.Add(MaxAhead) {
		return now
	}
	return at
}

// Reader counts users. [Availabilities] looks them up by name.
type Reader interface {
	// Count returns the number of users in each range, in the order asked.
	Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error)

	// Newest returns the newest time stored in the namespace, by a ping or a leave; 0 if the namespace has no users.
	Newest(ctx context.Context, namespace string) (lastseen.Instant, error)
}

// Lister lists users page by page.
type Lister interface {
	// List returns the next users in the query's order. Fewer than the limit means that no more follow.
	//
	// Walking page by page, each page after the last record of the one before, lists users whose state does not
	// change exactly once, whatever happens to others. Newest first lists no user twice, except users that are
	// forgotten and seen again during the walk. The cost of a page does not grow with its depth.
	List(ctx context.Context, namespace string, q ListQuery) ([]Record, error)
}

// ListQuery selects the users to list, and where to start.
type ListQuery struct {
	Ranges []lastseen.Range // users in any of them are listed; they are disjoint
	Order  Order
	After  *Record // list strictly after this place in the order; nil for the start
	Limit  int     // the maximum number of users; at least 1
}

// Record is a user and their state.
type Record struct {
	User string
	lastseen.State
}

// Eraser deletes users.
type Eraser interface {
	// Forget deletes a user from every result, at once and across a crash. Forgetting an unknown user does nothing.
	Forget(ctx context.Context, namespace, user string) error

	// Trim deletes up to MaxTrim users, present or left, last seen longer ago than the query's age. The cutoff is
	// computed by the store's own clock, read in the same call. If that clock is more than MaxClockDrift away from
	// the query's Now, Trim deletes nothing and returns ErrClockMoved. Call it until it deletes none.
	Trim(ctx context.Context, namespace string, q TrimQuery) (TrimResult, error)
}

// MaxTrim is the largest number of users that one call of Trim deletes, so that no call takes long.
const MaxTrim = 1000

// TrimQuery selects the users that Trim deletes, or the owners whose contacts TrimContacts deletes.
type TrimQuery struct {
	Age time.Duration    // delete what was last seen or used longer ago, by the store's own clock; at least 1 ms
	Now lastseen.Instant // the time that the caller expects the store's clock to show
	All bool             // delete it even if this leaves the namespace, or a shard of it, without any
}

// TrimResult reports what Trim did.
type TrimResult struct {
	Deleted int  // at most MaxTrim
	Held    bool // users were kept because All is false, and the namespace or a shard of it would be empty without them
}

// Namespaces lists, creates and deletes namespaces.
type Namespaces interface {
	// Namespaces returns up to limit existing namespaces whose names come after the given one, bytewise ascending.
	Namespaces(ctx context.Context, after string, limit int) ([]NamespaceInfo, error)

	// Exist reports, for each of the names in the order given, whether the namespace exists.
	Exist(ctx context.Context, namespaces []string) ([]bool, error)

	// Register makes namespaces exist before their first ping. Namespaces that exist are not changed. The limit on
	// namespaces does not apply.
	Register(ctx context.Context, namespaces []string) error

	// RemoveEmpty removes a namespace that has no users, and reports whether it did. A namespace that is written to
	// at the same time continues to exist.
	RemoveEmpty(ctx context.Context, namespace string) (bool, error)

	// DeleteNamespace deletes a namespace and all its users, at once and across a crash. Deleting one that does not
	// exist does nothing. It exists again from its next ping or Register on.
	DeleteNamespace(ctx context.Context, namespace string) error
}

// NamespaceInfo describes a namespace that exists.
type NamespaceInfo struct {
	Name   string
	Newest lastseen.Instant // the newest time stored in it; 0 if it has no users
}

// Clock is the clock that all replicas of a store share.
type Clock interface {
	// Now returns the time: a reading of the clock, taken every few seconds, plus the monotonic time since. A
	// reading that differs by more than 1 s counts, forward or back and with a warning, once another reading has
	// confirmed it, a second later: a clock that is wrong for a moment changes nothing. A smaller difference is
	// spread over the time until the next reading, so that time neither stands still nor runs backwards. See package
	// store/clock.
	Now(ctx context.Context) (lastseen.Instant, error)
}

// Secrets keeps a secret for all processes that use a store.
type Secrets interface {
	// Secret returns random bytes, which the first call makes. They are the same for all processes, until the store
	// loses its data.
	Secret(ctx context.Context) ([32]byte, error)
}

// MaxClockDrift is how far the store's clock may be from [TrimQuery.Now], in either direction.
const MaxClockDrift = 2 * time.Second

// Batcher is a store that takes batches for several namespaces in one call. This costs less than one call for each.
type Batcher interface {
	Store

	// PingBatches does for each batch what Ping does, and LookupBatches what Describe does. Each batch has its own
	// result.
	PingBatches(ctx context.Context, batches []*Batch[PresenceEvent])
	LookupBatches(ctx context.Context, batches []*Batch[string])

	// NodeOf returns, for one call about a namespace, a function that names the server behind the store that keeps a
	// user. Calls to one server then need not wait for another. The name is "" if there is only one server, or if it
	// is not known.
	NodeOf(namespace string) (of func(user string) string)
}

// Batch holds the events of pings, or the users to look up, of one namespace.
type Batch[T any] struct {
	Namespace string
	Items     []T
	States    []lastseen.State // the result: the states of Items, in their order
	Details   []ItemDetails    // the result of a lookup: those of Items that have some, in their order
	Err       error            // why the batch failed; nil if it did not
}

// ItemDetails are the details of one of the items of a batch.
type ItemDetails struct {
	At int // the item's place
	Details
}
