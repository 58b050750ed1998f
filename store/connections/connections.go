// Package connections turns the connections that users hold open on this server into pings and leaves in the store.
// It knows nothing of the protocol: a transport reports what it receives, and closes a connection when it is asked to.
//
// Anything received on a connection is a heartbeat: it is recorded as a ping at the time at which it was received, in
// bulk. After a connection that disappears without closing come no heartbeats, which the thresholds turn into a status.
//
// # Time
//
// When something was received is a monotonic time. It becomes a time by the store's clock when it is written: the
// clock's time at that moment less the age. So a clock that is set neither stops heartbeats nor moves them into the
// future.
package connections

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	tickEvery  = 250 * time.Millisecond // what waited and is due is written
	pollEvery  = 500 * time.Millisecond // disconnects are read, while there are connections
	roundEvery = time.Second            // heartbeats are written; retries

	maxBatch    = 4096 // events in one call
	callsAtOnce = 8

	// longestSleep is the time after which a connection is looked at again, so that shorter ping intervals apply soon.
	longestSleep = time.Minute
	// activityEvery is the least time between two records of a connection because of its activity.
	activityEvery = 5 * time.Second
	// idleTolerance is how far the time since when a device is idle may be off, since it arrives late and waits.
	idleTolerance = 10 * time.Second
	// renewEvery is the least time between two attempts to write the record of a connection whose user left by other
	// means: while the user is invisible, all of them fail.
	renewEvery = 5 * time.Second
	// againWithin is the time in which all connections of a namespace are recorded again: see [Registry.RecordAgain].
	// It is that over which watchers get their resets, and keeps a store that has just failed over from a rush of
	// records.
	againWithin = 10 * time.Second

	defaultMaxUser = 16
)

// Settings are those of a namespace.
type Settings struct {
	lastseen.Thresholds
	PingInterval time.Duration
}

// heartbeatEvery returns the least time between two records of what was received on a connection.
func (s Settings) heartbeatEvery() time.Duration { return s.PingInterval / 4 * 3 }

// window returns for how long a record counts.
func (s Settings) window() time.Duration { return lastseen.DeviceWindow(s.Thresholds, s.PingInterval) }

// recordEvery returns the time after which a heartbeat renews the record. A record has the time at which the client was
// received, so it is up to heartbeatEvery older than its write. Half of the window leaves room for that, for the time
// until the next heartbeat, and for one answer to a ping that is lost.
func (s Settings) recordEvery() time.Duration { return s.window() / 2 }

// Options configures a registry. Store and Settings are required.
type Options struct {
	Store    store.Store
	Settings func(namespace string) Settings // current; called often, by several goroutines
	MaxUser  int                             // connections of one user on this server; default 16
	Left     func(namespace string, n int)   // called after leaves that made users leave; default nothing
	Random   func() float64                  // in [0, 1), for jitter; default math/rand/v2
	Logger   *slog.Logger                    // default slog.Default()
}

// Stats describes a registry at this moment, and since the start.
type Stats struct {
	Open      int   // connections of users
	Waiting   int   // leaves that wait for their time, or for the store
	Unwritten int   // connections that were active and have to be written, while the store is away
	Opened    int64 // since the start, as the rest
	Leaves    int64 // connections that ended with a leave, or whose leave was written after the grace
	Lost      int64 // connections that ended in silence
	Forgotten int64 // connections that were closed because of [Closed]
	Dropped   int64 // leaves that were not written: too many waited, or the store does not take them
}

// Registry holds the connections of users on this server.
type Registry struct {
	o         Options
	monotonic func() time.Duration
	pause     func(context.Context, time.Duration) // returns early when the context ends

	// working is held while the store is called, except by Open and for single events. It guards the next fields.
	working             chan struct{}
	nextPoll, nextRound time.Duration
	away                bool // since awaySince, calls failed
	awaySince           time.Duration

	readingDisconnects chan struct{} // held while they are read; guards disconnectsErr
	disconnectsErr     error         // of the last read

	mu              sync.Mutex
	stopping        bool
	position        store.DisconnectPosition           // "" until the first is taken
	positionRead    time.Duration                      // when the read began that returned position; monotonic
	disconnectReads int                                // that began
	users           map[lastseen.UserKey][]*Connection // also those that are being opened
	held            []held
	returned        time.Duration // when the store was last back after it had been away
	waiting         []pending
	later           int           // of those that wait: leaves by Later
	nextWarn        time.Duration // when a dropped leave is logged again
	stats           Stats         // all but Waiting
}

