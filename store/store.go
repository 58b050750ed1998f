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
	"fmt"
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
	// ErrMismatch means that the namespace is stored with settings other than this server's. Only a change of
	// settings helps.
	ErrMismatch = errors.New("namespace has other settings")
	// ErrNamespaceLimit means that the namespace does not exist and that the store holds as many as it may.
	ErrNamespaceLimit = errors.New("too many namespaces")
	// ErrClockMoved means that the store's clock is not where the caller of Trim expects it. Nothing was deleted.
	ErrClockMoved = errors.New("the store's clock moved")
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

// MaxTrim is the number of users that one call of Trim deletes at most, so that no call takes long.
const MaxTrim = 1000

// MaxAhead is how far a write may be ahead of the store's own clock.
const MaxAhead = 5 * time.Second

// MaxClockDrift is how far the store's clock may be from [TrimQuery.Now], in either direction.
const MaxClockDrift = 2 * time.Second

// TrimQuery says which users Trim deletes.
type TrimQuery struct {
	Age time.Duration    // delete users last seen longer ago than this, by the store's own clock; at least 1 ms
	Now lastseen.Instant // what the caller expects the store's clock to show
	All bool             // delete them also if nobody is left in the namespace (or a shard of it) afterwards
}

// CheckClock returns [ErrClockMoved] if the time by the store's clock is not where the query expects it.
func (q TrimQuery) CheckClock(now lastseen.Instant) error {
	if now < q.Now.Add(-MaxClockDrift) || now > q.Now.Add(MaxClockDrift) {
		return fmt.Errorf("%w: it shows %s, and %s was expected", ErrClockMoved, now, q.Now)
	}
	return nil
}

// Bounded returns the time at which a write is recorded, given the time by the store's clock: its own, unless that
// is more than MaxAhead ahead.
func Bounded(at, now lastseen.Instant) lastseen.Instant {
	if at > now.Add(MaxAhead) {
		return now
	}
	return at
}

// TrimResult says what Trim did.
type TrimResult struct {
	Deleted int  // at most MaxTrim
	Held    bool // users were kept because All is false, and the namespace or a shard of it would be empty without them
}

// Store keeps who was last seen when.
type Store interface {
	// Ping records that each user was here. It returns the resulting states in the order given; a
	// user named twice has the same, final, state twice.
	//
	// A time more than MaxAhead ahead of the store's own clock, read in the same call, is replaced by the time of
	// that clock: whatever the caller believes, nothing is stored further ahead.
	//
	// A namespace exists from its first ping or leave on. One that does not exist, in a store that holds as many
	// as it may, fails with ErrNamespaceLimit.
	Ping(ctx context.Context, namespace string, batch []Sighting) ([]lastseen.State, error)

	// Leave records that each user went away, and returns what Ping does. It is also recorded for users never
	// seen before, so that the order in which pings and leaves arrive does not matter.
	Leave(ctx context.Context, namespace string, batch []Sighting) ([]lastseen.State, error)

	// Lookup returns the users' states in the order asked, the zero state for those never seen.
	Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error)

	// List returns the next users in the query's order. Fewer than the limit means that nobody is
	// left after them.
	//
	// Walking page by page, each page after the last record of the one before, users whose state
	// does not change are listed exactly once, whatever happens to others meanwhile. Newest first
	// lists nobody twice, except users that are forgotten and seen again during the walk. The cost of a page does not grow with its depth.
	List(ctx context.Context, namespace string, q ListQuery) ([]Record, error)

	// Count returns how many users are in each range, in the order asked.
	Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error)

	// Newest returns the newest time stored in the namespace, by a ping or a leave; 0 if there is
	// nobody in it.
	Newest(ctx context.Context, namespace string) (lastseen.Instant, error)

	// Forget erases a user from every answer, at once and across a crash. Forgetting someone
	// unknown is no error.
	Forget(ctx context.Context, namespace, user string) error

	// Trim deletes up to MaxTrim users, present or left, last seen longer ago than the query's age. The cutoff is
	// reckoned by the store's own clock, which is read in the same call. When that clock is more than
	// MaxClockDrift away from the query's Now, nothing is deleted and the error is ErrClockMoved. Call it until
	// it deletes none.
	Trim(ctx context.Context, namespace string, q TrimQuery) (TrimResult, error)

	// RemoveEmpty makes a namespace without users cease to exist, and reports whether it did. One that is
	// written to meanwhile goes on existing.
	RemoveEmpty(ctx context.Context, namespace string) (bool, error)

	// Namespaces returns the namespaces that exist whose names come after the given one, bytewise
	// ascending, at most limit of them.
	Namespaces(ctx context.Context, after string, limit int) ([]NamespaceInfo, error)

	// Register makes namespaces exist before their first ping, as those that are configured do.
	// Those that exist are left as they are. The limit on namespaces does not apply.
	Register(ctx context.Context, namespaces []string) error

	// DeleteNamespace erases a namespace and everyone in it, at once and across a crash. Deleting
	// one that does not exist is no error. It exists again from its next ping or Register on.
	DeleteNamespace(ctx context.Context, namespace string) error

	// Lease asks that, of all processes on this store, this one alone does the named work for the
	// given time, or goes on doing it. It reports whether that is granted; false means that another
	// one does it. The name is one that a namespace could have.
	Lease(ctx context.Context, name string, ttl time.Duration) (bool, error)

	// Now returns the time by the clock that all replicas of this store share: a reading of it, taken every few
	// seconds, plus the monotonic time since. A new reading that differs by more than 1 s counts, forward or back
	// and with a warning, once another one has confirmed it, a second later: a clock that is wrong for a moment
	// changes nothing. A smaller difference is spread over the time until the next reading, so that time does
	// not stand still, nor run backwards. See package store/clock.
	Now(ctx context.Context) (lastseen.Instant, error)

	// Ready returns nil when the store can take reads and writes, and says why when it cannot.
	Ready(ctx context.Context) error

	// Close finishes what was accepted and releases everything. Calls after it fail with ErrClosed;
	// closing again does nothing.
	Close() error
}
