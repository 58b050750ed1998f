package feed

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	readEvery     = 100 * time.Millisecond // while there are changes
	readQuiet     = 250 * time.Millisecond // otherwise, and after errors
	quietAfter    = time.Second            // without changes
	readPage      = 250                    // entries of a shard in one read, so that none keeps Redis busy for long
	readTogether  = 50 * time.Millisecond  // reads due within this time share a call
	recordEvery   = time.Minute            // RecordChanges is called, and Options.Recorded
	recordRetry   = time.Second            // after an error
	settlesWithin = time.Minute            // a feed that is new can begin again once more, until all servers know of it
	followAfter   = time.Minute            // a namespace is followed after its last watcher left
	keptTime      = 2 * time.Minute        // entries stay in memory, unless there are too many
	batchEvery    = 250 * time.Millisecond // a watcher that waits gets a batch
	resetSpread   = 10 * time.Second       // the resets of waiting watchers are spread over this time
	createdSpread = time.Second            // the same when a namespace begins
	resetRetry    = time.Second            // after a snapshot failed
	freshFor      = 2 * time.Second        // a read shows that the store responds
	warnEvery     = time.Minute            // errors are logged
	watermarkMove = 5 * time.Second        // the watermark must have moved in this time, or else no server moves it

	defaultMaxWatches = 5_000_000
	maxReadSlots      = 16 // snapshots and reads for single watchers at the same time
	maxRecords        = 16 // calls of RecordChanges at the same time

	checkMissingEvery = 500 * time.Millisecond // for namespaces that are watched and do not exist
	maxFollowed       = 10_000                 // namespaces that are followed at the same time

	flapChanges = 4 // in a minute are not too many
	flapTime    = time.Minute
)

// bounds limit what a hub keeps and reads. They differ in tests.
type bounds struct {
	followed   int // namespaces
	entries    int // in memory, for a namespace
	allEntries int // in memory, for the process
	catchUp    int // entries read from the store for one watcher of named users
	page       int // entries of a shard in one read
}

// Hub follows feeds. Make one for each process.
type Hub struct {
	o         Options
	bounds    bounds
	monotonic func() time.Duration

	readSoon   store.Waker   // wakes the goroutine that reads
	recordSoon store.Waker   // wakes the goroutine that has changes recorded
	readSlots  chan struct{} // a slot for each
	ended      chan struct{} // closed when Run returns

	watches atomic.Int64
	entries atomic.Int64
	resets  atomic.Int64
	behind  atomic.Int64
	flaps   atomic.Int64
	// nextWarning is when an error is logged again: there can be several a second for each namespace.
	nextWarning atomic.Int64

	mu        sync.Mutex
	followers map[string]*follower
	watchers  int
}

// New returns a hub. It follows nothing until Run is called and there is a watcher.
func New(o Options) *Hub {
	if o.MaxWatches == 0 {
		o.MaxWatches = defaultMaxWatches
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Recorded == nil {
		o.Recorded = func(string) {}
	}
	if o.Restarted == nil {
		o.Restarted = func(string) {}
	}
	start := time.Now()
	return &Hub{
		o: o,
		bounds: bounds{
			followed: maxFollowed, entries: 100_000, allEntries: 1_000_000, catchUp: 10_000, page: readPage,
		},
		monotonic:  func() time.Duration { return time.Since(start) },
		readSoon:   store.NewWaker(),
		recordSoon: store.NewWaker(),
		readSlots:  make(chan struct{}, maxReadSlots),
		ended:      make(chan struct{}),
		followers:  map[string]*follower{},
	}
}

// Run follows the feeds that are watched until the context ends, and then ends all watchers: their methods return
// store.ErrClosed. It is called once.
func (h *Hub) Run(ctx context.Context) {
	defer h.end()
	var running sync.WaitGroup
	running.Go(func() { h.keepRecorded(ctx) })
	h.keepReading(ctx)
	running.Wait()
}

// end ends all watchers.
func (h *Hub) end() {
	close(h.ended)
	for _, f := range h.all() {
		f.mu.Lock()
		for w := range f.attached {
			w.notifyNow()
		}
		f.mu.Unlock()
	}
}

// Stats returns the current statistics.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{
		Namespaces: len(h.followers), Watchers: h.watchers,
		Watches: int(h.watches.Load()), Entries: int(h.entries.Load()),
		Resets: h.resets.Load(), Behind: h.behind.Load(), Flaps: h.flaps.Load(),
	}
}

