// Package feed follows the changes feeds of namespaces for one process. There is one follower for each namespace with
// watchers, however many they are: it reads the feed from the store a few times a second, keeps the newest entries in
// memory, and sends each watcher the changes of the users that it watches.
//
// A watcher gets the newest presence of its users, not every step: changes are merged, and the backlog of a slow
// watcher costs no more than the list of its users. No change is missed between two batches: if changes are unknown,
// the watcher gets a reset.
//
// A watcher needs no goroutine while nothing changes: it calls a function when there may be something to send. Which
// users it watches can be changed.
package feed

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Mode is when the changes of a namespace are recorded.
type Mode string

// The modes.
const (
	Auto Mode = "auto" // from the first watcher until store.ChangesKept after the last one
	On   Mode = "on"   // always
	Off  Mode = "off"  // never
)

// The errors of watchers, besides those of the store.
var (
	// ErrTooManyWatches means that this process watches the maximum number of users.
	ErrTooManyWatches = errors.New("too many users are watched")
	// ErrTooManyUsers is an ErrTooManyWatches: a watcher would watch more than store.MaxWatched users.
	ErrTooManyUsers = fmt.Errorf("%w: one watcher can watch %d", ErrTooManyWatches, store.MaxWatched)
	// ErrEveryone means that a watcher of everyone cannot change what it watches. Begin another watcher instead.
	ErrEveryone = errors.New("everyone is watched")
)

// Settings are those of a namespace.
type Settings struct {
	lastseen.Thresholds
	Mode Mode
}

// Options configures a hub. Store and Settings are required.
type Options struct {
	Store store.Store
	// Settings returns the current settings of a namespace. It is called often, by several goroutines.
	Settings func(namespace string) Settings
	// MaxWatches is the number of users that all watchers of this process may watch together; default 5,000,000. A
	// watcher of everyone counts as one.
	MaxWatches int
	Random     func() float64 // in [0, 1), for jitter; default math/rand/v2
	Logger     *slog.Logger   // default slog.Default()
	// Recorded is called for a namespace that is watched, about once a minute; default nil.
	Recorded func(namespace string)
	// Restarted is called when a feed that is followed begins again or was removed, since the store may have lost data;
	// for one that is new, not within a minute; default nil. The hub calls it while it holds locks: it must return at
	// once, and not use the hub.
	Restarted func(namespace string)
}

// Stats describes a hub at this moment, and since the start.
type Stats struct {
	Namespaces int // that are followed
	Watchers   int
	Watches    int // users watched by all watchers together
	Entries    int // kept in memory

	Resets int64 // of watchers, since the start
	Behind int64 // those of them that watchers of everyone got because they were too slow
	Flaps  int64 // how often a user of a namespace changed for the fifth time within a minute, since the start
}

// Query selects what to watch.
type Query struct {
	Users    []string         // at most store.MaxWatched; duplicates count once; none is valid: see [Watcher.Change]
	Everyone bool             // instead of Users
	After    []store.Position // continue from there; nil to begin with a snapshot
	// For Everyone. The snapshot has only users with one of some statuses, if there are any here; or there is none, and
	// the first batch has only positions.
	Statuses   []lastseen.Status
	NoSnapshot bool
	Reserved   bool // the caller counts users with [Hub.Reserve] itself
	// Wake is called when [Watcher.Next] may return something else than before; nil for a caller that polls. It is
	// called while the hub holds locks: it must return at once, and not use the hub. When the hub ends, a watcher that
	// has a time to wait is not woken.
	Wake func()
}

// Update is the newest presence of a user that is watched.
type Update struct {
	User string
	store.Published
	Recorded lastseen.Instant // when the newest change was appended, by the store's clock; 0 in snapshots
	// Was is what readers were told before the changes, without the time. Only watchers of everyone have it, and not
	// for users of a snapshot, of its pages, or of a reset.
	Was store.Published
}

// Batch is a set of updates for a watcher.
type Batch struct {
	// Users has each user once. In a snapshot or a reset it has all users watched, in the order of the query. If
	// everyone is watched, the snapshot is in several batches: the first one, and those that follow while they have
	// More. They have changes of other users as well.
	Users     []Update
	Snapshot  bool // this is the first batch of a query without positions
	Reset     bool // it replaces everything sent before: the changes since the positions are unknown
	Page      bool // it has users of a snapshot of everyone, if there are any
	More      bool // there are more changes already, or more pages
	AsOf      lastseen.Instant
	Positions []store.Position // of this batch: a query after them continues
}
