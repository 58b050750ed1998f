package store

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
)

// The errors of a changes feed.
var (
	// ErrNoFeed means that the namespace cannot have a changes feed, as long as settings or rights do not change.
	ErrNoFeed = errors.New("the namespace has no changes feed")
	// ErrNotRecorded means that the changes of the namespace are not recorded now. RecordChanges begins that once the
	// namespace exists.
	ErrNotRecorded = errors.New("changes are not recorded")
)

// Changes is the changes feed of each namespace: what becomes different in what readers are told about its users, in
// order.
//
// # What is a change
//
// The feed has a watermark, an instant that never goes back while the feed exists. A user's published presence is the
// status by the feed's thresholds at the watermark, and whether the user left. A user who was never seen is grey.
//
//   - A write (Ping, Leave) that changes the published presence appends one entry for the user, atomically with the
//     write. A write that changes the time alone appends nothing.
//   - Time also changes presences: AdvanceChanges moves the watermark, and appends one entry for each user who turned
//     yellow or grey.
//   - A call that changes contacts of an owner appends, in the same step, an entry with Contacts for the owner. It says
//     nothing about presences.
//   - Forget of a known user appends an entry with the zero state, whatever was published. Earlier entries of that
//     user must not be shown any more.
//   - Trim appends nothing. It deletes only users who are published as grey by their age: while there is a feed, its
//     cutoff is not later than the watermark less the yellow threshold.
//   - DeleteNamespace ends the feed. So does a restart of a store that keeps it in memory.
//
// So the entries of one user that are not of contacts alternate: each differs from the one before it in status or left,
// except the entry of a user who is forgotten.
//
// # Positions
//
// A position is between two entries of a feed. Reading on from a position either returns exactly the entries after it,
// none missing and none twice, or reports a reset, whatever happened in between: expiry, deletion, a failover to a
// server that lost the end, a clock that was set back. A snapshot has the positions that fit it: reading on from there
// returns what changed since the snapshot.
//
// # How long entries are kept
//
// For ChangesKept, but not more than MaxChanges of them in each shard. A feed ends by itself ChangesKept after the last
// RecordChanges.
type Changes interface {
	// RecordChanges has the changes of a namespace recorded, with these thresholds, from now on until ChangesKept after
	// the last call. It returns ErrNoFeed if the namespace cannot have a feed, and ErrNotRecorded if the namespace does
	// not exist: reading must not make state. If a feed exists, its thresholds stay: see AdvanceChanges.
	RecordChanges(ctx context.Context, namespace string, t lastseen.Thresholds) error

	// ReadChanges reads, for each of the reads, the entries after its positions. Each read has its own result.
	ReadChanges(ctx context.Context, reads []*ChangesRead)

	// SnapshotChanges returns the published presences of users, in the order asked, and the positions that fit them. It
	// returns ErrNotRecorded without a feed. It is for at most MaxWatched users.
	SnapshotChanges(ctx context.Context, namespace string, users []string) (Snapshot, error)

	// ScanUsers returns some users of a namespace, or none, and the position after them: "" at the end, and to begin.
	// The limit is about how many it returns at most; large ones are reduced, so that each call takes at most some
	// milliseconds of the store. A user who is known from the first call of a scan to the last is returned at least
	// once, whatever happens to others; those may be returned or not. If that is no longer certain at a position, as
	// after a failover, enough of the scan is repeated; from a position that is not valid, all of it.
	ScanUsers(
		ctx context.Context, namespace string, after Position, limit int,
	) (users []string, next Position, err error)

	// AdvanceChanges moves, for each of the advances, the watermark towards its Now, and appends the users who turn
	// yellow or grey until then, about MaxAdvance of them in each shard. Each advance has its own result. Of several
	// processes that advance one feed, the one that advanced it last continues; another takes over when the watermark
	// is AdvanceTakeover behind the store's clock. If its thresholds differ from the feed's, it then restarts the feed.
	//
	// The feed restarts, which readers see as a reset, when the watermark is further ahead of the store's clock than
	// MaxAhead or half the green threshold, or when more users turn yellow or grey than could be kept.
	AdvanceChanges(ctx context.Context, advances []*ChangesAdvance)
}