// all returns the followers at this moment.
func (h *Hub) all() []*follower {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*follower, 0, len(h.followers))
	for _, f := range h.followers {
		all = append(all, f)
	}
	return all
}

// keepReading reads all feeds that are due, in one call, until the context ends. Each gets one page in a call, so that
// none has to wait for another that has many changes.
func (h *Hub) keepReading(ctx context.Context) {
	for ctx.Err() == nil {
		now := h.monotonic()
		due, next := []*follower{}, now+time.Hour
		for _, f := range h.all() {
			if at, ok := f.readDue(); ok && at <= now+readTogether {
				due = append(due, f)
			} else if ok {
				next = min(next, at)
			}
		}
		if len(due) > 0 {
			h.read(ctx, due)
			continue
		}
		h.readSoon.Wait(ctx, next-now)
	}
}

func (h *Hub) read(ctx context.Context, due []*follower) {
	reads := make([]*store.ChangesRead, len(due))
	for k, f := range due {
		reads[k] = f.beginRead()
	}
	h.o.Store.ReadChanges(ctx, reads)
	if ctx.Err() != nil {
		return
	}
	for k, f := range due {
		f.endRead(reads[k])
	}
}

// keepRecorded has the store record the changes of all namespaces that are watched until the context ends, and forgets
// those that are not watched any more.
func (h *Hub) keepRecorded(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxRecords)
	nextCheck := h.monotonic()
	for ctx.Err() == nil {
		all := h.all()
		if now := h.monotonic(); now >= nextCheck {
			h.checkMissing(ctx, all)
			nextCheck = now + checkMissingEvery
		}
		for _, f := range all {
			if !h.stillFollowed(f) || !f.beginRecord() {
				continue
			}
			slots <- struct{}{}
			running.Go(func() {
				f.record(ctx)
				<-slots
			})
		}
		h.recordSoon.Wait(ctx, nextCheck-h.monotonic())
	}
}

// stillFollowed reports whether a follower is needed. If not, it ends it.
func (h *Hub) stillFollowed(f *follower) bool {
	if h.o.Settings(f.namespace).Mode == Off {
		f.end(store.ErrNoFeed)
		return false
	}
	return !h.endIdle(f, followAfter)
}

// endIdle ends a follower that had no watchers for a time, and reports whether it did.
func (h *Hub) endIdle(f *follower, after time.Duration) bool {
	h.mu.Lock()
	idle := f.watchers == 0 && h.monotonic()-f.idleSince >= after
	if idle {
		h.remove(f)
	}
	h.mu.Unlock()
	if idle {
		f.end(store.ErrNotRecorded) // no watcher gets this error
	}
	return idle
}

// remove removes a follower: the next watcher of the namespace gets a new one. The caller holds the lock.
func (h *Hub) remove(f *follower) {
	if h.followers[f.namespace] == f {
		delete(h.followers, f.namespace)
	}
}

// warn logs an error, at most once a minute.
func (h *Hub) warn(namespace string, err error) {
	now, next := h.monotonic(), h.nextWarning.Load()
	if err != nil && int64(now) >= next && h.nextWarning.CompareAndSwap(next, int64(now+warnEvery)) {
		h.o.Logger.Warn("cannot follow changes; trying again", "namespace", namespace, "error", err)
	}
}