// held is a connection whose heartbeats are written. It has the due time itself, so that a round does not read the
// memory of connections that are not due.
type held struct {
	due time.Duration // monotonic
	c   *Connection
}

// New returns a registry without connections. Run does its work.
func New(o Options) *Registry {
	o.MaxUser = cmp.Or(o.MaxUser, defaultMaxUser)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Left == nil {
		o.Left = func(string, int) {}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	start := time.Now()
	return &Registry{
		o:                  o,
		monotonic:          func() time.Duration { return time.Since(start) },
		pause:              func(ctx context.Context, d time.Duration) { store.Pause(ctx, d) },
		working:            make(chan struct{}, 1),
		readingDisconnects: make(chan struct{}, 1),
		users:              map[lastseen.UserKey][]*Connection{},
	}
}

// Run writes heartbeats and leaves, and closes what other servers ask to close, until the context ends.
func (r *Registry) Run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.tick(ctx)
		}
	}
}

// tick does what is due.
func (r *Registry) tick(ctx context.Context) {
	r.working <- struct{}{}
	defer func() { <-r.working }()
	now := r.monotonic()
	round := now >= r.nextRound
	if round {
		r.nextRound = now + roundEvery
	}
	if !round && now < r.nextPoll && !r.waits(now) || r.idle() {
		return
	}
	r.nextPoll = now + pollEvery
	_ = r.work(ctx, task{heartbeats: round}) // it was logged, and is tried again
}

// idle reports whether there is nothing to do until something happens.
func (r *Registry) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.users) == 0 && len(r.waiting) == 0
}

// task is what a call of work does besides closing connections and writing what waited for its time.
type task struct {
	heartbeats bool // write those that are due
	all        bool // write all of it
}

// work does a task and returns an error if something has to be done again. The caller holds working.
func (r *Registry) work(ctx context.Context, t task) error {
	now, err := r.now(ctx)
	if err == nil {
		err = errors.Join(r.readDisconnects(ctx), r.writeDue(ctx, now, t))
	}
	r.report(ctx, now, t, err)
	return err
}

// writeDue writes what is due. It does so also if the disconnects cannot be read: on a Redis Cluster this says nothing
// about the namespaces.
func (r *Registry) writeDue(ctx context.Context, now clockReading, t task) error {
	batch := r.takeDue(now)
	if t.heartbeats {
		batch = append(batch, r.collect(now, t.all)...)
	}
	r.write(ctx, batch)
	return r.settle(batch, now)
}

// report logs that the store is away, and that it is back.
func (r *Registry) report(ctx context.Context, now clockReading, t task, err error) {
	switch {
	case ctx.Err() != nil: // the server stops
	case err != nil && !r.away:
		r.away, r.awaySince = true, now.monotonic
		r.o.Logger.Warn("cannot record pings of connections; trying again every second", "error", err)
	case err == nil && r.away && t.heartbeats:
		r.away = false
		r.o.Logger.Info("pings of connections are recorded again",
			"after", (now.monotonic - r.awaySince).Round(time.Second).String())
		r.mu.Lock()
		r.returned = now.monotonic
		r.mu.Unlock()
	}
}

// Peers returns the peers of a user's connections, also of those that are being opened.
func (r *Registry) Peers(namespace, user string) (peers []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.users[lastseen.UserKey{Namespace: namespace, User: user}] {
		peers = append(peers, c.o.Peer)
	}
	return peers
}

// ActiveWithin reports whether a connection of a user that is open was active within a time before now; only those of
// one device unless it is "". A connection that left does not count.
func (r *Registry) ActiveWithin(namespace, user, device string, within time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	earliest := r.monotonic() - within
	for _, c := range r.users[lastseen.UserKey{Namespace: namespace, User: user}] {
		counts := !c.opening && !c.quiet && (device == "" || device == c.o.Device)
		if counts && c.lastReceived() >= earliest {
			return true
		}
	}
	return false
}

// Stats returns the current statistics.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Waiting = len(r.waiting)
	return s
}