const (
	// ChangesKept is how long entries are kept, and how long a feed exists after the last RecordChanges.
	ChangesKept = 10 * time.Minute
	// MaxChanges is the number of entries, in each shard, that are kept at most.
	MaxChanges = 1_000_000
	// MaxChangesRead is the largest limit of one read.
	MaxChangesRead = 1000
	// MaxWatched is the number of users of a snapshot at most.
	MaxWatched = 5000
	// MaxAdvance is the number of users who turn yellow or grey in each shard in one call of AdvanceChanges, unless
	// more of them do in the same millisecond.
	MaxAdvance = 250
	// MaxAdvanceInstant is the number of users that may turn yellow or grey in the same millisecond, in each shard. If
	// there are more, the feed restarts.
	MaxAdvanceInstant = 10_000
	// AdvanceTakeover is how far the watermark is behind before another process advances it.
	AdvanceTakeover = 3 * time.Second
	// AdvanceTakeoverOthers is the same for a process with other thresholds.
	AdvanceTakeoverOthers = 10 * time.Second
)

// Position is between two entries in one shard's part of a feed. It is opaque outside the store, safe in any text, and
// no secret. Stores check positions as untrusted input: an unknown one is a reset.
type Position string

// Published is what readers of a feed are told about a user.
type Published struct {
	lastseen.State // at the change
	Status         lastseen.Status
	// Details are those at the watermark: nothing that ended, and a grey user is neither idle nor in a call.
	// InCallUntil is 0 or MaxInstant: what only moves the end is not published.
	Details
}

// Same reports whether readers would see no change from one to the other: only the time differs.
func (p Published) Same(other Published) bool {
	return p.Status == other.Status && p.Left == other.Left && p.Details == other.Details
}

// Publish returns a state and details as published at a watermark.
func Publish(t lastseen.Thresholds, s lastseen.State, d Details, watermark lastseen.Instant) Published {
	status := t.Presence("", s, watermark).Status
	d.Availability = d.Availability.At(watermark)
	if status == lastseen.Grey {
		d.IdleSince = 0
	}
	if status != lastseen.Grey && d.InCallUntil > watermark {
		d.InCallUntil = lastseen.MaxInstant
	} else {
		d.InCallUntil = 0
	}
	return Published{State: s, Status: status, Details: d}
}

// Change is an entry of a feed.
type Change struct {
	User string
	Published
	WasStatus lastseen.Status  // published before
	WasLeft   bool             // published before
	Was       Details          // published before
	Contacts  bool             // the user's contacts changed; nothing of the user is known from the entry
	Recorded  lastseen.Instant // when the entry was appended, by the store's clock
	Shard     int              // that the entry is in; its index in Positions
	Position  Position         // of the entry: reading that shard on from here returns what follows
}

// Forgotten reports whether the entry says that the user has no state: earlier entries of the user do not count.
func (c Change) Forgotten() bool { return !c.Known() && !c.Contacts }

// ChangesRead asks for the entries of a namespace after some positions, and has the result.
type ChangesRead struct {
	Namespace string
	After     []Position // one for each shard; nil for the end of the feed
	Limit     int        // of entries, in each shard; 1 to MaxChangesRead

	// The result. After a reset, Positions are the end of the feed, and there are no Changes.
	Changes   []Change         // those of each shard in order; those of one user are in one shard
	Positions []Position       // after Changes
	Watermark lastseen.Instant // the feed is complete up to here once More is false: the earliest of the shards'
	More      bool             // a shard had Limit entries
	Reset     bool             // the entries after the positions cannot be told
	Err       error            // ErrNotRecorded, ErrNoFeed or any error of stores
}

// Snapshot is what was published at one moment in each shard.
type Snapshot struct {
	Users     []Published
	Positions []Position
	Watermark lastseen.Instant // the earliest of the shards'
}

// ChangesAdvance asks to move the watermark of a namespace, and has the result.
type ChangesAdvance struct {
	Namespace  string
	Thresholds lastseen.Thresholds
	Now        lastseen.Instant // the time by the store's clock; refused if more than MaxAhead ahead of a fresh reading

	// The result.
	Transitions int              // entries that were appended
	Lag         time.Duration    // of the transition that waited longest for this advance; 0 without any
	Begun       bool             // the feed restarted
	More        bool             // more users turn yellow or grey until Now: call again
	Elsewhere   bool             // another process advances this feed, or one of its shards
	Watermark   lastseen.Instant // the earliest of the shards'
	Err         error            // ErrNotRecorded or any error of stores
}
